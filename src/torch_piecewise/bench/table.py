"""A run's results as a table for the terminal."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from torch_piecewise.bench.compile_time import CompileRecord
from torch_piecewise.bench.harness import Record
from torch_piecewise.bench.plans import PlanFacts
from torch_piecewise.bench.run import summary
from torch_piecewise.bench.settings import Settings, Task

COLUMNS = (
    "eager",
    "inductor ms",
    "A/A",
    "pw. cat",
    "piecewise",
    "GB/s",
    "copy",
    "pieces",
    "difference",
)
NARROWEST = 110


def wide_console() -> Console:
    """A console in which the tables fit: a pipe, or a small window, counts as 80 columns."""
    console = Console()
    return console if console.width >= NARROWEST else Console(width=NARROWEST)


def table(records: Sequence[Record], settings: Settings) -> Table:
    """One row a subject. Speeds are over plain Inductor; `~` marks one inside the noise."""
    scale = f"{settings.scale}, " if settings.suite != "models" else ""
    seed = f" of seed {settings.seed}" if settings.suite == "programs" else ""
    title = f"{settings.suite}{seed}, {scale}{settings.dtype}, {settings.threads} thread(s)"
    made = _empty(title, COLUMNS, _caption(records))
    for record in records:
        made.add_row(*_row(record))
    return made


def problems(records: Sequence[Record]) -> Iterator[Text]:
    """A line for each thing that went wrong."""
    for record in records:
        label = Task(record.suite, record.name, record.train).label
        for problem in record.problems:
            yield Text(f"{label}: {problem}", style="red")


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
        label = Task(record.suite, record.name, record.train).label
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


def _row(record: Record) -> tuple[str | Text, ...]:
    label = Task(record.suite, record.name, record.train).label
    name = Text(label, style="red" if record.problems else "")
    if not record.variants:
        return name, Text("failed", style="red")

    def column(name: str) -> str | Text:
        found = record.variant(name)
        return "-" if found is None else speed(found.speed, record.noise)

    plain, tested = record.variant("inductor"), record.variant("piecewise")
    return (
        name,
        column("eager"),
        f"{plain.ms:.3f}" if plain else "-",
        f"±{100 * record.noise:.1f}%",
        column("inductor_pointwise_cat"),
        column("piecewise"),
        _rate(tested.gb_per_s if tested else None),
        _rate(record.copy_gb_per_s),
        pieces(record.plan),
        difference(record.difference),
    )


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
    if found["share_in_ir"] is not None:
        said.append(f"{100 * found['share_in_ir']:.1f}% of the nests pass through the loop IR")
    said.append("speeds are over plain Inductor, ~ is inside the A/A noise")
    return "; ".join(said)
