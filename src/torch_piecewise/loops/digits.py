"""Conditions over an index that is spread over several axes, as digits make up a number.

Views and Inductor's own loop splits write one index `x` as `30*i + j` with `j` in [0, 30). Then
`x < c` changes on the leading axis `i`, but for the one row that `c` falls into.
"""

from __future__ import annotations

import sympy

from .bounds import Bounds
from .ir import LoopNest


def without_single(expr: sympy.Expr, nest: LoopNest) -> sympy.Expr:
    """The expression with axes of size 1 gone: they are 0."""
    single = {a.symbol: sympy.S.Zero for a in nest.axes if a.size == 1}
    return expr.xreplace(single) if single else expr


def leading_axis(
    expr: sympy.Expr, nest: LoopNest, bounds: Bounds
) -> tuple[sympy.Symbol, int, int] | None:
    """The axis that decides the sign of `expr`, and from where to where it leaves that open.

    `(axis, first, last)`: the sign is settled before `first` and, the other way, from `last` on;
    between them is at most one row. None where no axis outweighs the others together.
    """
    slopes = expr.as_coefficients_dict()
    offset = slopes.pop(sympy.S.One, sympy.S.Zero)
    axes = {a.symbol: a for a in nest.axes}
    if len(slopes) < 2 or not slopes.keys() <= axes.keys():
        return None
    if not all(isinstance(s, sympy.Integer) for s in (offset, *slopes.values())):
        return None
    axis = max(slopes, key=lambda a: (abs(slopes[a]), str(a)))
    step = int(slopes[axis])
    low, high = bounds.interval(expr - step * axis)
    if axes[axis].reduce or not high - low < abs(step):  # infinite where a size is not known
        return None
    low, high = int(low), int(high)
    if step > 0:  # step * axis + rest < 0 until ceil(-rest / step)
        return axis, -(high // step), -(low // step)
    return axis, low // -step + 1, high // -step + 1
