"""Index expressions evaluated over a grid, against sympy's own values."""

from __future__ import annotations

import math

import pytest
import sympy
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._sympy import functions as f

from torch_piecewise.loops.evaluate import NoEvaluator, evaluate
from torch_piecewise.loops.ir import indirect_symbol, size_symbol

from .frames import Frame

I64 = torch.int64


@given(st.data())
def test_index_expressions_are_evaluated_as_sympy_does(draws: st.DataObject) -> None:
    frame = Frame(draws.draw)
    frame.frame()
    frame.own = tuple(axis.symbol for axis in frame.axes)
    expr = frame.index()
    sizes = {symbol: sympy.Integer(value) for symbol, value in frame.sizes.items()}
    point = {a.symbol: sympy.Integer(frame.number(0, 9)) for a in frame.axes}
    if any(
        period.subs(sizes) == 0
        for term in expr.atoms(f.ModularIndexing)
        for period in term.args[2:]
    ):
        return  # a wrap over an axis of no size
    expected = expr.subs({**sizes, **point})
    got = evaluate(expr, {s: int(v) for s, v in {**sizes, **point}.items()})
    assert got.dtype == I64 and got.item() == expected, expr


T0, S0 = indirect_symbol(0), size_symbol("s0")


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (S0 * (S0 + 1) / 2, 28),
        (T0 / 2, -2.5),
        (f.FloorDiv(T0, 2), -3),
        (f.ModularIndexing(T0, 1, 3), -2),  # C's remainder
        (f.ModularIndexing(T0, 2, 3), 0),
        (f.PythonMod(T0, 3), 1),
        (f.IntTrueDiv(S0, 2), 3.5),
        (f.TruncToInt(f.IntTrueDiv(T0, 2)), -2),
        (f.CeilToInt(f.IntTrueDiv(T0, 2)), -2),
        (f.FloorToInt(f.IntTrueDiv(T0, 2)), -3),
        (f.PowByNatural(S0, f.Max(T0, 2)), 49),
        (S0**-1, 1 / 7),
        (f.Identity(T0) + 1, -4),
        (f.OpaqueUnaryFn_sqrt(S0), math.sqrt(7)),
        (f.BitwiseFn_bitwise_and(S0, 3), 3),
        (f.Where(sympy.And(T0 < 0, sympy.Not(sympy.Eq(S0, 3))), S0, T0), 7),
        (sympy.floor(T0 / 2), -3),
        (sympy.Integer(5), 5),
        (sympy.true, True),
    ],
)
def test_index_expressions(expr: sympy.Basic, expected: float) -> None:
    assert evaluate(expr, {T0: torch.tensor([-5]), S0: 7}).item() == pytest.approx(expected)


def test_an_index_function_without_a_rule_is_named() -> None:
    with pytest.raises(NoEvaluator, match="index function gamma has no evaluator"):
        evaluate(sympy.gamma(indirect_symbol(0)), {indirect_symbol(0): torch.arange(3)})
