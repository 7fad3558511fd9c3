"""The text of a nest: `show` writes it to be read, `parse` reads it back to an equal nest.

    nest buf2 (i0: 1024, i1: s0 + 2; r0: 64)
    symbols s0 in [2, inf)
    buffers arg0_1: f32, buf2: f32
    body op2 for i0, i1, reduce r0:
      %0: i64 = index_expr([i1], i64)
      %1: bool = lt(%0, 64)
      %3: f32 = masked(%1, {
        %2: f32 = load(arg0_1, [64*i0 + r0])
        yield %2
      }, 0.0)
      %4: f32 = reduction(f32, f32, 'sum', %3)
      store_reduction(buf2, [i0*(s0 + 2) + i1], %4)

Axes after `;` are reduction axes. Index expressions stand in brackets (`expressions` says how),
dtypes are short, strings are quoted unless they name a buffer. An operation without a value takes
the number after the largest so far, so its number is left out where that holds.
`#` begins a comment line.
"""

from __future__ import annotations

import math

import sympy
import torch

from . import expressions
from .ir import Arg, Axis, Block, Body, LoopNest, Op, Ref, axis_symbol, size_symbol
from .wellformed import VALUELESS

_SHORT = {"float": "f", "bfloat": "bf", "complex": "c", "uint": "u", "int": "i"}


def _short_name(name: str) -> str:
    for long, short in _SHORT.items():
        if name.startswith(long) and name[len(long) :][:1].isdigit():
            return short + name[len(long) :]
    return name


DTYPES: dict[str, torch.dtype] = {}
for _value in vars(torch).values():
    if isinstance(_value, torch.dtype):
        DTYPES[_short_name(str(_value).removeprefix("torch."))] = _value
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}

# Words that mean something else than a string where an argument is expected.
WORDS: dict[str, Arg] = {
    "None": None,
    "True": True,
    "False": False,
    "inf": math.inf,
    "nan": math.nan,  # one object, so that nests that hold it compare equal
}


def plain_word(text: str) -> bool:
    """Whether a string can be written without quotes."""
    return text.isidentifier() and text not in WORDS and text not in DTYPES


def show(nest: LoopNest) -> str:
    """The text of a nest, which `parse` reads back."""
    return _Writer(nest).text()


def parse(text: str) -> LoopNest:
    """The nest of a text; `ParseError` says which line is wrong and what was expected."""
    from .parser import Parser  # it needs this module's names

    return Parser(text).nest()


class ParseError(ValueError):
    """A text that is no nest: `line` counts from 1."""

    def __init__(self, line: int, source: str, expected: str) -> None:
        super().__init__(f"line {line}: {expected}\n    {source.strip()}")
        self.line = line
        self.source = source
        self.expected = expected


def standard_axis(name: str) -> sympy.Symbol:
    """The symbol that an axis of this name has unless its text says otherwise."""
    return sympy.Symbol(name, **axis_symbol("i", 0)._assumptions_orig)


class _Writer:
    def __init__(self, nest: LoopNest) -> None:
        self.nest = nest
        self.symbols = {a.name: a.symbol for a in nest.axes}
        self.symbols |= {str(s.symbol): s.symbol for s in nest.symbols}
        self.buffers = {name for name, _ in nest.buffers}
        self.last = -1  # the largest number of an operation so far
        self.lines: list[str] = []
        self.shown: dict[sympy.Basic, str] = {}  # indices repeat, and sympy prints slowly

    def text(self) -> str:
        nest = self.nest
        self.lines.append(f"nest {self.string(nest.name)} ({self.axes(nest.axes)})")
        if nest.symbols:
            sizes = ", ".join(
                f"{self.declared(s.symbol, size_symbol(str(s.symbol)))} in [{s.low}, "
                + ("inf)" if s.high is None else f"{s.high}]")
                for s in nest.symbols
            )
            self.lines.append(f"symbols {sizes}")
        if nest.buffers:
            buffers = (f"{self.string(name)}: {DTYPE_NAMES[d]}" for name, d in nest.buffers)
            self.lines.append(f"buffers {', '.join(buffers)}")
        for body in nest.bodies:
            self.body(body)
        return "\n".join(self.lines) + "\n"

    def axes(self, axes: tuple[Axis, ...]) -> str:
        """`;` switches between iteration and reduction axes."""
        text, reduce = "", False
        for number, axis in enumerate(axes):
            if axis.reduce != reduce:
                text += "; "
            elif number:
                text += ", "
            reduce = axis.reduce
            name = self.declared(axis.symbol, standard_axis(axis.name))
            text += f"{name}: {self.expression(axis.size)}"
        return text

    def declared(self, symbol: sympy.Symbol, standard: sympy.Symbol) -> str:
        """A symbol where it is introduced: its name, or all its assumptions if they're its own."""
        return expressions.show(symbol, {str(symbol): standard})

    def body(self, body: Body) -> None:
        axes = [str(s) for s in body.iterate]
        if body.reduce:
            axes.append(f"reduce {', '.join(map(str, body.reduce))}")
        over = f" for {', '.join(axes)}" if axes else ""
        self.lines.append(f"body {self.string(body.name)}{over}:")
        self.block(body.block, "  ")
        if body.block.result is not None:
            self.lines.append(f"  yield {self.argument(body.block.result, '  ')}")

    def block(self, block: Block, indent: str) -> None:
        for op in block.ops:
            self.op(op, indent)

    def op(self, op: Op, indent: str) -> None:
        """One operation; its nested blocks put lines of their own before the rest of it."""
        place = len(self.lines)
        self.lines.append("")
        arguments = [self.argument(arg, indent) for arg in op.args]
        arguments += [f"{key}={self.argument(arg, indent)}" for key, arg in op.kwargs]
        call = f"{op.name}({', '.join(arguments)})"
        if op.dtype is not None:
            call = f"%{op.id}: {DTYPE_NAMES[op.dtype]} = {call}"
        elif op.name not in VALUELESS or op.id != self.last + 1:
            call = f"%{op.id} = {call}"
        self.last = max(self.last, op.id)
        self.lines[place : place + 1] = [f"{indent}{call}"]

    def argument(self, arg: Arg, indent: str) -> str:
        if isinstance(arg, Ref):
            return f"%{arg.id}"
        if isinstance(arg, Block):
            return self.nested(arg, indent)
        if isinstance(arg, tuple):
            parts = [self.argument(part, indent) for part in arg]
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if isinstance(arg, torch.dtype):
            return DTYPE_NAMES[arg]
        if isinstance(arg, str):
            return self.string(arg) if arg in self.buffers else repr(arg)
        if isinstance(arg, sympy.Basic):
            return f"[{self.expression(arg)}]"
        return repr(arg)

    def nested(self, block: Block, indent: str) -> str:
        outer, self.lines = self.lines, []
        self.block(block, indent + "  ")
        if block.result is not None:
            self.lines.append(f"{indent}  yield {self.argument(block.result, indent + '  ')}")
        inner, self.lines = self.lines, outer
        return "\n".join(["{", *inner, indent + "}"])

    def string(self, text: str) -> str:
        return text if plain_word(text) else repr(text)

    def expression(self, expr: sympy.Basic) -> str:
        if expr not in self.shown:
            self.shown[expr] = expressions.show(sympy.sympify(expr), self.symbols)
        return self.shown[expr]
