"""The loop IR: what one fused loop nest does, as plain data.

A `LoopNest` has axes and bodies. A body runs once for every point of its axes, one body after
another; fusing them into one loop changes nothing in what they compute. A body is a block of
operations in single-assignment form. Indices are sympy expressions over the axes, the sizes and
the indirect symbols that `indirect_indexing` defines; buffers are flat and addressed in elements.

    nest buf2 (i0: 1024, i1: 1280)
    body op2 for i0, i1:
      %0: f32 = load(arg0_1, [1280*i0 + (i1 + 1) % 1280])
      %1: f32 = mul(%0, 0.5)
      store(buf2, [1280*i0 + i1], %1)

`text.show` prints this and `text.parse` reads it back; `interpret.run` executes it on tensors.
Everything here is frozen, hashable and free of Inductor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Union

import sympy
import torch

Dtype = torch.dtype | None


@dataclass(frozen=True)
class Ref:
    """The value that operation number `id` of the nest gives."""

    id: int


@dataclass(frozen=True)
class Block:
    """Operations in order, and the value the block gives (None for a body's outermost block)."""

    ops: tuple[Op, ...]
    result: Arg = None


# What an operation may be applied to. A sympy expression stands for an index, a str for a buffer.
Arg = Union[  # noqa: UP007 - a recursive alias takes no `|` of strings
    Ref, sympy.Expr, Block, torch.dtype, str, bool, int, float, None, tuple["Arg", ...]
]


@dataclass(frozen=True)
class Op:
    """One operation. `dtype` is that of its value, None where it gives none or it is not known.

    An operation with several values (welford, frexp) is followed by `getitem(%n, k)`.
    """

    id: int
    name: str
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...] = ()
    dtype: Dtype = None


@dataclass(frozen=True)
class Axis:
    """One loop: `symbol` runs over [0, size). `reduce` marks the axes that a reduction consumes."""

    symbol: sympy.Symbol
    size: sympy.Expr
    reduce: bool = False

    @property
    def name(self) -> str:
        return str(self.symbol)


@dataclass(frozen=True)
class Body:
    """A block that runs for every point of `iterate`, reducing over `reduce` (symbols of axes).

    A pointwise body fused into a reduction's loops iterates over the nest's reduction axes too.
    """

    name: str
    iterate: tuple[sympy.Symbol, ...]
    reduce: tuple[sympy.Symbol, ...]
    block: Block


@dataclass(frozen=True)
class Symbol:
    """A size not known when compiling: an integer in [low, high], high None for no bound."""

    symbol: sympy.Symbol
    low: int
    high: int | None


@dataclass(frozen=True)
class LoopNest:
    """One fused nest. `buffers` gives the dtype of every buffer that it touches."""

    name: str
    axes: tuple[Axis, ...]
    bodies: tuple[Body, ...]
    buffers: tuple[tuple[str, torch.dtype], ...] = ()
    symbols: tuple[Symbol, ...] = ()

    def axis(self, symbol: sympy.Symbol) -> Axis:
        return next(axis for axis in self.axes if axis.symbol == symbol)

    def with_blocks(self, change: Callable[[Body], Block]) -> LoopNest:
        """The same nest with `change(body)` as the block of each body."""
        return replace(self, bodies=tuple(replace(b, block=change(b)) for b in self.bodies))


@dataclass(frozen=True)
class Box:
    """A half-open range for every axis of a nest: `ranges[k]` is (start, stop) of `axes[k]`."""

    axes: tuple[sympy.Symbol, ...]
    ranges: tuple[tuple[sympy.Expr, sympy.Expr], ...]

    def __str__(self) -> str:
        parts = (f"{a} in [{lo}, {hi})" for a, (lo, hi) in zip(self.axes, self.ranges, strict=True))
        return ", ".join(parts)

    def range(self, axis: sympy.Symbol) -> tuple[sympy.Expr, sympy.Expr]:
        return self.ranges[self.axes.index(axis)]


@dataclass
class Builder:
    """Collects operations of a block that is being written; ids count through the whole nest."""

    ids: Iterator[int]
    ops: list[Op] = field(default_factory=list)

    def emit(
        self,
        name: str,
        args: tuple[Arg, ...],
        kwargs: tuple[tuple[str, Arg], ...] = (),
        dtype: Dtype = None,
    ) -> Ref:
        op = Op(next(self.ids), name, tuple(map(_one_nan, args)), kwargs, dtype)
        self.ops.append(op)
        return Ref(op.id)

    def inner(self) -> Builder:
        """A builder for a block nested in this one."""
        return Builder(self.ids)

    def block(self, result: Arg = None) -> Block:
        return Block(tuple(self.ops), result)


def _one_nan(arg: Arg) -> Arg:
    """NaN differs from every other NaN, so nests compare equal only where they hold one object."""
    return math.nan if isinstance(arg, float) and math.isnan(arg) else arg


def axis_symbol(kind: str, number: int) -> sympy.Symbol:
    """The symbol of an axis: kind "i" for iteration, "r" for reduction."""
    return sympy.Symbol(f"{kind}{number}", integer=True, nonnegative=True)


def indirect_symbol(number: int) -> sympy.Symbol:
    """The symbol that `indirect_indexing` number `number` of a nest defines."""
    return sympy.Symbol(f"t{number}", integer=True)


def size_symbol(name: str) -> sympy.Symbol:
    """The symbol of a size; positive, as Inductor's size symbols are."""
    return sympy.Symbol(name, integer=True, positive=True)


def walk(block: Block) -> Iterator[Op]:
    """Every operation of a block and of the blocks nested in it, in order."""
    for op in block.ops:
        yield op
        for arg in operands(op):
            if isinstance(arg, Block):
                yield from walk(arg)


def operands(op: Op) -> Iterator[Arg]:
    """The arguments of one operation with tuples flattened; nested blocks are given whole."""

    def flat(arg: Arg) -> Iterator[Arg]:
        if isinstance(arg, tuple):
            for part in arg:
                yield from flat(part)
        else:
            yield arg

    for arg in op.args:
        yield from flat(arg)
    for _, arg in op.kwargs:
        yield from flat(arg)
