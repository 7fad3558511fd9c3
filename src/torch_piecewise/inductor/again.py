"""Says once that shapes make a graph compile again and again, and what to do."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from torch_piecewise.errors import CompiledAgain

MOST = 4  # compiles of one graph, for as many shapes

_lock = threading.Lock()
_seconds: dict[str, list[float]] = {}  # what each compile of a graph took, by its code


@contextmanager
def counted(code: str) -> Iterator[None]:
    """Time a compile of a graph with this code, whatever its sizes are."""
    start = time.perf_counter()
    yield
    with _lock:
        taken = _seconds.setdefault(code, [])
        taken.append(time.perf_counter() - start)
        often = len(taken) == MOST
    if often:
        warnings.warn(CompiledAgain.of(len(taken), sum(taken)), stacklevel=2)
