"""What random nests are made of, around their operations; `nests` draws the operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from hypothesis import strategies as st
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, ModularIndexing, PythonMod, Where

from torch_piecewise.loops.evaluate import evaluate
from torch_piecewise.loops.ir import Axis, LoopNest, Symbol, axis_symbol, size_symbol


@dataclass(frozen=True)
class Buffer:
    """A flat buffer and what fills it: `low` and `high` bound integers, data if they are None."""

    name: str
    dtype: torch.dtype
    numel: int
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True)
class Case:
    """A nest, and what it runs on. `exact` is False where the order of additions matters."""

    nest: LoopNest
    buffers: tuple[Buffer, ...]
    symbols: dict[str, int]
    cuts: dict[sympy.Symbol, tuple[sympy.Expr, ...]]
    seed: int
    exact: bool = True

    def tensors(self) -> dict[str, torch.Tensor]:
        """Fresh tensors, the same ones every time."""
        random = torch.Generator().manual_seed(self.seed)
        return {b.name: _fill(b, random) for b in self.buffers}


def _fill(buffer: Buffer, random: torch.Generator) -> torch.Tensor:
    low = -9 if buffer.low is None else buffer.low
    high = 10 if buffer.high is None else buffer.high
    values = torch.randint(low, high, (buffer.numel,), generator=random)
    if not buffer.dtype.is_floating_point:
        return values.to(buffer.dtype)
    data = values.to(buffer.dtype) / 4
    special = torch.rand(buffer.numel, generator=random)
    data[special < 0.04] = math.nan  # a fold may not take x * 0 for 0
    data[special > 0.97] = math.inf
    return data


@dataclass
class Frame:
    """Draws what is around the operations of a nest: axes, sizes, buffers, cuts, indices."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    axes: list[Axis] = field(default_factory=list)
    symbols: list[Symbol] = field(default_factory=list)
    sizes: dict[sympy.Basic, Any] = field(default_factory=dict)  # the size symbols' values
    buffers: list[Buffer] = field(default_factory=list)
    own: tuple[sympy.Symbol, ...] = ()  # the axes of the body that is drawn now

    # ---- draws

    def one(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def often(self) -> bool:
        return bool(self.draw(st.booleans()))

    def rarely(self) -> bool:
        return self.number(0, 7) == 7

    # ---- axes, sizes, buffers

    def frame(self) -> None:
        if self.number(0, 2) == 2:
            low = self.number(2, 4)
            high = self.one(None, low + self.number(0, 4))
            size = size_symbol("s0")
            self.symbols.append(Symbol(size, low, high))
            self.sizes[size] = self.number(low, min(6, low + 4 if high is None else high))
        for place in range(self.number(1, 3)):
            self.axes.append(Axis(axis_symbol("i", place), self.size()))
        if self.often():
            for place in range(self.number(1, 2)):
                size = sympy.Integer(self.number(1, 4))
                self.axes.append(Axis(axis_symbol("r", place), size, True))

    def size(self) -> sympy.Expr:
        if self.symbols and self.often():
            return self.symbols[0].symbol + self.one(0, 2)
        size = self.number(1, 4 if self.axes else 9)
        return sympy.Integer(0 if self.rarely() and self.rarely() else size)

    def cuts(self) -> dict[sympy.Symbol, tuple[sympy.Expr, ...]]:
        """Random positions in every axis, in an order that holds for all sizes."""
        cuts = {}
        for axis in self.axes:
            if self.rarely():
                continue
            places = [1, axis.size - 1]  # sizes that are not known are at least 2
            if axis.size.is_Integer:
                places = list(range(1, int(axis.size)))
            kept = [sympy.sympify(p) for p in places if self.often()]
            if kept:
                cuts[axis.symbol] = tuple(kept)
        return cuts

    def buffer(self, dtype: torch.dtype, numel: int, *bounds: int) -> str:
        name = f"buf{len(self.buffers)}"
        self.buffers.append(Buffer(name, dtype, numel, *bounds))
        return name

    # ---- the range of an index over the whole nest, with the sizes as drawn

    def span(self, expr: sympy.Expr) -> tuple[int, int]:
        env = dict(self.sizes)
        for place, axis in enumerate(self.axes):
            shape = [1] * len(self.axes)
            shape[place] = -1
            size = int(evaluate(axis.size, self.sizes))
            env[axis.symbol] = torch.arange(size).reshape(shape)
        values = evaluate(expr, env)
        return (int(values.min()), int(values.max())) if values.numel() else (0, 0)

    def known(self, value: int) -> sympy.Expr:
        """A number, written with a size symbol where one fits: `s0 - 1` for 3 when s0 is 4."""
        for size, now in self.sizes.items():
            if abs(value - now) <= 2 and self.often():
                return size + (value - now)
        return sympy.Integer(value)

    # ---- indices

    def index(self, natural: bool = False) -> sympy.Expr:
        """An index expression over the body's axes; `natural` ones are nowhere negative."""
        a, b = self.one(*self.own), self.one(*self.own)
        size = {axis.symbol: axis.size for axis in self.axes}
        kind = self.one(_plain, _plain, _shifted, _wrapped, _divided, _clamped, _joined)
        expr = kind(self, a, b, size[a], size[b])
        lowest = self.span(expr)[0]
        return expr - lowest if natural and lowest < 0 else expr


def _plain(f: Frame, a: sympy.Symbol, *_: Any) -> sympy.Expr:
    return a


def _shifted(f: Frame, a: sympy.Symbol, b: sympy.Symbol, n: sympy.Expr, m: sympy.Expr) -> Any:
    c = f.number(1, 4)
    return f.one(a + c, a - c, c - a, n - 1 - a, 2 * a + 1, 2 * a - c, a + b, a - b, 3 * b - 2 * a)


def _wrapped(f: Frame, a: sympy.Symbol, b: sympy.Symbol, n: sympy.Expr, m: sympy.Expr) -> Any:
    c, d = f.number(0, 4), f.number(2, 5)
    return f.one(
        ModularIndexing(a + c, 1, n),  # torch.roll
        ModularIndexing(a + n - 1, 1, n),
        ModularIndexing(a + c, 1, d),
        ModularIndexing(a, 2, d),
        ModularIndexing(a * m + b, 1, d),
        ModularIndexing(a, 1, d) + d * b,
        Mod(a + c, d),
        PythonMod(a - c, d),
    )


def _divided(f: Frame, a: sympy.Symbol, b: sympy.Symbol, n: sympy.Expr, m: sympy.Expr) -> Any:
    c, d = f.number(0, 4), f.number(2, 4)
    return f.one(FloorDiv(a + c, d), FloorDiv(a - c, d), FloorDiv(a * m + b, d), FloorDiv(a, d) - c)


def _clamped(f: Frame, a: sympy.Symbol, b: sympy.Symbol, n: sympy.Expr, m: sympy.Expr) -> Any:
    c = f.number(1, 4)
    return f.one(
        Min(a, c),
        Max(a, c),
        Min(a, n - 2),
        Min(Max(a - c, 0), n - 1),  # replication padding
        sympy.Abs(a - c),
        sympy.Abs(a - b),
        n - 1 - sympy.Abs(n - 1 - sympy.Abs(a - c)),  # reflection padding
        Min(a, b),
        Where(sympy.Lt(a, c), a, b),
        Where(sympy.Ge(a, n - 1), c, a),
    )


def _joined(f: Frame, a: sympy.Symbol, b: sympy.Symbol, n: sympy.Expr, m: sympy.Expr) -> Any:
    if a == b:
        return a
    return m * a + _wrapped(f, b, a, m, n) if f.often() else m * a + b
