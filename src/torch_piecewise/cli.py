"""The command line: `torch-piecewise bench | demo | explain | doctor`."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import logging
import os
import secrets
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from torch_piecewise.errors import PiecewiseError

# torch takes seconds to import: the commands do it, so that --help need not

app = typer.Typer(
    help="torch.compile, range by range: see what it cut, and measure it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

FAILED, WRONG_INPUT = 1, 2


class Suite(str, Enum):
    seams = "seams"
    models = "models"
    programs = "programs"


class Split(str, Enum):
    auto = "auto"
    seams = "seams"
    off = "off"


class Scale(str, Enum):
    tiny = "tiny"
    cpu = "cpu"
    gpu = "gpu"


class DType(str, Enum):
    float32 = "float32"
    bfloat16 = "bfloat16"


class InputError(PiecewiseError, ValueError):
    """Something named on the command line does not exist or is not what it has to be."""


def _print_version(wanted: bool) -> None:
    if wanted:
        import torch

        from torch_piecewise import __version__

        typer.echo(f"torch-piecewise {__version__}, torch {torch.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the versions.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options that stand before the command."""


@app.command()
def bench(
    suite: Annotated[Suite, typer.Argument(help="What to measure.")] = Suite.seams,
    scale: Annotated[Scale, typer.Option(help="Sizes of seams and programs.")] = Scale.cpu,
    dtype: Annotated[DType, typer.Option(help="Data type of inputs and weights.")] = DType.float32,
    device: Annotated[str, typer.Option(help="Where to run: cpu, cuda, cuda:1.")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="Threads of a step, on the CPU.")] = 1,
    rounds: Annotated[int, typer.Option(min=2, help="Least number of rounds.")] = 15,
    seconds: Annotated[
        float, typer.Option(min=0, help="Time budget of a subject: rounds go on until then.")
    ] = 2.0,
    only: Annotated[str, typer.Option(help="Measure those whose name contains this.")] = "",
    fresh: Annotated[
        bool,
        typer.Option("--fresh/--in-process", help="Each subject in a new process, or in this."),
    ] = True,
    compile_time: Annotated[
        bool, typer.Option("--compile-time", help="Measure cold compile times instead.")
    ] = False,
    compile_workers: Annotated[
        int, typer.Option(min=1, help="Processes that build C++ code.", show_default="cores")
    ] = os.cpu_count() or 1,
    backend: Annotated[
        str, typer.Option(help="The backend to measure against Inductor.")
    ] = "piecewise",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Which programs to draw.", show_default="a new one")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many programs.")] = 50,
    show: Annotated[
        str, typer.Option(help="Print the source of this program of --seed; measure nothing.")
    ] = "",
    output: Annotated[Path | None, typer.Option(help="Write all numbers here, as JSON.")] = None,
) -> None:
    """Measure the backend against eager mode and plain Inductor. Exit status 1: a wrong result."""
    from torch_piecewise.bench.settings import Settings

    if show:
        with _clear_errors():
            _show_program(show, suite, seed, scale)
        return
    settings = Settings(
        suite=suite.value,
        scale=scale.value,
        dtype=dtype.value,
        device=device,
        threads=threads,
        rounds=rounds,
        seconds=seconds,
        only=only,
        fresh=fresh,
        compile_workers=compile_workers,
        backend=backend,
        seed=secrets.randbelow(10**6) if seed is None else seed,
        count=count,
    )
    with _clear_errors():
        failed = _bench(settings, compile_time, output)
    raise typer.Exit(1 if failed else 0)


def _show_program(name: str, suite: Suite, seed: int | None, scale: Scale) -> None:
    from torch_piecewise.bench import programs

    if suite is not Suite.programs or seed is None:
        raise InputError("--show: write `bench programs --show NAME --seed N`")
    try:
        typer.echo(programs.find(name, seed, scale.value).text, nl=False)
    except KeyError:
        known = programs.name_of(0)
        raise InputError(f"--show: no program is called {name!r}; the first is {known}") from None


def _bench(settings: Any, compile_time: bool, output: Path | None) -> bool:
    from torch_piecewise.bench import run, subjects, table

    _check_bench(settings)
    tasks = subjects.tasks(settings)
    console = table.wide_console()
    if compile_time:
        compiled = run.compile_all(tasks, settings, console, output)
        console.print(table.compile_table(compiled, settings))
        failed = any(r.error for r in compiled)
    else:
        measured = run.measure_all(tasks, settings, console, output)
        console.print(table.table(measured, settings), *table.problems(measured), sep="\n")
        failed = any(r.problems for r in measured)
    if output is not None:
        console.print(f"all numbers: {output}")
    return failed


def _check_bench(settings: Any) -> None:
    """Raise InputError for what can be known to be wrong before anything is compiled."""
    import torch

    from torch_piecewise.bench.settings import Settings
    from torch_piecewise.bench.subjects import tasks

    try:
        device = torch.device(settings.device)
    except RuntimeError:
        raise InputError(f"--device: torch knows no device {settings.device!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("--device: this machine has no CUDA device that torch can use")
    backends = torch.compiler.list_backends(exclude_tags=None)
    if settings.backend not in backends:
        near = _nearest(settings.backend, backends)
        raise InputError(f"--backend: torch.compile has no backend {settings.backend!r}{near}")
    if not tasks(settings):
        labels = [t.label for t in tasks(Settings(suite=settings.suite, count=settings.count))]
        near = _nearest(settings.only, labels)
        raise InputError(f"--only: no name of the {settings.suite} has {settings.only!r}{near}")


@app.command()
def demo(
    steps: Annotated[int, typer.Option(min=25, help="Steps of the simulation.")] = 1000,
    threads: Annotated[int, typer.Option(min=1, help="Threads of a step.")] = 1,
) -> None:
    """Run a simulation, a rotary embedding and a concat block through three backends."""
    from torch_piecewise.bench.demo import run

    with _clear_errors():
        agrees = run(steps=steps, threads=threads)
    raise typer.Exit(0 if agrees else 1)


@app.command()
def explain(
    script: Annotated[
        str,
        typer.Argument(help="`file.py:name` or `module:name`; name() returns (callable, args)."),
    ],
    split: Annotated[Split | None, typer.Option(help="Where to cut.", show_default="auto")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="Another option of the backend, as name=value. May be repeated."),
    ] = None,
) -> None:
    """Show each loop nest of a function: its seams, its pieces, and why it was cut or left.

    Exit status 1: the function raised an error.
    """
    with _clear_errors():
        options: dict[str, object] = dict(map(_option, option or ()))
        if split is not None:
            options["split"] = split.value
        fn, args = load_script(script)
        import torch_piecewise

        with _errors_of_the_user():
            said = torch_piecewise.explain(fn, args, options=options or None)
        typer.echo(str(said))


def _option(text: str) -> tuple[str, object]:
    """`name=value`, where the value is written as in Python or is a plain word."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise InputError(f"--option: write name=value, not {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


@app.command()
def doctor() -> None:
    """Look at torch, the compiler, caches and the machine, and say what to do. 1: can't work."""
    from rich.console import Console
    from rich.table import Table

    from torch_piecewise import examine

    findings = examine()
    table = Table("", "", "found", "what to do", show_edge=False, box=None)
    for each in findings:
        table.add_row(each.mark, each.what, each.found, each.fix)
    Console().print(table)
    raise typer.Exit(1 if any(each.broken for each in findings) else 0)


def load_script(script: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """What SCRIPT's function returns: a callable and its arguments. Raises InputError."""
    place, colon, name = script.rpartition(":")
    if not (place and colon and name):
        raise InputError(f"{script!r} is no SCRIPT: write file.py:name or module:name")
    module = _module(place)
    maker = getattr(module, name, None)
    if maker is None:
        public = [n for n in vars(module) if not n.startswith("_")]
        raise InputError(f"{place} has nothing called {name!r}{_nearest(name, public)}")
    if not callable(maker):
        raise InputError(f"{script}: {name} is {type(maker).__name__}, not a function")
    try:
        made = maker()
    except Exception as error:  # the user's own code, which may raise anything
        raise InputError(f"{script}: {name}() failed: {_said(error)}") from error
    if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0])):
        raise InputError(f"{script}: {name}() has to return (callable, args), not {_short(made)}")
    fn, args = made
    if not isinstance(args, (tuple, list)):
        raise InputError(f"{script}: the args that {name}() returns have to be a tuple")
    return fn, tuple(args)


def _module(place: str) -> ModuleType:
    try:
        if not place.endswith(".py"):
            if "" not in sys.path:
                sys.path.insert(0, "")  # as `python -m` does
            return importlib.import_module(place)
        path = Path(place)
        if not path.is_file():
            raise InputError(f"there is no file {place}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)
        sys.path.insert(0, str(path.parent))  # a script imports its neighbours
        spec.loader.exec_module(module)
        return module
    except InputError:
        raise
    except Exception as error:  # the user's own code, which may raise anything
        raise InputError(f"importing {place} failed: {_said(error)}") from error


@contextmanager
def _clear_errors() -> Iterator[None]:
    """An error of ours ends the command with its message and exit status 2, without a traceback.

    Dynamo raises a backend's error wrapped in its own.
    """
    try:
        yield
    except Exception as error:
        ours: object = getattr(error, "inner_exception", error)
        if not isinstance(ours, PiecewiseError):
            raise
        typer.echo(f"error: {ours}", err=True)
        raise typer.Exit(WRONG_INPUT) from error


@contextmanager
def _errors_of_the_user() -> Iterator[None]:
    """An error of the user's function ends the command with the user's frames only.

    What fails inside a compiler, or in this package, keeps its whole traceback.
    """
    quiet = logging.getLogger("torch._subclasses.fake_tensor")  # it logs what is raised as well
    level = quiet.level
    if "TORCH_LOGS" not in os.environ:
        quiet.setLevel(logging.CRITICAL)
    try:
        yield
    except Exception as error:
        told = traceback.TracebackException.from_exception(error)
        if isinstance(error, PiecewiseError) or hasattr(error, "inner_exception"):
            raise
        if told.stack[-1].filename.startswith(os.path.dirname(__file__)):
            raise
        _keep_own_frames(told)
        typer.echo("".join(told.format()).rstrip(), err=True)
        raise typer.Exit(FAILED) from error
    finally:
        quiet.setLevel(level)


def _keep_own_frames(told: traceback.TracebackException) -> bool:
    """Drop the frames of torch, of Python's library and ours; says whether any is left."""
    import torch

    others = [str(Path(module).parent) for module in (torch.__file__, __file__)]
    library, packages = (sysconfig.get_path(name) for name in ("stdlib", "purelib"))
    told.stack = traceback.StackSummary.from_list(
        frame
        for frame in told.stack
        if not frame.filename.startswith(("<", *others))
        and not (frame.filename.startswith(library) and not frame.filename.startswith(packages))
    )
    if told.__cause__ is not None:
        _keep_own_frames(told.__cause__)
    if told.__context__ is not None and not _keep_own_frames(told.__context__):
        told.__context__ = None  # torch went on after an error of its own
    return bool(told.stack)


def _nearest(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=3, cutoff=0.4)
    return f"; nearest: {', '.join(near)}" if near else ""


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def main() -> None:
    app()
