"""Cut a nest: boxes from cuts, and the nest limited to one box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product

import sympy

from .fold import fold
from .ir import Arg, Block, Body, Box, LoopNest, Op

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


def restrict(nest: LoopNest, box: Box) -> LoopNest:
    """The nest over one box: its axes count from 0, and what the box decides is folded."""
    return fold(move(nest, box))


def move(nest: LoopNest, box: Box) -> LoopNest:
    """The nest over one box, its axes counted from 0, with nothing folded.

    A wrap (ModularIndexing) on a moved axis must have no negative left side: see `seams.find`.
    """
    offsets = {s: s + lo for s, (lo, _) in zip(box.axes, box.ranges, strict=True) if lo != 0}
    axes = tuple(
        replace(a, size=sympy.expand(stop - start))
        for a, (start, stop) in zip(nest.axes, box.ranges, strict=True)
    )
    return replace(nest, axes=axes).with_blocks(lambda body: _moved(body, offsets))


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
