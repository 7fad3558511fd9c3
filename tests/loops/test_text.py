"""The text of nests and of index expressions: it reads back exactly, and errors say where."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import sympy
import torch
from hypothesis import given
from torch.utils._sympy import functions as f
from torch.utils._sympy.numbers import int_oo

from torch_piecewise.loops import expressions, ops, text
from torch_piecewise.loops.ir import (
    Axis,
    Block,
    Body,
    Builder,
    LoopNest,
    Op,
    Ref,
    Symbol,
    axis_symbol,
    indirect_symbol,
    size_symbol,
)

from .frames import Case
from .nests import cases
from .same import alike

I0, I1, R0 = axis_symbol("i", 0), axis_symbol("i", 1), axis_symbol("r", 0)
S0, T0 = size_symbol("s0"), indirect_symbol(0)
SYMBOLS = {"i0": I0, "i1": I1, "s0": S0}
UNBACKED = sympy.Symbol("u0", integer=True)
M, F = f.ModularIndexing, f.FloorDiv

# Expressions with the text they must have; None where the text is free.
EXPRESSIONS: list[tuple[Any, str | None]] = [
    (1280 * I0 + M(I1 + 1, 1, 1280), "1280*i0 + (i1 + 1) % 1280"),
    (M(I0, 4, 7), "(i0 // 4) % 7"),
    (F(I0 + 3, 4), "(i0 + 3) // 4"),
    (M(I0 + 4 * I1, 4, 7) * 3 + F(I1, S0), "i1 // s0 + 3*(((i0 + 4*i1) // 4) % 7)"),
    (F(-I0, 3), "(-i0) // 3"),
    (5 - 2 * I0, "5 - 2*i0"),
    (-M(I0, 1, 3) - 2 * F(I0, 3) + 4, "-2*(i0 // 3) - (i0 % 3) + 4"),
    (M(I0 + 1, S0, S0 * 2), "((i0 + 1) // s0) % (2*s0)"),
    (f.Min(I0, S0 - 1), "Min(i0, s0 - 1)"),
    (f.Max(0, I0 - 3, I1), "Max(0, i1, i0 - 3)"),
    (sympy.Abs(I0 - 3), "Abs(i0 - 3)"),
    (f.Where(sympy.Lt(I0, 3), I0, I1), "Where(i0 < 3, i0, i1)"),
    (sympy.Lt(3, I0), "3 < i0"),
    (sympy.Eq(I0, I1), "Eq(i0, i1)"),
    (sympy.Ne(I0, 2), "Ne(i0, 2)"),
    (sympy.Not(sympy.And(I0 < 3, sympy.Eq(I1, 2))), None),
    (sympy.Or(I0 < 3, sympy.And(I1 >= 2, sympy.Ne(I0, I1))), None),
    (f.Mod(I0, 3), "Mod(i0, 3)"),
    (f.PythonMod(I0 - 4, 3), "PythonMod(i0 - 4, 3)"),
    (f.CleanDiv(I0, S0), "CleanDiv(i0, s0)"),
    (f.CeilDiv(S0, 4), "(s0 + 3) // 4"),
    (sympy.Mod(I0, 5), "sympy.Mod(i0, 5)"),
    (sympy.Min(I0, S0), "sympy.Min(i0, s0)"),
    (sympy.floor(I0 / 2), "sympy.floor(i0/2)"),
    (f.IntTrueDiv(I0, 3), "IntTrueDiv(i0, 3)"),
    (f.FloatTrueDiv(f.ToFloat(I0), 2.0), "FloatTrueDiv(ToFloat(i0), 2.0)"),
    (f.TruncToInt(f.ToFloat(I0)), "TruncToInt(ToFloat(i0))"),
    (f.RoundToInt(f.IntTrueDiv(I0, 2)), None),
    (f.PowByNatural(S0, I0), "PowByNatural(s0, i0)"),
    (f.Identity(I0 + 1) * 2, "2*Identity(i0 + 1)"),
    (f.OpaqueUnaryFn_sqrt(I0), "OpaqueUnaryFn_sqrt(i0)"),
    (f.BitwiseFn_bitwise_and(I0, 3), "BitwiseFn_bitwise_and(i0, 3)"),
    (I0**2, "i0**2"),
    (sympy.sqrt(I0), "sqrt(i0)"),
    (I0 / 2, "i0/2"),
    (sympy.Rational(-1, 2), "-1/2"),
    (sympy.Integer(-3), "-3"),
    (sympy.Float(0.1), "0.1"),
    (sympy.Float(1, 50) / 3, None),
    (sympy.oo, "oo"),
    (-sympy.oo, "-oo"),
    (int_oo, "int_oo"),
    (-int_oo, "-int_oo"),
    (sympy.nan, "nan"),
    (sympy.true, "true"),
    (T0 + UNBACKED, "t0 + symbol('u0', integer=True)"),
    (sympy.Symbol("i0"), None),  # not the axis: it has other assumptions
    (sympy.Symbol("Min", integer=True) + sympy.Symbol("a 'b'"), None),
    (sympy.Mul(2, I0 + 1, evaluate=False), "exact.sympy.Mul(2, sympy.Add(1, i0))"),
    (F(I0, 1, evaluate=False), "exact.FloorDiv(i0, 1)"),
    (M(F(I0, 2), 1, 3, evaluate=False), "exact.ModularIndexing(FloorDiv(i0, 2), 1, 3)"),
    (F(F(I0, 2, evaluate=False), 3, evaluate=False), None),
]


@pytest.mark.parametrize(("expr", "written"), EXPRESSIONS, ids=lambda x: str(x)[:30])
def test_expressions_read_back(expr: sympy.Basic, written: str | None) -> None:
    shown = expressions.show(expr, SYMBOLS)
    assert written is None or shown == written
    back = expressions.read(shown, SYMBOLS)
    assert back == expr and type(back) is type(expr)


@pytest.mark.parametrize(
    "source",
    ["i0 +", "x9", "__import__('os')", "i0.real", "i0 if i0 else 1", "f(i0)", "'a'", "[i0]"],
)
def test_what_is_no_expression_is_refused(source: str) -> None:
    with pytest.raises(ValueError):
        expressions.read(source, SYMBOLS)


def nest_of(*ops_: Op, **changes: Any) -> LoopNest:
    body = Body("op0", (I0,), (), Block(ops_))
    parts: dict[str, Any] = {
        "name": "n",
        "axes": (Axis(I0, sympy.Integer(4)),),
        "bodies": (body,),
        "buffers": (("x", torch.float32),),
    }
    return LoopNest(**{**parts, **changes})


ARGUMENTS = [
    math.inf, -math.inf, math.nan, -0.0, 1e-30, 1.5e300, -7, 0, True, False, None, "x", "y",
    "f32", "it's", 'say "hi"\n', "", "None", "inf", torch.bfloat16, torch.float8_e4m3fn,
    torch.uint16, torch.complex64, torch.bool, (), (1,), (1, (2.0, "x"), None), Ref(12), I0 + 1,
    sympy.Integer(3), sympy.Lt(I0, 2), Block(()), Block((), 3),
    Block((Op(3, "frexp", (Ref(1),)), Op(9, "store", ("x", I0, 1.0))), Ref(3)),
]  # fmt: skip


@pytest.mark.parametrize("argument", ARGUMENTS, ids=repr)
def test_arguments_read_back(argument: Any) -> None:
    nest = nest_of(
        Op(5, "anything", (argument, 1), (("key", argument),), torch.float16), Op(7, "store", ())
    )
    assert alike(text.parse(text.show(nest)), nest)


@pytest.mark.parametrize(
    "nest",
    [
        nest_of(axes=(), bodies=(Body("scalar", (), (), Block(())),), buffers=()),
        nest_of(axes=(Axis(R0, sympy.Integer(0), True), Axis(I0, S0 + 2), Axis(I1, S0, True)),
                symbols=(Symbol(S0, 2, None), Symbol(UNBACKED, -1, 7))),
        nest_of(name="a b'c", buffers=(("f32", torch.int8), ("a.b", torch.uint8))),
        nest_of(axes=(Axis(sympy.Symbol("q"), sympy.Integer(2)),), bodies=()),
        nest_of(bodies=(Body("b", (I0,), (), Block((), Ref(0))),) * 2),
    ],
)  # fmt: skip
def test_frames_read_back(nest: LoopNest) -> None:
    assert alike(text.parse(text.show(nest)), nest)


EXAMPLE = """\
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
"""


def test_the_text_is_as_documented() -> None:
    nest = text.parse(EXAMPLE)
    ops.check(nest)
    assert text.show(nest) == EXAMPLE
    assert "\n".join("    " + line for line in EXAMPLE.splitlines()) in str(text.__doc__)
    assert nest.bodies[0].block.ops[-1].id == 5
    spaced = EXAMPLE.replace("\n", "\n\n# a comment\n").replace("  ", "    ")
    assert text.parse(spaced) == nest


@pytest.mark.parametrize(
    ("old", "new", "line", "expected"),
    [
        ("nest buf2", "loop buf2", 1, "'nest NAME"),
        ("i0: 1024", "i0 1024", 1, "invalid syntax in 'i0 1024'"),
        ("r0: 64)", "r0: 64", 1, "')'"),
        ("i1: s0", "i1: s7", 1, "unknown symbol 's7'"),
        ("in [2", "of [2", 2, "'in'"),
        ("buf2: f32", "buf2: f33", 3, "a dtype, not 'f33'"),
        ("reduce r0", "reduce r9", 4, "an axis of the nest, not 'r9'"),
        ("body op2 for i0", "body op2 over i0", 4, "':'"),
        ("%0: i64", "%0: int", 5, "a dtype, not 'int'"),
        ("index_expr([i1]", "index_expr([i1 +]", 5, "an index expression"),
        ("lt(%0, 64)", "lt(%0 64)", 6, "','"),
        ("lt(%0, 64)", "lt(%0, 64) 3", 6, "end of the line"),
        ("lt(%0, 64)", "lt(%0, ?)", 6, "an argument"),
        ("%1: bool = lt", "%1: bool lt", 6, "an operation"),
        ("[64*i0 + r0])", "[64*i0 + r0)", 8, "']'"),
        ("  }, 0.0)", "  ", 11, "'}'"),
        ("'sum'", "'sum", 11, "an argument"),
    ],
)
def test_errors_say_where_and_what(old: str, new: str, line: int, expected: str) -> None:
    assert EXAMPLE.count(old) >= 1
    with pytest.raises(text.ParseError) as caught:
        text.parse(EXAMPLE.replace(old, new, 1))
    error = caught.value
    assert isinstance(error, ValueError)
    assert error.line == line
    assert expected in error.expected
    assert f"line {line}: " in str(error)


def test_an_empty_text_is_refused() -> None:
    with pytest.raises(text.ParseError, match="the text ends"):
        text.parse("")


@given(cases())
def test_random_nests_read_back(case: Case) -> None:
    assert alike(text.parse(text.show(case.nest)), case.nest)
    ops.check(case.nest)


def test_every_nan_reads_back_equal() -> None:
    """NaN is unequal to itself: nests compare by the one object that the builder keeps."""
    builder = Builder(itertools.count())
    value = builder.emit("constant", (float("nan"), torch.float32), (), torch.float32)
    builder.emit("store", ("y", I0, value))
    body = Body("b", (I0,), (), builder.block())
    nest = LoopNest("n", (Axis(I0, sympy.Integer(4)),), (body,), (("y", torch.float32),))
    assert text.parse(text.show(nest)) == nest
