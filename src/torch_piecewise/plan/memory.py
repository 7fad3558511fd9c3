"""What one run of a nest on a GPU moves: bytes from memory, and from the cache before it.

Memory delivers each line once; the second-level cache delivers it again to every tile that reads
it. A tile of one row that reads the rows beside it too has all of them from there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import sympy

from torch_piecewise.loops.ir import LoopNest, Op, walk

from .cost import MEMORY, Size
from .instructions import CYCLE, LANES

SECTOR = 64  # bytes; less is seldom moved


@dataclass(frozen=True)
class Gpu:
    """Rates of one card, for a nanosecond: slots, bytes of memory and of its second-level cache."""

    multiprocessors: int
    slots: float
    bytes: float
    cached: float

    @staticmethod
    def of(multiprocessors: int, clock: float, bandwidth: float, cached: float) -> Gpu:
        """From the number of multiprocessors, their clock in Hz and bytes in a second."""
        slots = multiprocessors * CYCLE * LANES * clock / 1e9
        return Gpu(multiprocessors, slots, bandwidth / 1e9, cached / 1e9)


H200 = Gpu.of(132, 1.98e9, 4.2e12, 8e12)


def traffic(
    nest: LoopNest, size: Size, inside: Collection[str] = (), sector: int = SECTOR
) -> float:
    """Bytes moved: each buffer once, as far as the nest goes; those that live `inside` it are free.

    What a nest stores it need not load. Of a row at least a `sector` is moved.
    """
    sizes = {a.symbol: size(a.size) for a in nest.axes}
    width = {name: dtype.itemsize for name, dtype in nest.buffers}
    touched: dict[tuple[str, int], float] = {}
    stored: set[str] = set()
    for op, name, index in _accesses(nest):
        if name in inside:
            continue
        over = math.prod(n for a, n in sizes.items() if a in index.free_symbols)
        along = nest.axes[-1]
        least = sector if along.symbol in index.free_symbols else 0
        rows = over / max(sizes[along.symbol], 1) if least else 1
        moved = max(over * width[name], rows * least)
        if op.name != "load":
            stored.add(name)
        elif name in stored:
            continue
        place = name, _far(index, over)
        touched[place] = max(touched.get(place, 0.0), moved)
    return sum(touched.values())


def rows_beside(nest: LoopNest) -> int:
    """From how many other rows the nest reads a buffer beside the row that it works on, at most."""
    return max((count - 1 for count in _rows_read(nest).values()), default=0)


def reread(nest: LoopNest, size: Size, rows: int, inside: Collection[str] = ()) -> float:
    """Bytes that the cache delivers beyond those from memory, to tiles of so many `rows`."""
    sizes = {a.symbol: size(a.size) for a in nest.axes}
    width = {name: dtype.itemsize for name, dtype in nest.buffers}
    points = math.prod(sizes.values())
    return sum(
        points * width[name] * (count - 1) / rows
        for (name, _), count in _rows_read(nest).items()
        if name not in inside
    )


def _rows_read(nest: LoopNest) -> dict[tuple[str, int], int]:
    """For each buffer, and each far place of it, how many rows are read for one row."""
    if len(nest.axes) < 2 or not all(isinstance(a.size, sympy.Integer) for a in nest.axes):
        return {}
    along, points = nest.axes[-1].symbol, math.prod(int(a.size) for a in nest.axes)
    places: dict[tuple[str, int], set[tuple[sympy.Expr, int]]] = {}
    for op, name, index in _accesses(nest):
        if op.name != "load" or along not in index.free_symbols:
            continue
        constant, rest = index.xreplace({along: sympy.S.Zero}).as_coeff_Add()
        steps = [int(n) for n in rest.as_coefficients_dict().values() if n.is_Integer]
        if not constant.is_Integer or not steps:
            continue
        far, step = _far(index, points), min(map(abs, steps))
        row = (int(constant) - far * points + step // 2 - 1) // max(step, 1)
        places.setdefault((name, far), set()).add((rest, row))
    return {key: len(found) for key, found in places.items()}


def _far(index: sympy.Expr, over: int) -> int:
    """Which part of a buffer an index is in: those that are further apart than all its points."""
    constant = index.as_coeff_Add()[0]
    return round(int(constant) / max(over, 1)) if constant.is_Integer else 0


def _accesses(nest: LoopNest) -> Iterator[tuple[Op, str, sympy.Expr]]:
    for body in nest.bodies:
        for op in walk(body.block):
            if op.name in MEMORY:
                name, index = op.args[0], op.args[1]
                assert isinstance(name, str) and isinstance(index, sympy.Expr)
                yield op, name, index
