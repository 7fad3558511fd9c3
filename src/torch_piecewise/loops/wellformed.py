"""The check behind `ops.check`: does a nest follow the specification of its operations?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import sympy
import torch

from .ir import Arg, Block, Body, Dtype, LoopNest, Op, Ref
from .ops import (
    OPS,
    REDUCTIONS,
    STORE_MODES,
    MalformedNest,
    Param,
    bind,
    result_dtype,
    unsupported,
)

VALUELESS = (
    "store",
    "store_reduction",
    "check_bounds",
    "indirect_indexing",  # its symbol is what it gives
)


@dataclass(frozen=True)
class _Visible:
    """What an operation may use: the operations before it, and the symbols of its indices."""

    ops: dict[int, Op]
    symbols: set[sympy.Basic]
    masked: bool = False

    def nested(self) -> _Visible:
        return _Visible(dict(self.ops), set(self.symbols), masked=True)


class Checker:
    def __init__(self, nest: LoopNest) -> None:
        self.nest = nest
        self.buffers = dict(nest.buffers)
        self.sizes: set[sympy.Basic] = {s.symbol for s in nest.symbols}
        self.dtypes: dict[int, Dtype] = {}
        self.place = f"nest {nest.name}"

    def fail(self, text: str) -> NoReturn:
        raise MalformedNest(f"{self.place}: {text}")

    def require(self, condition: object, text: str) -> None:
        if not condition:
            self.fail(text)

    def run(self) -> None:
        symbols = [axis.symbol for axis in self.nest.axes]
        self.require(len(set(symbols)) == len(symbols), "two axes have the same symbol")
        self.require(len(self.buffers) == len(self.nest.buffers), "a buffer is declared twice")
        for axis in self.nest.axes:
            self.expression(axis.size, self.sizes, f"the size of axis {axis.name}")
        for body in self.nest.bodies:
            self.place = f"nest {self.nest.name}, body {body.name}"
            self.body(body)

    def body(self, body: Body) -> None:
        axes = {axis.symbol: axis for axis in self.nest.axes}
        own = (*body.iterate, *body.reduce)
        for symbol in own:
            self.require(symbol in axes, f"the nest has no axis {symbol}")
        self.require(len(set(own)) == len(own), "an axis is listed twice")
        for symbol in body.reduce:
            self.require(axes[symbol].reduce, f"{symbol} is no reduction axis")
        self.require(body.block.result is None, "a body's outermost block gives no value")
        self.block(body, body.block, _Visible({}, self.sizes.union(own)))

    def block(self, body: Body, block: Block, visible: _Visible) -> None:
        place = self.place
        for op in block.ops:
            self.place = f"{place}, op %{op.id} = {op.name}"
            self.require(op.id not in self.dtypes, f"id {op.id} is used twice")
            self.op(body, op, visible)
            self.dtypes[op.id] = op.dtype
            visible.ops[op.id] = op
        self.place = place

    def op(self, body: Body, op: Op, visible: _Visible) -> None:
        if reason := unsupported(op.name):
            self.fail(f"cannot be expressed: {reason}")
        try:
            bound = bind(op)
        except TypeError as error:
            self.fail(str(error))
        for param in OPS[op.name].params:
            value = bound[param.name]
            if not (param.optional and value is param.default):
                self.argument(body, param, value, visible)
        self.particular(body, op, bound, visible)
        given = result_dtype(
            op.name, op.args, op.kwargs, lambda ref: self.dtypes[ref.id], self.buffers.__getitem__
        )
        if op.dtype is not None and given is not None:
            self.require(op.dtype == given, f"gives {given}, but {op.dtype} is written")

    def argument(self, body: Body, param: Param, value: Arg, visible: _Visible) -> None:
        what = f"argument {param.name!r}"
        if param.kind == "value":
            self.value(value, visible, what)
        elif param.kind == "values":
            for part in value if isinstance(value, tuple) else (value,):
                self.value(part, visible, what, several=True)
        elif param.kind == "expr":
            self.expression(value, visible.symbols, what)
        elif param.kind == "buffer":
            self.require(value in self.buffers, f"{what}: buffer {value!r} is not declared")
        elif param.kind == "dtype":
            self.require(isinstance(value, torch.dtype), f"{what} must be a dtype, not {value!r}")
        elif param.kind == "symbol":
            self.require(isinstance(value, sympy.Symbol), f"{what} must be a sympy symbol")
            self.require(value not in visible.symbols, f"{what} has a meaning already")
        elif param.kind == "block":
            self.nested(body, value, visible)

    def nested(self, body: Body, block: Arg, visible: _Visible) -> None:
        if not isinstance(block, Block):
            self.fail("the body of a masked operation must be a block")
        inner = visible.nested()
        self.block(body, block, inner)
        self.value(block.result, inner, "the block's result")

    def value(self, value: Arg, visible: _Visible, what: str, several: bool = False) -> None:
        if isinstance(value, Ref):
            self.require(value.id in visible.ops, f"{what}: %{value.id} is not defined here")
            many = values_of(visible.ops[value.id])
            self.require(many > 0, f"{what}: %{value.id} gives no value")
            self.require(several or many == 1, f"{what}: %{value.id} gives several, use getitem")
        else:
            number = isinstance(value, int | float)
            self.require(number, f"{what} must be a value or a number, not {value!r}")

    def expression(self, value: Arg, symbols: set[sympy.Basic], what: str) -> None:
        if not isinstance(value, sympy.Basic):
            self.require(isinstance(value, int), f"{what} must be an expression, not {value!r}")
            return
        unknown = value.free_symbols - symbols
        if unknown:  # printing expressions takes most of a check's time, so only then
            names = ", ".join(sorted(map(str, unknown)))
            self.fail(f"{what}: {value} uses {names}, not defined here")

    def particular(self, body: Body, op: Op, bound: dict[str, Arg], visible: _Visible) -> None:
        """The rules that only one operation has."""
        if op.name == "indirect_indexing":
            symbol = bound["symbol"]
            assert isinstance(symbol, sympy.Symbol)
            visible.symbols.add(symbol)
        elif op.name == "store":
            known = bound["mode"] in STORE_MODES
            self.require(known, f"store mode {bound['mode']!r} is not supported")
        elif op.name == "reduction":
            kind = bound["reduction_type"]
            self.require(kind in REDUCTIONS, f"reduction {kind!r} is not supported")
            self.require(not visible.masked, "a reduction cannot be in a masked block")
        elif op.name == "store_reduction":
            index = sympy.sympify(bound["index"])
            over = index.free_symbols & set(body.reduce)
            self.require(not over, f"its index uses the reduction axes {over}")
        elif op.name == "getitem":
            self.item(bound, visible)
        elif op.name == "bucketize":
            self.bucketize(bound, visible)

    def item(self, bound: dict[str, Arg], visible: _Visible) -> None:
        ref, index = bound["value"], bound["index"]
        many = values_of(visible.ops[ref.id]) if isinstance(ref, Ref) else 0
        self.require(many > 1, "getitem is for operations that give several values")
        self.require(isinstance(index, int) and 0 <= index < many, f"no value number {index}")

    def bucketize(self, bound: dict[str, Arg], visible: _Visible) -> None:
        for name in ("boundaries", "sorter"):
            where = bound[name]
            if where is None and name == "sorter":
                continue
            if not isinstance(where, tuple) or len(where) != (4 if name == "boundaries" else 2):
                self.fail(f"{name} must be a buffer and its expressions, not {where!r}")
            self.require(where[0] in self.buffers, f"buffer {where[0]!r} is not declared")
            for part in where[1:]:
                self.expression(part, visible.symbols, name)
        if bound["sorter_indices"] is not None:
            self.value(bound["sorter_indices"], visible, "sorter_indices")


def values_of(op: Op) -> int:
    """How many values an operation gives: 0 for stores and checks."""
    if op.name in VALUELESS:
        return 0
    if op.name == "reduction":
        return REDUCTIONS.get(str(bind(op)["reduction_type"]), 1)
    return 2 if op.name == "frexp" else 1
