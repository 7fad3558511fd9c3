"""The command line: `torch-piecewise bench | demo | explain | doctor`."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import logging
import os
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

from torch_piecewise.bench.command import bench, nearest_said
from torch_piecewise.errors import InputError, PiecewiseError

# torch takes seconds to import: the commands do it, so that --help need not

app = typer.Typer(
    help="torch.compile, range by range: see what it cut, and measure it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

FAILED, WRONG_INPUT = 1, 2


class Split(str, Enum):
    auto = "auto"
    seams = "seams"
    off = "off"


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
        raise InputError(f"{place} has nothing called {name!r}{nearest_said(name, public)}")
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


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


app.command()(_clear_errors()(bench))


def main() -> None:
    app()
