"""What is known of an index expression inside a box: its interval, and what that decides.

Intervals are pairs of Python ints, or ±inf. Every range is given explicitly (sympy's assumptions
and torch's tracing context are never asked), so the same nest gives the same answer everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import sympy
from torch.utils._sympy.functions import (
    FloorDiv,
    Identity,
    Max,
    Min,
    Mod,
    ModularIndexing,
    PythonMod,
    Where,
)

from .ir import Axis, Symbol

Bound = int | float  # an int, or -inf / +inf
Interval = tuple[Bound, Bound]
EVERYTHING: Interval = (-math.inf, math.inf)
LARGE = 2**31


def _times(a: Bound, b: Bound) -> Bound:
    return 0 if a == 0 or b == 0 else a * b  # 0 * inf is 0 here: the factor 0 is exact


def _floor(a: Bound, n: Bound) -> Bound:
    if math.isinf(a):
        return a if n > 0 else -a
    return int(a) // int(n) if not math.isinf(n) else (-1 if a < 0 else 0)


@dataclass(frozen=True)
class Bounds:
    """Ranges of axes (inclusive, possibly symbolic ends) and of sizes (inclusive ints).

    `signs` says whether expressions over several axes are negative in a part that is no box.
    """

    axes: Mapping[sympy.Symbol, tuple[sympy.Expr, sympy.Expr]]
    sizes: Mapping[sympy.Symbol, Interval]
    signs: Mapping[sympy.Expr, bool] = field(default_factory=dict)
    _memo: dict[sympy.Expr, Interval] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def of(axes: Iterable[Axis], symbols: Iterable[Symbol]) -> Bounds:
        """Every axis runs over [0, size)."""
        return Bounds(
            {a.symbol: (sympy.Integer(0), sympy.sympify(a.size) - 1) for a in axes},
            {s.symbol: (s.low, math.inf if s.high is None else s.high) for s in symbols},
        )

    def with_axis(self, symbol: sympy.Symbol, low: sympy.Expr, high: sympy.Expr) -> Bounds:
        """These bounds and one more axis, as an indirect index whose range is checked."""
        return Bounds({**self.axes, symbol: (low, high)}, self.sizes, self.signs)

    def interval(self, expr: sympy.Expr) -> Interval:
        """The tightest interval that could be shown; exact for affine expressions of axes."""
        if isinstance(expr, sympy.Integer):
            return int(expr), int(expr)
        found = self._memo.get(expr)
        if found is None:
            found = self._memo[expr] = self._interval(expr)
        return found

    def negative(self, expr: sympy.Expr) -> bool | None:
        """Whether expr < 0 everywhere (True), nowhere (False), or that is open (None)."""
        if self.signs:
            for known, negative in ((expr, True), (sympy.expand(-expr - 1), False)):
                if known in self.signs:
                    return self.signs[known] == negative
        low, high = self.interval(expr)
        return True if high < 0 else False if low >= 0 else None

    def wraps(self, expr: sympy.Expr) -> bool:
        """Whether computing it may leave int64, where C++ goes on at the other end.

        Intervals know nothing of that. What has no bound is taken for a number of elements: it
        leaves int64 where it is multiplied by a large number only.
        """
        return any(self._leaves_int64(e) for e in sympy.preorder_traversal(expr))

    def _leaves_int64(self, expr: sympy.Basic) -> bool:
        if not isinstance(expr, sympy.Expr):
            return False
        low, high = self.interval(expr)
        if math.isinf(low) or math.isinf(high):
            return any(abs(number) >= LARGE for number in expr.atoms(sympy.Integer))
        return low < -(2**63) or high >= 2**63

    def _interval(self, expr: sympy.Expr) -> Interval:
        low, high = self._arithmetic(expr)
        if expr.free_symbols & self.sizes.keys() or self._symbolic_ends(expr):
            low = max(low, self._corner(expr, upper=False))
            high = min(high, self._corner(expr, upper=True))
        return low, high

    def _symbolic_ends(self, expr: sympy.Expr) -> bool:
        ends = (self.axes[s] for s in expr.free_symbols if s in self.axes)
        return any(end.free_symbols for pair in ends for end in pair)

    def _corner(self, expr: sympy.Expr, upper: bool) -> Bound:
        """The bound of an expression after each axis took the end that is extreme for it.

        Interval arithmetic alone loses that `i - (s - 1)` with i <= s - 2 is negative: the sizes
        have to cancel before any number is put in.
        """
        nothing = math.inf if upper else -math.inf
        expr = sympy.expand(expr)
        for _ in range(len(self.axes)):  # an end may itself hold no axis, so one pass each
            axis = next((s for s in expr.free_symbols if s in self.axes), None)
            if axis is None:
                break
            slope = expr.coeff(axis, 1)
            rest = expr.coeff(axis, 0)
            if (
                sympy.expand(expr - slope * axis - rest) != 0
                or slope.free_symbols & self.axes.keys()
            ):
                return nothing
            low, high = self._arithmetic(slope)
            if low >= 0:
                end = self.axes[axis][1 if upper else 0]
            elif high <= 0:
                end = self.axes[axis][0 if upper else 1]
            else:
                return nothing
            expr = sympy.expand(rest + slope * end)
        return self._arithmetic(expr)[1 if upper else 0]

    def _arithmetic(self, expr: sympy.Expr) -> Interval:
        """Interval arithmetic over the expression's tree."""
        if isinstance(expr, sympy.Integer):
            return int(expr), int(expr)
        if isinstance(expr, sympy.Symbol):
            return self._symbol(expr)
        if isinstance(expr, sympy.Add):
            parts = [self._arithmetic(a) for a in expr.args]
            return sum(p[0] for p in parts), sum(p[1] for p in parts)
        if isinstance(expr, sympy.Mul):
            low: Bound = 1
            high: Bound = 1
            for a in expr.args:
                c, d = self._arithmetic(a)
                ends = [_times(x, y) for x in (low, high) for y in (c, d)]
                low, high = min(ends), max(ends)
            return low, high
        return self._function(expr)

    def _symbol(self, symbol: sympy.Symbol) -> Interval:
        if symbol in self.axes:
            low, high = self.axes[symbol]
            return self._arithmetic(low)[0], self._arithmetic(high)[1]
        return self.sizes.get(symbol, EVERYTHING)

    def _function(self, expr: sympy.Expr) -> Interval:
        if isinstance(expr, sympy.Pow) and isinstance(expr.exp, sympy.Integer) and expr.exp > 0:
            low, high = self.interval(expr.base)
            return (low**expr.exp, high**expr.exp) if low >= 0 else EVERYTHING
        if isinstance(expr, FloorDiv):
            return self._quotient(*expr.args)
        if isinstance(expr, ModularIndexing):
            return self._remainder(self._quotient(expr.args[0], expr.args[1]), expr.args[2])
        if isinstance(expr, (Mod, PythonMod, sympy.Mod)):
            return self._remainder(self.interval(expr.args[0]), expr.args[1])
        if isinstance(expr, (Min, sympy.Min)):
            parts = [self.interval(a) for a in expr.args]
            return min(p[0] for p in parts), min(p[1] for p in parts)
        if isinstance(expr, (Max, sympy.Max)):
            parts = [self.interval(a) for a in expr.args]
            return max(p[0] for p in parts), max(p[1] for p in parts)
        if isinstance(expr, sympy.Abs):
            low, high = self.interval(expr.args[0])
            return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
        if isinstance(expr, Where):
            a, b = self.interval(expr.args[1]), self.interval(expr.args[2])
            return min(a[0], b[0]), max(a[1], b[1])
        return EVERYTHING

    def _quotient(self, base: sympy.Expr, divisor: sympy.Expr) -> Interval:
        (low, high), (small, large) = self.interval(base), self.interval(divisor)
        if small <= 0:
            return EVERYTHING
        ends = [_floor(a, n) for a in (low, high) for n in (small, large)]
        return min(ends), max(ends)

    def _remainder(self, base: Interval, modulus: sympy.Expr) -> Interval:
        small, large = self.interval(modulus)
        if small <= 0 or base[0] < 0:  # C's and Python's remainders differ below 0: claim nothing
            return EVERYTHING
        return 0, min(base[1], large - 1)


def simplify(expr: sympy.Expr, bounds: Bounds, watch: Watch | None = None) -> sympy.Expr:
    """The expression without the wraps, floors, Min, Max, Abs and Where that the bounds decide.

    What stays open is told to `watch`: that is where the seams are.
    """
    if not isinstance(expr, sympy.Basic) or not expr.args:
        return expr
    args = [simplify(a, bounds, watch) for a in expr.args]
    if any(new is not old for new, old in zip(args, expr.args, strict=True)):
        expr = expr.func(*args)
    rule = _RULES.get(type(expr))
    return rule(expr, bounds, watch or Watch()) if rule else expr


class Watch:
    """Hears what the bounds could not decide. The base class ignores it."""

    def sign(self, expr: sympy.Expr) -> None:
        """Whether expr < 0 differs within the box."""

    def wrap(self, base: sympy.Expr, period: sympy.Expr) -> None:
        """floor(base / period) is not the same all over the box."""

    def turn(self, inner: sympy.Expr) -> None:
        """|inner| is inner in one part of the box and -inner in another."""
        self.sign(inner)


def _period(base: sympy.Expr, period: sympy.Expr, bounds: Bounds) -> sympy.Expr | None:
    """k where floor(base / period) is k everywhere in the box, else None."""
    if isinstance(period, sympy.Integer):
        if period <= 0:
            return None
        low, high = bounds.interval(base)
        if math.isinf(low) or math.isinf(high) or low // int(period) != high // int(period):
            return None
        return sympy.Integer(int(low) // int(period))
    for k in (0, 1, -1):
        inside = bounds.negative(base - k * period) is False
        if inside and bounds.negative(base - (k + 1) * period) is True:
            return sympy.Integer(k)
    return None


def _floor_rule(expr: sympy.Expr, bounds: Bounds, watch: Watch) -> sympy.Expr:
    base, divisor = expr.args
    k = _period(base, divisor, bounds)
    if k is None:
        watch.wrap(base, divisor)
        return expr
    return k


def _modular_rule(expr: sympy.Expr, bounds: Bounds, watch: Watch) -> sympy.Expr:
    base, divisor, modulus = expr.args
    k = _period(base, divisor * modulus, bounds)
    if k is None or bounds.interval(base)[0] < 0:
        watch.wrap(base, divisor * modulus)
        return expr
    return simplify(FloorDiv(base, divisor), bounds, watch) - k * modulus


def _mod_rule(expr: sympy.Expr, bounds: Bounds, watch: Watch) -> sympy.Expr:
    base, modulus = expr.args
    k = _period(base, modulus, bounds)
    if k is None or bounds.interval(base)[0] < 0:
        watch.wrap(base, modulus)
        return expr
    return base - k * modulus


def _extreme_rule(expr: sympy.Expr, bounds: Bounds, watch: Watch) -> sympy.Expr:
    keep = list(expr.args)
    smallest = isinstance(expr, (Min, sympy.Min))
    for a in expr.args:
        for b in keep:
            difference = b - a if smallest else a - b  # <= 0 means that b makes a superfluous
            if b != a and len(keep) > 1 and bounds.negative(difference - 1) is True:
                keep = [x for x in keep if x != a]
                break
    if len(keep) == 1:
        return keep[0]
    for a, b in zip(keep, keep[1:], strict=False):
        watch.sign(a - b)
    return expr.func(*keep)


def _abs_rule(expr: sympy.Expr, bounds: Bounds, watch: Watch) -> sympy.Expr:
    inner = expr.args[0]
    below = bounds.negative(inner)
    if below is None:
        watch.turn(inner)
        return expr
    return -inner if below else inner


def _identity_rule(expr: sympy.Expr, bounds: Bounds, watch: Watch) -> sympy.Expr:
    """Inductor puts it around the index of an input of a concatenation, to keep the sum apart.

    What does not see through it finds no vector loads there.
    """
    return expr.args[0]


def _where_rule(expr: sympy.Expr, bounds: Bounds, watch: Watch) -> sympy.Expr:
    condition, yes, no = expr.args
    said = decide(condition, bounds, watch)
    return expr if said is None else yes if said else no


def decide(condition: sympy.Basic, bounds: Bounds, watch: Watch) -> bool | None:
    """True or False where the bounds settle a sympy relation, else None (and `watch` hears it)."""
    if not isinstance(condition, sympy.core.relational.Relational):
        return None
    for kind, name in _RELATIONS:
        if isinstance(condition, kind):
            return compare(name, condition.lhs, condition.rhs, bounds, watch)
    return None


def compare(name: str, a: sympy.Expr, b: sympy.Expr, bounds: Bounds, watch: Watch) -> bool | None:
    """Settle `a name b` for integer expressions; name is lt, le, gt, ge, eq or ne."""
    difference = sympy.expand(a - b)
    if name in ("eq", "ne"):
        equal = _zero(difference, bounds, Watch())
        if equal is None:
            _zero(difference, bounds, watch)
            return None
        return equal == (name == "eq")
    below = below_zero(difference if name in ("lt", "ge") else difference - 1, bounds, watch)
    return None if below is None else below == (name in ("lt", "le"))


def _zero(expr: sympy.Expr, bounds: Bounds, watch: Watch) -> bool | None:
    """Whether expr == 0 everywhere, nowhere, or that is open."""
    below, not_above = below_zero(expr, bounds, watch), below_zero(expr - 1, bounds, watch)
    if below is True or not_above is False:
        return False
    return True if below is False and not_above is True else None


def below_zero(expr: sympy.Expr, bounds: Bounds, watch: Watch) -> bool | None:
    """Whether expr < 0 everywhere, nowhere, or that is open: then `watch` hears where it changes.

    |a| < 3 is a < 3 and -a < 3, and so are minima and maxima taken apart.
    """
    below, parts = bounds.negative(expr), _alternatives(expr)
    if below is not None:
        return below
    if parts is None:
        watch.sign(expr)
        return None
    every, alternatives = parts
    said = [below_zero(a, bounds, watch) for a in alternatives]
    if (not every) in said:  # one is enough
        return not every
    return None if None in said else every


def _alternatives(expr: sympy.Expr) -> tuple[bool, list[sympy.Expr]] | None:
    """Expressions without one |a|, min or max of this one, which is below 0 where they are.

    True beside them: where all are; False: where any of them is.
    """
    for part in sorted(expr.atoms(sympy.Abs, Min, Max, sympy.Min, sympy.Max), key=str):
        slope = expr.coeff(part, 1)
        rest = sympy.expand(expr - slope * part)
        if not isinstance(slope, sympy.Integer) or slope == 0 or rest.has(part):
            continue
        greatest = not isinstance(part, (Min, sympy.Min))
        values = (part.args[0], -part.args[0]) if isinstance(part, sympy.Abs) else part.args
        return (slope > 0) == greatest, [sympy.expand(rest + slope * v) for v in values]
    return None


_RELATIONS = (
    (sympy.Lt, "lt"),
    (sympy.Le, "le"),
    (sympy.Gt, "gt"),
    (sympy.Ge, "ge"),
    (sympy.Eq, "eq"),
    (sympy.Ne, "ne"),
)

_RULES = {
    FloorDiv: _floor_rule,
    ModularIndexing: _modular_rule,
    Mod: _mod_rule,
    PythonMod: _mod_rule,
    Min: _extreme_rule,
    Max: _extreme_rule,
    sympy.Min: _extreme_rule,
    sympy.Max: _extreme_rule,
    sympy.Abs: _abs_rule,
    Where: _where_rule,
    Identity: _identity_rule,
}
