"""Cut a nest: boxes from cuts, and the nest limited to one box.

Boxes that differ in their reduction ranges only are the parts of one section: they run in order and
reduce into the same values, which are there when the last one has run. So the parts are not nests
to run alone; `interpret.run_parts` runs them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count, groupby, pairwise, product

import sympy
import torch
from torch.utils._sympy.functions import Mod, ModularIndexing

from .bounds import Bounds
from .fold import fold
from .ir import Arg, Axis, Block, Body, Box, LoopNest, Op, Ref, operands, walk

Cuts = Mapping[sympy.Symbol, Sequence[sympy.Expr]]


def boxes(nest: LoopNest, cuts: Cuts) -> tuple[Box, ...]:
    """Every box that the cuts make, in the order of a loop over the axes' ranges.

    `cuts` gives for an axis the positions inside it, in order; axes not named stay whole.
    """
    ranges = [
        tuple(pairwise((sympy.Integer(0), *map(sympy.sympify, cuts.get(a.symbol, ())), a.size)))
        for a in nest.axes
    ]
    symbols = tuple(a.symbol for a in nest.axes)
    return tuple(Box(symbols, combination) for combination in product(*ranges))


def sections(
    nest: LoopNest, of: Sequence[Box], inner: int | None = None
) -> tuple[tuple[Box, ...], ...]:
    """The boxes, as `boxes` orders them, grouped by the ranges of the outer axes that they share.

    The outer axes are those before number `inner`; if that is not given, the iteration axes.
    """
    outer = sum(not axis.reduce for axis in nest.axes) if inner is None else inner
    groups = groupby(of, lambda box: box.ranges[:outer])
    return tuple(tuple(group) for _, group in groups)


def restrict(nest: LoopNest, box: Box) -> LoopNest:
    """The nest over one box: its axes count from 0, and what the box decides is folded."""
    return fold(move(nest, box))


def movable(nest: LoopNest, box: Box) -> bool:
    """Whether no wrap of a negative number is left in the box on an axis that would be moved."""
    bounds = Bounds.of(nest.axes, nest.symbols)
    moved = set()
    for axis, (start, stop) in zip(box.axes, box.ranges, strict=True):
        bounds = bounds.with_axis(axis, start, stop - 1)
        if start != 0:
            moved.add(axis)
    wraps = {
        wrap
        for body in fold(nest, within=bounds).bodies
        for op in walk(body.block)
        for arg in operands(op)
        if isinstance(arg, sympy.Expr)
        for wrap in arg.atoms(ModularIndexing, Mod)
    }
    return all(
        bounds.negative(wrap.args[0]) is False for wrap in wraps if moved & wrap.free_symbols
    )


def move(nest: LoopNest, box: Box) -> LoopNest:
    """The nest over one box, its axes counted from 0, with nothing folded.

    A wrap (ModularIndexing) on a moved axis must have no negative left side: see `seams.find`.
    """
    offsets = {s: s + lo for s, (lo, _) in zip(box.axes, box.ranges, strict=True) if lo != 0}
    axes = tuple(
        replace(a, size=sympy.expand(stop - start))
        for a, (start, stop) in zip(nest.axes, box.ranges, strict=True)
    )
    whole = _with_positions(nest, box)
    return replace(whole, axes=axes).with_blocks(lambda body: _moved(body, offsets))


def _with_positions(nest: LoopNest, box: Box) -> LoopNest:
    """The nest with the position in the whole reduction written beside the value of an argmax.

    Without one, argmax and argmin count the elements of the loops they are in: of the part.
    """
    ranges = zip(nest.axes, box.ranges, strict=True)
    if all(a.reduce is False or (lo == 0 and hi == a.size) for a, (lo, hi) in ranges):
        return nest
    ids = count(1 + max((op.id for b in nest.bodies for op in walk(b.block)), default=0))

    def change(body: Body) -> Block:
        position = _position([nest.axis(s) for s in body.reduce])
        ops: list[Op] = []
        for op in body.block.ops:
            if op.name == "reduction" and op.args[2] in ("argmax", "argmin"):
                value = op.args[3]
                if not isinstance(value, tuple):
                    ops.append(
                        Op(next(ids), "index_expr", (position, torch.int64), (), torch.int64)
                    )
                    op = replace(op, args=(*op.args[:3], (value, Ref(ops[-1].id))))
            ops.append(op)
        return replace(body.block, ops=tuple(ops))

    return nest.with_blocks(change)


def _position(axes: Sequence[Axis]) -> sympy.Expr:
    """Which element of a reduction over these axes the loops are at."""
    position: sympy.Expr = sympy.Integer(0)
    for axis in axes:
        position = position * axis.size + axis.symbol
    return position


def _moved(body: Body, offsets: Mapping[sympy.Symbol, sympy.Expr]) -> Block:
    def shift(arg: Arg) -> Arg:
        if isinstance(arg, Block):
            return Block(tuple(shift_op(op) for op in arg.ops), shift(arg.result))
        if isinstance(arg, tuple):
            return tuple(shift(a) for a in arg)
        if isinstance(arg, sympy.Expr):
            return arg.xreplace(offsets)
        return arg

    def shift_op(op: Op) -> Op:
        kwargs = tuple((k, shift(v)) for k, v in op.kwargs)
        return replace(op, args=tuple(shift(a) for a in op.args), kwargs=kwargs)

    block = shift(body.block)
    assert isinstance(block, Block)
    return block
