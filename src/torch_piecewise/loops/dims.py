"""Where a dim of a buffer is found among the axes of a loop nest that reads or writes it.

Inductor merges loops, so that an axis may go over several dims at once, or over a part of one. An
index says which: its step along an axis beside the step of the dim. All sizes may be symbolic;
what is asked of their order is asked of likely values (`Hint`), since a wrong answer only puts a
cut where nobody wanted it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import sympy

from .ir import Arg, Axis, Block, LoopNest, Op

Hint = Callable[[sympy.Expr], float]
AtMost = Callable[[sympy.Expr, sympy.Expr], bool]  # whether a <= b is proven
Begin = tuple[
    sympy.Expr, sympy.Expr
]  # an address, and how many elements from there on are one place


@dataclass(frozen=True)
class Layout:
    """Sizes and strides of a buffer, in elements."""

    sizes: tuple[sympy.Expr, ...]
    strides: tuple[sympy.Expr, ...]


@dataclass(frozen=True)
class Dim:
    """A dim of a buffer: `step` elements from one position to the next.

    It begins anew after `extent` elements, `oo` for the outermost. Memory of one place of the dim
    is `unit` elements (less than a step where only every other place counts). `start` is the
    position, of the dim that is cut, at which the buffer begins.
    """

    step: sympy.Expr
    extent: sympy.Expr
    unit: sympy.Expr
    start: sympy.Expr = sympy.S.Zero


@dataclass(frozen=True)
class Place:
    """Where the dim that is cut is in a nest: `per` points of an axis are one position.

    Point 0 is position `start`. The axis goes over the dim once in `period` points, or is all in it
    where that is None.
    """

    axis: sympy.Symbol
    per: sympy.Expr
    start: sympy.Expr
    period: sympy.Expr | None = None

    def count(self, size: sympy.Expr) -> sympy.Expr:
        """How many positions the axis, of that size, goes over."""
        return _ratio((self.period or size) / self.per)


def dim_of(
    layout: Layout,
    step: sympy.Expr,
    count: sympy.Expr,
    begin: Begin,
    start: sympy.Expr,
    hint: Hint,
) -> Dim | None:
    """The dim of a buffer along which `step` elements are a position, and so many positions go on.

    What begins at `begin` is at position `start`. None where no dim has such a step. Dims that are
    one in memory are one here, as far as the positions go.
    """
    dims = sorted(
        (
            (stride, stride * size)
            for size, stride in zip(layout.sizes, layout.strides, strict=True)
            if size != 1 and hint(stride) > 0
        ),
        key=lambda each: hint(each[0]),
    )
    own = [k for k, each in enumerate(dims) if hint(each[0]) <= hint(step) < hint(each[1])]
    if not own or not _whole(step / dims[own[-1]][0]):
        return None
    last = own[-1]
    unit, extent = dims[last]
    while hint(extent) <= hint(step * (count - 1)) and last + 1 < len(dims):
        last += 1
        if sympy.expand(dims[last][0] - extent) != 0:
            break
        extent = dims[last][1]
    if hint(extent) >= hint(dims[-1][1]):
        extent = sympy.oo
    offset = elements_along(begin, unit, extent)
    return None if offset is None else Dim(step, extent, unit, _ratio(start - offset / step))


def place(index: sympy.Expr, axes: Sequence[Axis], dim: Dim, hint: Hint) -> Place | None:
    """The axis that goes along a dim of the buffer that `index` is of; None where none does."""
    index = sympy.expand(index)
    found: tuple[Axis, sympy.Expr] | None = None
    for axis in axes:
        step = _step(index, axis.symbol)
        if axis.size == 1 or step is None or step == 0 or hint(step) <= 0:
            continue
        moves = hint(step * axis.size) > hint(dim.step)
        inside = dim.extent == sympy.oo or hint(step) < hint(dim.extent)
        if moves and inside and (found is None or hint(step) > hint(found[1])):
            found = axis, step
    if found is None:
        return None
    axis, step = found
    begin = _begin(index, axes, step, hint)
    offset = elements_along(begin, dim.unit, dim.extent)
    if offset is None:
        return None
    start = _ratio(dim.start + offset / dim.step)
    period = None
    if dim.extent != sympy.oo and hint(step * axis.size) > hint(dim.extent):
        period = _ratio(dim.extent / step)
        if not (_whole(period) and _whole(axis.size / period)):
            return None
    return Place(axis.symbol, _ratio(dim.step / step), start, period)


def followed(
    found: Place, index: sympy.Expr, axes: Sequence[Axis], layout: Layout, hint: Hint
) -> Dim | None:
    """The dim, of another buffer, that the index goes along while the nest goes along the dim."""
    index = sympy.expand(index)
    step = _step(index, found.axis)
    if step is None or step == 0 or hint(step) <= 0:
        return None
    size = next(axis.size for axis in axes if axis.symbol == found.axis)
    begin, count = _begin(index, axes, step, hint), found.count(size)
    return dim_of(layout, _ratio(step * found.per), count, begin, found.start, hint)


def cuts(
    found: Place, size: sympy.Expr, bounds: Sequence[sympy.Expr], at_most: AtMost
) -> tuple[list[tuple[int, sympy.Expr]], str]:
    """The points of the axis, of that size, at which ranges begin, each with the range's number.

    The first begins at 0. `bounds` are those of the ranges, in order. Otherwise the list is empty
    and the text says why.
    """
    count = found.count(size)
    begins: list[tuple[int, sympy.Expr]] = []
    first = 0
    everything = found.start == 0 and sympy.expand(count - bounds[-1]) == 0
    for number, bound in enumerate(bounds[1:-1], 1):
        at = _ratio((bound - found.start) * found.per)
        if not everything and at_most(at, sympy.S.Zero):
            first = number
            continue
        if not everything and at_most(count * found.per, at):
            break
        if not _whole(at):
            return [], f"{bound} is inside a step of {found.axis}, which goes over several loops"
        if not everything and not (at_most(sympy.S.One, at) and at_most(at, count * found.per - 1)):
            return [], f"{bound} is not known to be inside of {found.axis}"
        begins.append((number, at))
    return [(first, sympy.S.Zero), *begins], ""


def factored(nest: LoopNest, axis: sympy.Symbol, inner: sympy.Expr) -> tuple[LoopNest, Axis]:
    """The nest with an axis as two, the second of `inner` points, and that second axis."""
    taken = {a.name for a in nest.axes}
    names = (f"i{k}" for k in range(len(taken) + 2))
    first, second = (
        sympy.Symbol(name, integer=True, nonnegative=True)
        for name in [name for name in names if name not in taken][:2]
    )
    own = nest.axis(axis)
    pair = (Axis(first, _ratio(own.size / inner)), Axis(second, inner))
    index = {axis: inner * first + second}

    def taken_apart(symbols: tuple[sympy.Symbol, ...]) -> tuple[sympy.Symbol, ...]:
        return tuple(s for each in symbols for s in ((first, second) if each == axis else (each,)))

    bodies = tuple(
        replace(body, iterate=taken_apart(body.iterate), block=_replaced(body.block, index))
        for body in nest.bodies
    )
    axes = tuple(part for a in nest.axes for part in (pair if a is own else (a,)))
    return replace(nest, axes=axes, bodies=bodies), pair[1]


def _replaced(block: Block, index: dict[sympy.Symbol, sympy.Expr]) -> Block:
    def arg(value: Arg) -> Arg:
        if isinstance(value, Block):
            return _replaced(value, index)
        if isinstance(value, tuple):
            return tuple(map(arg, value))
        return value.xreplace(index) if isinstance(value, sympy.Expr) else value

    def op(each: Op) -> Op:
        kwargs = tuple((key, arg(value)) for key, value in each.kwargs)
        return Op(each.id, each.name, tuple(map(arg, each.args)), kwargs, each.dtype)

    return Block(tuple(map(op, block.ops)), arg(block.result))


def _step(index: sympy.Expr, axis: sympy.Symbol) -> sympy.Expr | None:
    """How far one step along an axis goes; None where that differs from step to step."""
    step = index.coeff(axis, 1)
    rest = sympy.expand(index - step * axis)
    return None if axis in step.free_symbols | rest.free_symbols else step


def _begin(index: sympy.Expr, axes: Sequence[Axis], step: sympy.Expr, hint: Hint) -> Begin:
    """The least address of what axes with smaller steps go over, and how far they go."""
    begin, span = index, sympy.S.Zero
    for axis in axes:
        own = _step(index, axis.symbol) or sympy.S.Zero
        begin = begin.xreplace({axis.symbol: sympy.S.Zero})
        if 0 < hint(own) < hint(step):
            span += own * (axis.size - 1)
    return sympy.expand(begin), sympy.expand(span)


def elements_along(begin: Begin, unit: sympy.Expr, extent: sympy.Expr) -> sympy.Expr | None:
    """How many elements along the dim what begins there is: whole units; None if not known.

    It may begin outside of a row that it is mostly in, where a mask leaves that out.
    """
    first, span = begin
    if first == 0:
        return sympy.S.Zero
    if isinstance(extent, sympy.Integer) and isinstance(first, sympy.Integer) and first >= extent:
        first = first % extent
    if all(isinstance(each, sympy.Rational) for each in (first, span, unit)):
        return sympy.floor((first + span / 2) / unit) * unit
    return first if _whole(first / unit) else None


def _ratio(expr: sympy.Expr) -> sympy.Expr:
    return sympy.expand(sympy.cancel(expr))


def _whole(expr: sympy.Expr) -> bool:
    expr = _ratio(expr)
    return bool(sympy.denom(sympy.together(expr)) == 1)
