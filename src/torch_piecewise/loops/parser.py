"""Reads the text of a nest; `text` describes the format."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import NoReturn

import sympy
import torch

from . import expressions
from .ir import Arg, Axis, Block, Body, LoopNest, Op, Ref, Symbol, size_symbol
from .text import DTYPES, WORDS, ParseError, standard_axis

_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_NUMBER = re.compile(r"-?(?:inf\b|\d+(?:\.\d*)?(?:e[-+]?\d+)?)")
_WORD = re.compile(r"\w+")
_REF = re.compile(r"%(\d+)")
_OP = re.compile(r"(?:%(\d+)(?::\s*(\w+))?\s*=\s*)?(\w+)\(")
_OPEN, _CLOSE = "([{", ")]}"


@dataclass
class Line:
    """A line of the text that is being read, from left to right."""

    number: int
    text: str
    at: int = 0

    def fail(self, expected: str) -> NoReturn:
        raise ParseError(self.number, self.text, expected)

    def space(self) -> None:
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1

    def peek(self, what: str) -> bool:
        self.space()
        return self.text.startswith(what, self.at)

    def accept(self, what: str) -> bool:
        found = self.peek(what)
        self.at += len(what) if found else 0
        return found

    def expect(self, what: str) -> None:
        if not self.accept(what):
            self.fail(f"expected {what!r} at {self.text[self.at :].strip()[:30]!r}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.space()
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found

    def word(self, what: str) -> str:
        found = self.match(_WORD)
        return found[0] if found else self.fail(f"expected {what}")

    def name(self, what: str) -> str:
        """A word, or a string in quotes."""
        if found := self.match(_STRING):
            return str(ast.literal_eval(found[0]))
        return self.word(what)

    def until(self, ends: str, what: str) -> str:
        """The text up to one of `ends` that stands outside of brackets and strings."""
        self.space()
        start, depth = self.at, 0
        while self.at < len(self.text):
            char = self.text[self.at]
            if depth == 0 and char in ends:
                return self.text[start : self.at]
            if char in "'\"" and not self.match(_STRING):
                self.fail("expected the end of a string")
            if char not in "'\"":
                depth += (char in _OPEN) - (char in _CLOSE)
                self.at += 1
        return self.fail(f"expected {what}")

    def end(self) -> None:
        self.space()
        if self.at < len(self.text):
            self.fail(f"expected the end of the line at {self.text[self.at :]!r}")


@dataclass
class Parser:
    """One nest's text. Methods named after a part of it read that part."""

    text: str
    lines: list[Line] = field(default_factory=list)
    symbols: dict[str, sympy.Symbol] = field(default_factory=dict)
    last: int = -1  # the largest number of an operation so far

    def __post_init__(self) -> None:
        numbered = enumerate(self.text.splitlines(), start=1)
        self.lines = [
            Line(number, line)
            for number, line in numbered
            if line.strip() and not line.lstrip().startswith("#")
        ]

    def take(self, keyword: str) -> Line | None:
        """The next line if it begins with the keyword."""
        if self.lines and self.lines[0].accept(keyword + " "):
            return self.lines.pop(0)
        return None

    def next(self, expected: str) -> Line:
        if not self.lines:
            number = self.text.count("\n") + 1
            raise ParseError(number, "", f"expected {expected}, the text ends")
        return self.lines.pop(0)

    def nest(self) -> LoopNest:
        line = self.take("nest") or self.next("'nest NAME (AXES)'")
        if line.at == 0:
            line.fail("expected 'nest NAME (AXES)'")
        name = line.name("the nest's name")
        # Sizes of axes use symbols that a later line declares.
        sizes = self.take("symbols")
        symbols = self.sizes(sizes) if sizes else ()
        axes = self.axes(line)
        declared = self.take("buffers")
        buffers = self.buffers(declared) if declared else ()
        bodies = []
        while self.lines:
            bodies.append(self.body())
        return LoopNest(name, axes, tuple(bodies), buffers, symbols)

    def declare(self, line: Line, standard: bool, ends: str) -> sympy.Symbol:
        """A symbol where it is introduced, standard for an axis or for a size."""
        text = line.until(ends, f"a symbol and one of {ends!r}").strip()
        if text.isidentifier():
            symbol = standard_axis(text) if standard else size_symbol(text)
        else:
            symbol = self.expression(line, text)
        if not isinstance(symbol, sympy.Symbol):
            line.fail(f"expected a symbol instead of {text!r}")
        self.symbols[symbol.name] = symbol
        return symbol

    def axes(self, line: Line) -> tuple[Axis, ...]:
        line.expect("(")
        axes: list[Axis] = []
        reduce = False
        while not line.accept(")"):
            if line.accept(";"):
                reduce = not reduce
            elif axes:
                line.expect(",")
            symbol = self.declare(line, True, ":,;)")
            line.expect(":")
            size = self.expression(line, line.until(",;)", "',', ';' or ')' after a size"))
            axes.append(Axis(symbol, size, reduce))
        line.end()
        return tuple(axes)

    def sizes(self, line: Line) -> tuple[Symbol, ...]:
        symbols: list[Symbol] = []
        while not symbols or line.accept(","):
            symbol = self.declare(line, False, " ")
            line.expect("in")
            line.expect("[")
            low = int(line.until(",", "','"))
            line.expect(",")
            high = line.until("])", "']', or ')' after inf").strip()
            line.at += 1
            symbols.append(Symbol(symbol, low, None if high == "inf" else int(high)))
        line.end()
        return tuple(symbols)

    def buffers(self, line: Line) -> tuple[tuple[str, torch.dtype], ...]:
        buffers: list[tuple[str, torch.dtype]] = []
        while not buffers or line.accept(","):
            name = line.name("a buffer's name")
            line.expect(":")
            buffers.append((name, self.dtype(line, line.word("a dtype"))))
        line.end()
        return tuple(buffers)

    def body(self) -> Body:
        line = self.take("body") or self.lines.pop(0)
        if line.at == 0:
            line.fail("expected 'body NAME for AXES:'")
        name = line.name("the body's name")
        iterate: list[sympy.Symbol] = []
        reduce: list[sympy.Symbol] = []
        if line.accept("for "):
            axes = iterate
            while not (iterate or reduce) or line.accept(","):
                if line.accept("reduce "):  # and so are all that follow
                    axes = reduce
                axes.append(self.axis(line))
        line.expect(":")
        line.end()
        return Body(name, tuple(iterate), tuple(reduce), self.block("body "))

    def axis(self, line: Line) -> sympy.Symbol:
        name = line.until(",:", "',' or ':' after an axis").strip()
        return self.symbols.get(name) or line.fail(f"expected an axis of the nest, not {name!r}")

    def block(self, end: str) -> Block:
        """Operations up to a line that begins with `end`, which is left to be read."""
        ops: list[Op] = []
        result: Arg = None
        while self.lines and not self.lines[0].peek(end):
            if line := self.take("yield"):
                result = self.argument(line)
                line.end()
                break
            line = self.lines.pop(0)
            ops.append(self.op(line))
        return Block(tuple(ops), result)

    def op(self, line: Line) -> Op:
        head = line.match(_OP)
        if not head:
            line.fail("expected an operation, as '%0: f32 = load(x, [i0])'")
        args: list[Arg] = []
        kwargs: list[tuple[str, Arg]] = []
        while not line.accept(")"):
            if args or kwargs:
                line.expect(",")
            if key := line.match(re.compile(r"(\w+)=")):
                kwargs.append((key[1], self.argument(line)))
            else:
                args.append(self.argument(line))
        line.end()
        dtype = self.dtype(line, head[2]) if head[2] else None
        number = int(head[1]) if head[1] else self.last + 1
        self.last = max(self.last, number)
        return Op(number, head[3], tuple(args), tuple(kwargs), dtype)

    def argument(self, line: Line) -> Arg:
        if found := line.match(_REF):
            return Ref(int(found[1]))
        if line.accept("["):
            expr = self.expression(line, line.until("]", "']' after an index expression"))
            line.expect("]")
            return expr
        if line.accept("("):
            return self.tuple(line)
        if line.accept("{"):
            return self.nested(line)
        if found := line.match(_STRING):
            return str(ast.literal_eval(found[0]))
        if found := line.match(_NUMBER):
            text = found[0]
            return int(text) if text.lstrip("-").isdecimal() else float(text)
        word = line.word("an argument")
        return WORDS[word] if word in WORDS else DTYPES.get(word, word)

    def tuple(self, line: Line) -> tuple[Arg, ...]:
        parts: list[Arg] = []
        while not line.accept(")"):
            parts.append(self.argument(line))
            if not line.peek(")"):
                line.expect(",")
        return tuple(parts)

    def nested(self, line: Line) -> Block:
        """A block in braces: its lines follow, and `line` goes on after the closing brace."""
        line.end()
        block = self.block("}")
        closing = self.next("'}' after a nested block")
        closing.expect("}")
        line.number, line.text, line.at = closing.number, closing.text, closing.at
        return block

    def dtype(self, line: Line, name: str) -> torch.dtype:
        return DTYPES.get(name) or line.fail(f"expected a dtype, not {name!r}")

    def expression(self, line: Line, text: str) -> sympy.Expr:
        try:
            return expressions.read(text, self.symbols)
        except (ValueError, TypeError, ZeroDivisionError) as error:
            line.fail(f"expected an index expression: {error}")
