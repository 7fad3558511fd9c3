"""Says once that shapes make a graph compile again and again, and what to do."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch_piecewise.errors import CompiledAgain

MOST = 4  # shapes that a graph is compiled for

_lock = threading.Lock()
# what the compile of a graph took, by its code and its inputs' shapes
_seconds: dict[str, dict[tuple[str, ...], float]] = {}


@contextmanager
def counted(code: str, inputs: Sequence[Any]) -> Iterator[None]:
    """Time a compile of a graph with this code, whatever its sizes are."""
    start = time.perf_counter()
    yield
    shapes = tuple(str(getattr(each, "shape", each)) for each in inputs)
    with _lock:
        taken = _seconds.setdefault(code, {})
        new = shapes not in taken
        taken[shapes] = time.perf_counter() - start
        often = new and len(taken) == MOST
        total = sum(taken.values())
    if often:
        warnings.warn(CompiledAgain.of(MOST, total), stacklevel=2)
