"""A bar over the pieces of a graph while they are compiled, for whoever waits at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LEAST = 2  # pieces; one is over when the bar could show something


@contextmanager
def over(pieces: int) -> Iterator[Callable[[], None]]:
    """Gives what to call after each piece. Nothing is shown where stderr is no terminal."""
    if pieces < LEAST or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("piecewise"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        bar = progress.add_task("", total=pieces)
        yield lambda: progress.advance(bar)
