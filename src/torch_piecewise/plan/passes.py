"""Decide for a nest with a reduction on a GPU into which parts its loops over the reduction go.

A program reduces a block of rows, in one or more passes over the columns. Each pass runs part by
part: in a part a condition on the column is settled. The ends of parts are columns, or depend on
the rows of the block: a causal mask is settled before the first of its rows and after the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import sympy

from torch_piecewise.loops.bounds import Bounds
from torch_piecewise.loops.fold import fold
from torch_piecewise.loops.ir import Axis, Box, LoopNest
from torch_piecewise.loops.seams import SeamSearch, Slant

from .choose import judge
from .cost import Size
from .instructions import beside, work
from .memory import H200, Gpu, traffic
from .plan import Reason

MOST_PARTS = 5
NARROW = 512  # a part with fewer columns is done with a part of its neighbour
BLOCK = 1024  # columns, about, that a program works on at a time
LANE = 4  # of them for each lane, about
SETTLED = 0.5  # of the columns, at each side of a condition over rows and columns
OPEN = 0.05  # of the columns, between them


@dataclass(frozen=True)
class Edge:
    """Where a part ends: at a column, or where conditions over rows and columns change.

    `slants` are the signs that are settled before the first row of a block (`after` False) or
    after the last. The column is `rounded` to whole steps of the loop, up (1) or down (-1).
    """

    column: sympy.Expr
    slants: tuple[Slant, ...] = ()
    after: bool = False
    rounded: int = 0


@dataclass(frozen=True)
class Part:
    """One part of each pass: where it starts and stops, and the nest folded for it.

    One that stops before it starts is both ends of the columns: up to the stop, and from the start
    on. `share` is about how much of the columns it has.
    """

    start: Edge
    stop: Edge
    nest: LoopNest
    share: float

    @property
    def ends(self) -> bool:
        return self.start.rounded < 0 or self.stop.rounded > 0

    @property
    def whole_steps(self) -> bool:
        """Whether the loop ends with a whole step, so that no column has to be masked."""
        begins = self.start.rounded > 0 or self.start.column == 0
        before = bool(self.stop.slants) and not self.stop.after
        return begins and (before or self.stop.rounded < 0)


@dataclass(frozen=True)
class Passes:
    """The parts of a nest's passes, none where it stays as Inductor has it, and why."""

    parts: tuple[Part, ...]
    reason: Reason
    boxes: tuple[Box, ...] = ()


def choose_passes(
    search: SeamSearch,
    split: str,
    size: Size,
    inside: frozenset[str] = frozenset(),
    gpu: Gpu = H200,
) -> Passes:
    """The parts of a nest that has one reduction axis, or is cut on the first of several.

    `inside` are buffers that nothing but the nest needs.
    """
    nest = search.nest
    axis = next(axis for axis in nest.axes if axis.reduce)
    parts = tuple(_by_columns(search, axis, size)) or tuple(_by_slants(search, axis))
    if not parts and axis.symbol in search.cuts:
        text = f"rows of {axis.size} columns are short, under {2 * BLOCK}"
        return Passes((), Reason("small", nest.name, text))
    if not parts:
        return Passes((), Reason("left", nest.name, "no seam on its reduction axis"))
    if len(parts) > MOST_PARTS:
        text = f"{len(parts)} parts of each pass, at most {MOST_PARTS}"
        return Passes((), Reason("too-many-pieces", nest.name, text))
    whole = work(nest, size, LANE).slots / gpu.slots
    whole = beside(whole, traffic(nest, size, inside) / gpu.bytes)
    takes = sum(work(p.nest, size, LANE).slots * p.share for p in parts) / gpu.slots
    moved = sum(traffic(part.nest, size, inside) * part.share for part in parts) / gpu.bytes
    choice = judge(split, nest.name, whole, beside(takes, moved), len(parts))
    if not choice.split:
        return Passes((), choice.reason)
    return Passes(parts, choice.reason, tuple(_box(nest, axis, part) for part in parts))


def _box(nest: LoopNest, axis: Axis, part: Part) -> Box:
    """For reading: the columns of a part where they are the same for all rows."""
    own = (part.start.column, part.stop.column)
    if part.ends:
        own = (sympy.S.Zero, axis.size)
    ranges = tuple(own if a == axis else (sympy.S.Zero, a.size) for a in nest.axes)
    return Box(tuple(a.symbol for a in nest.axes), ranges)


def _by_columns(search: SeamSearch, axis: Axis, size: Size) -> Iterator[Part]:
    """Between the cuts; what is narrow at the ends is done in whole steps, with its conditions."""
    nest, cuts = search.nest, search.cuts.get(axis.symbol, ())
    columns = size(axis.size)
    head = [c for c in cuts if size(c) < NARROW]
    tail = [c for c in cuts if columns - size(c) < NARROW and c not in head]
    inside = [c for c in cuts if c not in head and c not in tail]
    if not cuts or columns < 2 * BLOCK:
        return
    first = Edge(head[-1], rounded=1) if head else Edge(sympy.S.Zero)
    last = Edge(tail[0], rounded=-1) if tail else Edge(axis.size)
    few = BLOCK / columns
    # one part for both ends; a running mean starts in the loop that has the first column
    outside = Part(last, first, nest, few * (bool(head) + bool(tail)))
    if head:
        yield outside
    for start, stop in pairwise((first, *map(Edge, inside), last)):
        bounds = Bounds.of(nest.axes, nest.symbols)
        bounds = bounds.with_axis(axis.symbol, start.column, stop.column - 1)
        share = size(stop.column - start.column) / columns
        yield Part(start, stop, fold(nest, within=bounds), share - few * bool(head or tail))
    if tail and not head:
        yield outside


def _by_slants(search: SeamSearch, axis: Axis) -> Iterator[Part]:
    """Before the conditions' first change in the block's rows, between, and after the last."""
    slants = tuple(s for s in search.slants if s.inner == axis.symbol)
    steps = {abs(s.expr.coeff(s.inner, 1)) for s in slants}
    if not slants or len({s.outer for s in slants}) > 1 or steps != {1}:
        return
    nest = search.nest
    bounds = Bounds.of(nest.axes, nest.symbols)
    begin, end = Edge(sympy.S.Zero), Edge(axis.size)
    first, last = (Edge(axis.size / 2, slants, after) for after in (False, True))
    below: dict[sympy.Expr, bool] = {s.expr: s.expr.coeff(s.inner, 1) > 0 for s in slants}
    above = {expr: not negative for expr, negative in below.items()}

    def folded(signs: Mapping[sympy.Expr, bool]) -> LoopNest:
        return fold(nest, within=Bounds(bounds.axes, bounds.sizes, signs))

    yield Part(begin, first, folded(below), SETTLED)
    yield Part(first, last, nest, OPEN)
    yield Part(last, end, folded(above), SETTLED)
