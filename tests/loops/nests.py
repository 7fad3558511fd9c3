"""Hypothesis strategies for valid loop nests with the tensors to run them on.

A nest is valid when no active point accesses a buffer out of bounds. An index that may be out of
bounds is loaded under a mask that says where it is not, as padding is; buffers are made large
enough for the others. Values are exact in their dtypes, whatever the order of vectorisation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import sympy
import torch
from hypothesis import strategies as st

from torch_piecewise.loops.evaluate import evaluate
from torch_piecewise.loops.ir import Arg, Body, Builder, LoopNest, Ref, indirect_symbol
from torch_piecewise.loops.ops import result_dtype

from .frames import Case, Frame

F64, F32, I64, I32, BOOL = torch.float64, torch.float32, torch.int64, torch.int32, torch.bool
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


@st.composite
def cases(draw: Callable[[st.SearchStrategy[Any]], Any], faulty: bool = False) -> Case:
    """A random valid nest with buffers, sizes and random cuts; `faulty`: its checks may fail."""
    return Maker(draw, faulty=faulty).case()


@dataclass
class Maker(Frame):
    """Draws one nest. Methods that emit operations return the value they gave."""

    ids: Iterator[int] = field(default_factory=count)
    indirects: Iterator[int] = field(default_factory=count)
    dtypes: dict[int, torch.dtype | None] = field(default_factory=dict)
    # What was stored so far: buffer, dtype, index, and the axes that the index runs over.
    outputs: list[tuple[str, torch.dtype, sympy.Expr, frozenset[sympy.Symbol]]] = field(
        default_factory=list
    )
    faulty: bool = False
    exact: bool = True
    budget: int = 0  # how many more values this body may draw freely

    def case(self) -> Case:
        self.frame()
        bodies = [self.one_body(k) for k in range(self.number(1, 3))]
        nest = LoopNest(
            "nest0",
            tuple(self.axes),
            tuple(bodies),
            tuple((b.name, b.dtype) for b in self.buffers),
            tuple(self.symbols),
        )
        symbols = {str(s): int(v) for s, v in self.sizes.items()}
        return Case(nest, tuple(self.buffers), symbols, self.cuts(), self.number(0, 99), self.exact)

    # ---- bodies

    def one_body(self, place: int) -> Body:
        iterate = [a.symbol for a in self.axes if not a.reduce]
        reduce = [a.symbol for a in self.axes if a.reduce]
        if reduce and self.often():  # pointwise over the reduction axis too
            iterate, reduce = iterate + reduce, []
        elif self.often():
            reduce = []
        builder = Builder(self.ids)
        self.budget = self.number(4, 20)
        self.own = (*iterate, *reduce)
        if reduce:
            self.reduction(builder, tuple(iterate))
        else:
            self.stores(builder, tuple(iterate))
        return Body(f"op{place}", tuple(iterate), tuple(reduce), builder.block())

    def stores(self, b: Builder, iterate: tuple[sympy.Symbol, ...]) -> None:
        for _ in range(self.number(1, 2)):
            dtype = self.one(F64, F64, I64)
            value = self.value(b, dtype)
            if self.rarely():
                self.exact = False
                index = self.index(natural=True)
                name = self.buffer(dtype, self.span(index)[1] + 1)
                self.emit(b, "store", name, index, value, mode="atomic_add")
                continue
            name, index = self.output(dtype, iterate)
            if self.rarely():
                inner = b.inner()
                self.emit(inner, "store", name, index, value)
                mask = self.condition(b)
                self.emit(b, "masked", mask, inner.block(value), 0)
            else:
                self.emit(b, "store", name, index, value)

    def output(
        self, dtype: torch.dtype, iterate: tuple[sympy.Symbol, ...]
    ) -> tuple[str, sympy.Expr]:
        """A new buffer that holds one element for every iteration point, in some order of axes."""
        order = self.draw(st.permutations(iterate))
        index, numel, symbolic = sympy.Integer(0), 1, sympy.Integer(1)
        for symbol in order:
            size = next(a.size for a in self.axes if a.symbol == symbol)
            index += symbolic * symbol
            symbolic *= size
            numel *= int(evaluate(size, self.sizes))
        name = self.buffer(dtype, numel)
        self.outputs.append((name, dtype, index, frozenset(iterate)))
        return name, index

    def reduction(self, b: Builder, iterate: tuple[sympy.Symbol, ...]) -> None:
        if sum(a.reduce for a in self.axes) > 1:
            self.exact = False  # parts meet the elements in another order
        kind = self.one("sum", "prod", "max", "min", "any", "argmax", "argmin", "welford_reduce")
        source = BOOL if kind == "any" else F64
        dtype = {"any": BOOL, "argmax": I64, "argmin": I64}.get(kind, F64)
        value: Arg = self.value(b, source)
        if kind in ("argmax", "argmin") and self.rarely():
            value = (value, self.value(b, I64))
        result = self.emit(b, "reduction", dtype, source, kind, value)
        if kind == "welford_reduce":
            result = self.emit(b, "getitem", result, self.number(0, 2))
        if dtype == F64 and self.often():
            result = self.emit(b, "mul", result, self.one(0.5, 2))
        name, index = self.output(dtype, iterate)
        self.emit(b, "store_reduction", name, index, result)

    # ---- values

    def emit(self, b: Builder, name: str, *args: Arg, **kwargs: Arg) -> Ref:
        declared = {x.name: x.dtype for x in self.buffers}
        dtype = result_dtype(name, args, kwargs, lambda r: self.dtypes[r.id], declared.__getitem__)
        ref = b.emit(name, args, tuple(kwargs.items()), dtype)
        self.dtypes[ref.id] = dtype
        return ref

    def value(self, b: Builder, dtype: torch.dtype) -> Ref:
        self.budget -= 1
        if dtype == BOOL:
            return self.condition(b)
        leaves = [self.constant, self.of_index, self.load, self.load]
        inner = [self.binary, self.binary, self.unary, self.where, self.masked, self.cast]
        if dtype in (F64, I64):
            inner += [self.indirect, self.again, self.bucket]
        choice = self.one(*(leaves + inner if self.budget > 0 else leaves))
        return choice(b, dtype)

    def constant(self, b: Builder, dtype: torch.dtype) -> Ref:
        floats = (0.5, -0.0, 3.0, math.inf, -math.inf, math.nan)
        value = self.one(*floats) if dtype.is_floating_point else self.number(-3, 3)
        return self.emit(b, "constant", value, dtype)

    def of_index(self, b: Builder, dtype: torch.dtype) -> Ref:
        return self.emit(b, self.one("index_expr", "value_expr"), self.index(), dtype)

    def binary(self, b: Builder, dtype: torch.dtype) -> Ref:
        x = self.value(b, dtype)
        if not dtype.is_floating_point and self.rarely():
            return self.emit(b, self.one("floordiv", "remainder", "mod"), x, self.number(1, 4))
        y = self.one(2, 1) if self.rarely() else self.value(b, dtype)
        names = ["add", "sub", "maximum", "minimum"]
        return self.emit(b, self.one(*names, *(["mul"] if dtype == F64 else [])), x, y)

    def unary(self, b: Builder, dtype: torch.dtype) -> Ref:
        value = self.value(b, dtype)
        if dtype == F64 and self.rarely():
            both = self.emit(b, "frexp", value)
            return self.emit(b, "to_dtype", self.emit(b, "getitem", both, self.number(0, 1)), F64)
        return self.emit(b, self.one("neg", "abs", "relu", "sign", "identity"), value)

    def where(self, b: Builder, dtype: torch.dtype) -> Ref:
        condition = self.condition(b)
        return self.emit(b, "where", condition, self.value(b, dtype), self.value(b, dtype))

    def cast(self, b: Builder, dtype: torch.dtype) -> Ref:
        """A conversion, perhaps by way of a dtype that cannot hold all of the values."""
        source = self.one(I64, I32, BOOL)
        value = self.of_index(b, I64) if self.often() else self.value(b, source)
        if self.often():
            value = self.emit(b, "to_dtype", value, self.one(torch.uint8, torch.int8, BOOL, F32))
        if self.often():
            return self.emit(b, "to_dtype", value, dtype, src_dtype=None)
        return self.emit(b, "to_dtype", value, dtype, None, use_compute_types=True)

    def bucket(self, b: Builder, dtype: torch.dtype) -> Ref:
        many = self.number(0, 4)
        name = self.buffer(F64, many + 1)
        boundaries = (name, sympy.Integer(many), sympy.Integer(many + 1), sympy.Integer(1))
        start = self.emit(b, "constant", self.number(0, 1), I64)
        value = self.value(b, F64)
        place = self.emit(b, "bucketize", value, boundaries, start, I64, self.often())
        return self.emit(b, "to_dtype", place, dtype)

    def again(self, b: Builder, dtype: torch.dtype) -> Ref:
        """Load what an earlier store of this nest put at the same point."""
        fits = [o for o in self.outputs if o[1] == dtype and o[3] <= set(self.own)]
        if not fits:
            return self.load(b, dtype)
        name, _, index, _ = self.one(*fits)
        return self.emit(b, "load", name, index)

    def load(self, b: Builder, dtype: torch.dtype) -> Ref:
        index = self.index()
        low, high = self.span(index)
        if low < 0 or self.rarely():
            return self.padded(b, dtype, index)
        name = self.buffer(dtype, high + 1)
        self.checks(b, index, high + 1)
        return self.emit(b, "load", name, index)

    def checks(self, b: Builder, index: sympy.Expr, size: int) -> None:
        """Perhaps a check of an index that is in [0, size), at the active points at least."""
        if self.number(0, 4) == 4:
            slack = self.number(-2, 2) if self.faulty else self.number(0, 1)
            both = True, self.often() if slack < 0 else True
            self.emit(b, "check_bounds", index, self.known(size + slack), *both)
        if self.rarely():
            value = self.emit(b, "index_expr", index, I64)
            limit = self.emit(b, "constant", size - self.number(0, 2) * self.faulty, I64)
            self.emit(b, "device_assert_async", self.emit(b, "lt", value, limit), "'in' bounds")

    def masked(self, b: Builder, dtype: torch.dtype) -> Ref:
        """A mask over anything; what is inside may be masked again."""
        mask = self.condition(b)
        inner = b.inner()
        result = self.value(inner, dtype)
        other = self.one(0, 1) if not dtype.is_floating_point else self.one(0.0, -1.5, math.nan)
        return self.emit(b, "masked", mask, inner.block(result), other)

    def padded(self, b: Builder, dtype: torch.dtype, index: sympy.Expr) -> Ref:
        """A load whose index is in bounds only where the mask is true."""
        low, high = self.span(index)
        numel = max(1, high + 1 - self.number(0, 3))
        name = self.buffer(dtype, numel)
        upper = numel <= high
        inner = b.inner()
        if upper and low < 0 and self.often():  # one mask inside of the other
            innermost = inner.inner()
            value = self.access(innermost, dtype, name, index, numel)
            value = self.masked_by(inner, self.bound(inner, index, upper=numel), innermost, value)
            return self.masked_by(b, self.bound(b, index), inner, value)
        value = self.access(inner, dtype, name, index, numel)
        mask = self.bound(b, index, upper=numel if upper else None)
        if upper and low < 0:
            mask = self.emit(b, "logical_and", self.bound(b, index), mask)
        elif low < 0:
            mask = self.bound(b, index)
        return self.masked_by(b, mask, inner, value)

    def masked_by(self, b: Builder, mask: Ref, inner: Builder, value: Ref) -> Ref:
        return self.emit(b, "masked", mask, inner.block(value), self.one(0, 7))

    def access(
        self, b: Builder, dtype: torch.dtype, name: str, index: sympy.Expr, numel: int
    ) -> Ref:
        """A load that is in bounds here; perhaps with a check, or through an indirect index."""
        self.checks(b, index, numel)
        if self.rarely():
            value = self.emit(b, "index_expr", index, I64)
            index = self.index_of(b, value, self.known(numel))
        return self.emit(b, "load", name, index)

    def bound(self, b: Builder, index: sympy.Expr, upper: int | None = None) -> Ref:
        """index < upper, or 0 <= index, in one of the ways to write it."""
        dtype = self.one(I64, I32, F32)
        value = self.emit(b, "index_expr", index, dtype)
        if upper is None:
            name, limit = self.one(("ge", 0), ("gt", -1))
            return self.emit(b, name, value, self.emit(b, "constant", limit, dtype))
        name, offset = self.one(("lt", 0), ("le", -1))
        limit = self.emit(b, "index_expr", self.known(upper + offset), dtype)
        return self.emit(b, name, value, limit)

    def indirect(self, b: Builder, dtype: torch.dtype) -> Ref:
        """A load at an index that was loaded, possibly negative, of a row of its own."""
        numel = self.number(1, 5)
        at = self.index(natural=True)
        where = self.buffer(I64, self.span(at)[1] + 1, -numel, numel)
        symbol = self.index_of(b, self.emit(b, "load", where, at), self.known(numel), True)
        row = self.index(natural=True) if self.often() else sympy.Integer(0)
        name = self.buffer(dtype, numel * (self.span(row)[1] + 1))
        value = self.emit(b, "load", name, symbol + row * numel)
        if self.number(0, 2) == 2:  # what the check says of the index may decide a condition
            inside = self.emit(b, "index_expr", symbol, I64)
            limit = self.emit(b, "constant", self.number(0, numel), I64)
            low = self.emit(b, self.one(*COMPARISONS), inside, limit)
            value = self.emit(b, "where", low, value, self.constant(b, dtype))
        return value

    def index_of(
        self, b: Builder, value: Ref, size: sympy.Expr, negative: bool = False
    ) -> sympy.Symbol:
        symbol = indirect_symbol(next(self.indirects))
        wrap = negative or self.often()
        if self.faulty and self.often():
            size = size - 1
        self.emit(b, "indirect_indexing", symbol, value, size, self.often(), wrap)
        return symbol

    # ---- conditions

    def condition(self, b: Builder) -> Ref:
        self.budget -= 1
        leaves = [self.compare, self.compare, self.compare, self.compare_indices]
        leaves += [self.compare_narrow]
        inner = [self.junction, self.junction, self.negation, self.compare_data, self.certain]
        return self.one(*(leaves + inner if self.budget > 0 else leaves))(b)

    def compare(self, b: Builder) -> Ref:
        """An index against a bound, near the ends of what it can be too."""
        dtype, index = self.one(I64, I64, I32, F32), self.index()
        low, high = self.span(index)
        limit = self.number(low - 1, high + 1)
        value = self.emit(b, "index_expr", index, dtype)
        name = self.one(*COMPARISONS)
        if self.rarely():
            return self.emit(b, name, value, limit)
        if dtype == F32 and self.often():
            odd = self.one(limit + 0.5, limit - 0.25, math.inf, -math.inf, math.nan)
            other = self.emit(b, "constant", odd, dtype)
        elif self.often():
            other = self.emit(b, "constant", limit, dtype)
        else:
            other = self.emit(b, "index_expr", self.known(limit), dtype)
        return self.emit(b, name, *((other, value) if self.rarely() else (value, other)))

    def compare_narrow(self, b: Builder) -> Ref:
        """A comparison in a dtype that wraps what does not fit: -1 is 255."""
        narrow = self.one(torch.uint8, torch.int8, BOOL)
        index = self.index() * self.one(1, 1, 40)
        if self.often():
            value = self.emit(b, "index_expr", index, narrow)
        else:
            value = self.emit(b, "index_expr", index, self.one(I64, F64))
            value = self.emit(b, "to_dtype", value, narrow)
        limit = self.one(True, False) if narrow == BOOL else self.number(0, 9)
        return self.emit(b, self.one(*COMPARISONS), value, self.emit(b, "constant", limit, narrow))

    def compare_indices(self, b: Builder) -> Ref:
        x, y = (self.emit(b, "index_expr", self.index(), self.one(I64, I32)) for _ in range(2))
        return self.emit(b, self.one(*COMPARISONS), x, y)

    def compare_data(self, b: Builder) -> Ref:
        dtype = self.one(F64, I64)
        return self.emit(b, self.one(*COMPARISONS), self.value(b, dtype), self.value(b, dtype))

    def junction(self, b: Builder) -> Ref:
        name = self.one("logical_and", "logical_or", "and_", "or_", "bitwise_and", "bitwise_or",
                        "logical_xor", "xor", "bitwise_xor")  # fmt: skip
        return self.emit(b, name, self.condition(b), self.condition(b))

    def negation(self, b: Builder) -> Ref:
        return self.emit(b, self.one("logical_not", "bitwise_not"), self.condition(b))

    def certain(self, b: Builder) -> Ref:
        return self.emit(b, "constant", self.often(), BOOL)
