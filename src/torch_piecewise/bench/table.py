"""A run's results as a table for the terminal."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from torch_piecewise.bench.compile_time import CompileRecord
from torch_piecewise.bench.harness import Record
from torch_piecewise.bench.plans import PlanFacts
from torch_piecewise.bench.settings import Settings
from torch_piecewise.bench.variants import OFF, SEAMS
from torch_piecewise.bench.verdict import FAST, label_of, summary

Column = tuple[str, Callable[[Record], str | Text]]
NARROWEST = 150


def wide_console() -> Console:
    """A console in which the tables fit: a pipe, or a small window, counts as 80 columns."""
    console = Console()
    return console if console.width >= NARROWEST else Console(width=NARROWEST)


def table(records: Sequence[Record], settings: Settings) -> Table:
    """One row a subject. Speeds are over plain Inductor; `~` marks one inside the noise."""
    scale = f"{settings.scale}, " if settings.suite != "models" else ""
    seed = f" of seed {settings.seed}" if settings.suite == "programs" else ""
    title = f"{settings.suite}{seed}, {scale}{settings.dtype}, {settings.threads} thread(s)"
    made = _empty(title, [heading for heading, _ in _columns(settings)], _caption(records))
    for record in records:
        made.add_row(*_row(record, settings))
    return made


def problems(records: Sequence[Record]) -> Iterator[Text]:
    """A line for each thing that went wrong."""
    for record in records:
        label = label_of(record)
        for problem in record.problems:
            yield Text(f"{label}: {problem}", style="red")


def notes(records: Sequence[Record]) -> Iterator[Text]:
    """What limits the slow subjects, and a line for each choice that was wrong."""
    found = summary(records)
    for record in records:
        if record.inductors_own:
            yield Text(f"{label_of(record)}: plain Inductor differs too: {record.inductors_own}")
    limits = found["limited_by"]
    for by in ("bytes", "code"):
        names = ", ".join(name for name in limits if limits[name] == by)
        if names:
            yield Text(f"under {FAST}x, limited by {by}: {names}")
    for record in records:
        if record.heaviest and label_of(record) in limits:
            yield Text(f"{label_of(record)}: {record.heaviest}")
    choices = found.get("choices", {"wrong_subjects": {}, "wrong_nests": []})
    for name, loss in choices["wrong_subjects"].items():
        yield Text(f"wrong choice: {name} takes {loss:.2f} times the best of off and seams")
    for line in choices["wrong_nests"]:
        yield Text(f"wrong choice: {line}")


def _empty(title: str, columns: Sequence[str], caption: str | None = None) -> Table:
    made = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    made.add_column("", no_wrap=True)
    for column in columns:
        made.add_column(column, justify="right", no_wrap=True)
    return made


def compile_table(records: Sequence[CompileRecord], settings: Settings) -> Table:
    title = f"cold compile, {settings.suite}, {settings.compile_workers} worker(s)"
    made = _empty(title, ("inductor", "piecewise", "ratio"))
    for record in records:
        label = label_of(record)
        if record.ratio is None:
            made.add_row(label, Text(record.error, style="red"))
            continue
        medians = (statistics.median(s) for s in (record.inductor, record.piecewise))
        made.add_row(label, *(f"{s:.2f} s" for s in medians), f"{record.ratio:.2f}")
    return made


def speed(ratio: float, noise: float) -> Text:
    """A ratio as people read it: `1.52x`, or `~1.01x` where the noise could have made it."""
    if abs(ratio - 1.0) <= noise:
        return Text(f"~{ratio:.2f}x", style="dim")
    return Text(f"{ratio:.2f}x", style="green" if ratio > 1.0 else "red")


def difference(value: float | None) -> str:
    if value is None:
        return "-"
    return "none" if value == 0.0 else f"{value:.1e}"


def pieces(plan: PlanFacts | None) -> str:
    """`12 / 3` is 12 pieces of 3 nests."""
    return "-" if plan is None else f"{plan.pieces} / {plan.nests}"


def _columns(settings: Settings) -> tuple[Column, ...]:
    """The headings, and what stands under them."""
    always = (("off", _speed_of(OFF.name)), ("seams", _speed_of(SEAMS.name)))
    return (
        ("eager", _speed_of("eager")),
        ("inductor ms", lambda r: f"{plain.ms:.3f}" if (plain := r.variant("inductor")) else "-"),
        ("A/A", lambda r: f"±{100 * r.noise:.1f}%"),
        ("pw. cat", _speed_of("inductor_pointwise_cat")),
        ("piecewise", _speed_of("piecewise")),
        *((f"always {name}", cell) for name, cell in always if settings.choices),
        ("GB/s", lambda r: _rate(tested.gb_per_s if (tested := r.variant("piecewise")) else None)),
        ("copy", lambda r: _rate(r.copy_gb_per_s)),
        ("pieces", lambda r: pieces(r.plan)),
        ("difference", lambda r: difference(r.difference)),
    )


def _speed_of(variant: str) -> Callable[[Record], str | Text]:
    def cell(record: Record) -> str | Text:
        found = record.variant(variant)
        return "-" if found is None else speed(found.speed, record.noise)

    return cell


def _row(record: Record, settings: Settings) -> tuple[str | Text, ...]:
    name = Text(label_of(record), style="red" if record.problems else "")
    if not record.variants:
        return name, Text("failed", style="red")
    return name, *(cell(record) for _, cell in _columns(settings))


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _caption(records: Sequence[Record]) -> str:
    found = summary(records)
    said = [f"{found['subjects'] - found['failed']} of {found['subjects']} agree"]
    said.append(f"{found['equal_to_inductor']} equal to plain Inductor in every value")
    if found["slowest"]:
        said.append(f"geometric mean {found['geometric_mean_speed']:.2f}x")
        said.append(f"lowest {found['lowest_speed']:.2f}x ({found['slowest']})")
        said.append(f"{len(found['slower_than_noise'])} slower than the noise explains")
    if found["without_controls"]["subjects"]:
        said.append(_without_controls(**found["without_controls"]))
    if found.get("choices", {}).get("subjects"):
        said.append(_choices(found["choices"]))
    if found["share_in_ir"] is not None:
        said.append(f"{100 * found['share_in_ir']:.1f}% of the nests pass through the loop IR")
    said.append("speeds are over plain Inductor, ~ is inside the A/A noise")
    return "; ".join(said)


def _without_controls(subjects: int, over_plain: float, over_best_rival: float) -> str:
    said = f"{over_plain:.2f}x over plain, {over_best_rival:.2f}x over the best rival"
    return f"without controls ({subjects}) {said}"


def _choices(found: Mapping[str, Any]) -> str:
    said = [f"always {way} {found[f'always_{way}']:.2f}x" for way in ("off", "seams")]
    for what in ("nests", "subjects"):
        count, right = found[what], found[f"right_{what}"]
        said.append(f"{right} of {count} {what} chosen right ({100 * right / count:.0f}%)")
    if found["unclear_nests"]:
        said.append(f"{found['unclear_nests']} of these nests only within the noise")
    return ", ".join(said)
