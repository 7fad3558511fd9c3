"""The command `torch-piecewise bench`: its options, what may be wrong with them, what it prints."""

from __future__ import annotations

import dataclasses
import difflib
import os
import secrets
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torch_piecewise.errors import InputError

if TYPE_CHECKING:  # torch takes seconds to import
    from torch_piecewise.bench.settings import Settings


CORES = os.cpu_count() or 1


class Suite(str, Enum):
    seams = "seams"
    models = "models"
    programs = "programs"


class Scale(str, Enum):
    tiny = "tiny"
    small = "small"
    cpu = "cpu"
    gpu = "gpu"


class DType(str, Enum):
    float32 = "float32"
    bfloat16 = "bfloat16"
    float64 = "float64"


TheSuite = Annotated[Suite, typer.Argument(help="What to measure.")]
TheScale = Annotated[Scale, typer.Option(help="Sizes of seams and programs; batches of models.")]
TheDType = Annotated[DType, typer.Option(help="Data type of inputs and weights.")]
Device = Annotated[str, typer.Option(help="Where to run: cpu, cuda, cuda:1.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads of a step, on the CPU.")]
Rounds = Annotated[int, typer.Option(min=2, help="Least number of rounds.")]
Seconds = Annotated[
    float, typer.Option(min=0, help="Time budget of a subject: rounds go on until then.")
]
Only = Annotated[
    str,
    typer.Option(help="Measure those whose name contains this. Several: a,b; or `stencils`."),
]
Choices = Annotated[
    bool,
    typer.Option("--choices", help="Also cut always and never, and time each nest that can be."),
]
Fresh = Annotated[
    bool,
    typer.Option("--fresh/--in-process", help="Each subject in a new process, or in this."),
]
CompileTime = Annotated[
    bool, typer.Option("--compile-time", help="Measure cold compile times instead.")
]
CompileWorkers = Annotated[
    int, typer.Option(min=1, help="Processes that build C++ code.", show_default="cores")
]
Backend = Annotated[str, typer.Option(help="The backend to measure against Inductor.")]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Which programs to draw.", show_default="a new one")
]
Count = Annotated[int, typer.Option(min=1, help="How many programs.")]
Show = Annotated[
    str, typer.Option(help="Print the source of this program of --seed; measure nothing.")
]
Output = Annotated[Path | None, typer.Option(help="Write all numbers here, as JSON.")]


def bench(
    suite: TheSuite = Suite.seams,
    scale: TheScale = Scale.cpu,
    dtype: TheDType = DType.float32,
    device: Device = "cpu",
    threads: Threads = 1,
    rounds: Rounds = 15,
    seconds: Seconds = 2.0,
    only: Only = "",
    choices: Choices = False,
    fresh: Fresh = True,
    compile_time: CompileTime = False,
    compile_workers: CompileWorkers = CORES,
    backend: Backend = "piecewise",
    seed: Seed = None,
    count: Count = 50,
    show: Show = "",
    output: Output = None,
) -> None:
    """Measure the backend against eager mode and plain Inductor. Exit status 1: a wrong result."""
    given: dict[str, Any] = {**locals()}
    from torch_piecewise.bench.settings import Settings

    if show:
        _show_program(show, suite, seed, scale)
        return
    given["seed"] = secrets.randbelow(10**6) if seed is None else seed
    known = [field.name for field in dataclasses.fields(Settings) if field.name in given]
    settings = Settings(**{name: _plain(given[name]) for name in known})
    check(settings)
    raise typer.Exit(1 if _bench(settings, compile_time, output) else 0)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _show_program(name: str, suite: Suite, seed: int | None, scale: Scale) -> None:
    from torch_piecewise.bench import programs

    if suite is not Suite.programs or seed is None:
        raise InputError("--show: write `bench programs --show NAME --seed N`")
    try:
        typer.echo(programs.find(name, seed, scale.value).text, nl=False)
    except KeyError:
        known = programs.name_of(0)
        raise InputError(f"--show: no program is called {name!r}; the first is {known}") from None


def _bench(settings: Settings, compile_time: bool, output: Path | None) -> bool:
    """Measure and print; says whether anything failed."""
    from torch_piecewise.bench import run, subjects, table

    tasks = subjects.tasks(settings)
    console = table.wide_console()
    if compile_time:
        compiled = run.compile_all(tasks, settings, console, output)
        console.print(table.compile_table(compiled, settings))
        failed = any(r.error for r in compiled)
    else:
        measured = run.measure_all(tasks, settings, console, output)
        console.print(table.table(measured, settings))
        console.print(*table.notes(measured), *table.problems(measured), sep="\n")
        failed = any(r.problems for r in measured)
    if output is not None:
        console.print(f"all numbers: {output}")
    return failed


def check(settings: Settings) -> None:
    """Raise InputError for what can be known to be wrong before anything is compiled."""
    import torch

    try:
        device = torch.device(settings.device)
    except RuntimeError:
        raise InputError(f"--device: torch knows no device {settings.device!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("--device: this machine has no CUDA device that torch can use")
    backends = torch.compiler.list_backends(exclude_tags=None)
    if settings.backend not in backends:
        near = nearest_said(settings.backend, backends)
        raise InputError(f"--backend: torch.compile has no backend {settings.backend!r}{near}")
    if settings.choices and (settings.suite == "models" or device.type != "cpu"):
        raise InputError("--choices: only for seams and programs, on the CPU")
    if settings.choices and settings.backend != "piecewise":
        raise InputError(f"--choices: those of piecewise, not of {settings.backend}")
    _check_names(settings)


def _check_names(settings: Settings) -> None:
    from torch_piecewise.bench.subjects import tasks

    known = [task.label for task in tasks(dataclasses.replace(settings, only=""))]
    for word in settings.words:
        if not tasks(dataclasses.replace(settings, only=word)):
            near = nearest_said(word, known)
            raise InputError(f"--only: no name of the {settings.suite} has {word!r}{near}")


def nearest_said(word: str, known: Sequence[str]) -> str:
    """How a message goes on that names what is most like a word; '' where nothing is."""
    by_part = {part: name for name in known for part in (*name.split("_"), name)}
    parts = difflib.get_close_matches(word, by_part, n=3, cutoff=0.6)
    near = list(dict.fromkeys(by_part[part] for part in parts))
    near = near or difflib.get_close_matches(word, known, n=3, cutoff=0.4)
    return f"; nearest: {', '.join(near)}" if near else ""
