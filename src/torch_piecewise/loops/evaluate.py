"""Index expressions evaluated over a grid of points: sympy in, int64 tensors out."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions as f

from . import arithmetic as arith

# The value of every symbol: a tensor over the grid (axes, indirect indices) or an int (sizes).
Environment = Mapping[sympy.Basic, torch.Tensor | int]


class NoEvaluator(NotImplementedError):
    """An operation or index function that the interpreter cannot compute, as random numbers."""


def evaluate(expr: sympy.Basic | int, env: Environment) -> torch.Tensor:
    """The expression at every point, as a tensor that broadcasts to the grid.

    Integers are exact int64, divided and wrapped as Inductor's C++ does it: `//` rounds down,
    `%` of ModularIndexing takes the sign of its left side. Fractions are float64.
    Raises NoEvaluator.
    """
    return arith.tensor(_value(sympy.sympify(expr), env))


def _value(expr: sympy.Basic, env: Environment) -> Any:
    if isinstance(expr, sympy.Symbol):
        return env[expr]
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if isinstance(expr, sympy.Number):
        return float(expr)
    if expr in (sympy.true, sympy.false):
        return bool(expr)
    if isinstance(expr, sympy.Mul):
        return _product(expr, env)
    args = [_value(arg, env) for arg in expr.args]
    rule = _RULES.get(type(expr)) or _by_torch_name(expr)
    if rule is None:
        raise NoEvaluator(f"the index function {type(expr).__name__} has no evaluator, in {expr}")
    return functools.reduce(rule, args) if type(expr) in _FOLDED else rule(*args)


def _product(expr: sympy.Mul, env: Environment) -> Any:
    """A product; a fraction in front, as in s*(s + 1)/2, divides last and exactly if it can."""
    fraction, rest = expr.as_coeff_Mul()
    if not isinstance(fraction, sympy.Rational) or fraction.q == 1:
        return functools.reduce(operator.mul, (_value(a, env) for a in expr.args))
    numerator = arith.tensor(_value(rest * fraction.p, env))
    whole = not numerator.dtype.is_floating_point and bool((numerator % fraction.q == 0).all())
    return numerator // fraction.q if whole else numerator.to(torch.float64) / fraction.q


def _float(x: Any) -> torch.Tensor:
    return arith.tensor(x).to(torch.float64)


def _to_int(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], torch.Tensor]:
    return lambda x: function(_float(x)).to(torch.int64)


def _power(base: Any, exponent: Any) -> Any:
    negative = bool((arith.tensor(exponent) < 0).any())
    fraction = arith.tensor(exponent).dtype.is_floating_point
    if negative or fraction:
        return torch.pow(_float(base), _float(exponent))
    return torch.pow(arith.tensor(base), arith.tensor(exponent))


def _extreme(function: Callable[..., torch.Tensor]) -> Callable[[Any, Any], torch.Tensor]:
    return lambda x, y: function(*torch.broadcast_tensors(arith.tensor(x), arith.tensor(y)))


def _modular(base: Any, divisor: Any, modulus: Any) -> torch.Tensor:
    return arith.fmod(arith.floordiv(base, divisor), modulus)


def _by_torch_name(expr: sympy.Basic) -> Callable[..., Any] | None:
    """torch's opaque functions say which torch function they are."""
    name = getattr(expr, "_torch_handler_name", None)
    if name is None:
        return None
    function: Callable[..., Any] = getattr(torch, name)
    if name.startswith("bitwise"):
        return lambda x, y: function(arith.tensor(x), arith.tensor(y))
    return lambda x: function(_float(x))


_minimum, _maximum = _extreme(torch.minimum), _extreme(torch.maximum)
_FOLDED = {sympy.Add, sympy.And, sympy.Or, f.Min, f.Max, sympy.Min, sympy.Max}
_RULES: dict[type, Callable[..., Any]] = {
    sympy.Add: operator.add,
    sympy.Pow: _power,
    sympy.And: operator.and_,
    sympy.Or: operator.or_,
    sympy.Not: lambda x: arith.tensor(x).logical_not(),
    sympy.Lt: operator.lt,
    sympy.Le: operator.le,
    sympy.Gt: operator.gt,
    sympy.Ge: operator.ge,
    sympy.Eq: operator.eq,
    sympy.Ne: operator.ne,
    sympy.Abs: abs,
    sympy.sign: lambda x: torch.sign(arith.tensor(x)),
    sympy.floor: _to_int(torch.floor),
    sympy.ceiling: _to_int(torch.ceil),
    sympy.Mod: arith.remainder,
    sympy.Min: _minimum,
    sympy.Max: _maximum,
    f.Min: _minimum,
    f.Max: _maximum,
    f.FloorDiv: arith.floordiv,
    f.CleanDiv: arith.floordiv,
    f.ModularIndexing: _modular,
    f.Mod: arith.fmod,
    f.PythonMod: arith.remainder,
    f.Where: lambda c, x, y: torch.where(arith.tensor(c), arith.tensor(x), arith.tensor(y)),
    f.Identity: arith.identity,
    f.PowByNatural: _power,
    f.FloatPow: lambda x, y: torch.pow(_float(x), _float(y)),
    f.IntTrueDiv: lambda x, y: _float(x) / _float(y),
    f.FloatTrueDiv: lambda x, y: _float(x) / _float(y),
    f.ToFloat: _float,
    f.TruncToFloat: lambda x: torch.trunc(_float(x)),
    f.TruncToInt: _to_int(torch.trunc),
    f.FloorToInt: _to_int(torch.floor),
    f.CeilToInt: _to_int(torch.ceil),
    f.RoundToInt: _to_int(torch.round),
    f.RoundDecimal: lambda x, digits: torch.round(_float(x), decimals=digits),
}
