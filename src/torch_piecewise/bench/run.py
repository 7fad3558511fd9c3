"""A whole run: every task of a suite measured, with a progress bar, and the results as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from torch_piecewise.bench import machine
from torch_piecewise.bench.compile_time import CompileRecord, contestants
from torch_piecewise.bench.harness import Record, measure
from torch_piecewise.bench.settings import Settings, Task
from torch_piecewise.bench.verdict import summary
from torch_piecewise.bench.worker import ask_compile, ask_measure

T = TypeVar("T")
R = TypeVar("R", Record, CompileRecord)


def measure_all(
    tasks: Sequence[Task], settings: Settings, console: Console, output: Path | None = None
) -> tuple[Record, ...]:
    """One record a task. A task that fails has its error in the record, and the run goes on.

    `output` is written after every task, so that a run that is stopped leaves what it has.
    """

    def one(task: Task) -> Record:
        try:
            return ask_measure(task, settings) if settings.fresh else measure(task, settings)
        except Exception as error:  # any failure of a compile or a step is a result of the bench
            return Record(task.suite, task.name, task.train, error=_said(error))

    return _kept(_with_progress(tasks, one, console), settings, output)


def compile_all(
    tasks: Sequence[Task], settings: Settings, console: Console, output: Path | None = None
) -> tuple[CompileRecord, ...]:
    """As measure_all, each record from `settings.compile_repeats` fresh processes a backend."""

    def one(task: Task) -> CompileRecord:
        return _compile_times(task, settings)

    return _kept(_with_progress(tasks, one, console), settings, output)


def _kept(records: Iterable[R], settings: Settings, output: Path | None) -> tuple[R, ...]:
    done: list[R] = []
    for record in records:
        done.append(record)
        if output is not None:
            write(output, report(settings, done))
    return tuple(done)


def _compile_times(task: Task, settings: Settings) -> CompileRecord:
    order = list(contestants(settings))
    seconds: dict[str, list[float]] = {variant.name: [] for variant in order}
    try:
        for _ in range(settings.compile_repeats):
            for variant in order:
                seconds[variant.name].append(ask_compile(task, variant.name, settings))
            order.reverse()
    except Exception as error:  # as in measure_all
        return CompileRecord(task.suite, task.name, task.train, error=_said(error))
    plain, tested = (tuple(seconds[variant.name]) for variant in contestants(settings))
    return CompileRecord(task.suite, task.name, task.train, plain, tested)


def _with_progress(
    tasks: Sequence[Task], one: Callable[[Task], T], console: Console
) -> Iterator[T]:
    columns = (
        TextColumn("{task.description:30}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=len(tasks))
        for task in tasks:
            progress.update(bar, description=task.label)
            yield one(task)
            progress.advance(bar)


def _said(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def report(settings: Settings, records: Sequence[Record | CompileRecord]) -> dict[str, Any]:
    """All numbers of a run as plain values, ready for JSON."""
    measured = [r for r in records if isinstance(r, Record)]
    compiled = [r for r in records if isinstance(r, CompileRecord)]
    result: dict[str, Any] = {"settings": settings.to_json(), "machine": machine.facts()}
    if measured:
        result["summary"] = summary(measured)
        result["records"] = [dataclasses.asdict(r) for r in measured]
    if compiled:
        result["compile"] = [{**dataclasses.asdict(r), "ratio": r.ratio} for r in compiled]
    return result


def write(path: Path, result: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
