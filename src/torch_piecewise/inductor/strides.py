"""The step of an index along an axis, read off the terms that are linear in that axis.

Inductor asks for it many times a kernel (`stride_at_vec_range`), to choose which axis to vectorise,
and lets sympy simplify the whole expression each time: a large part of a compile, paid again for
every piece of a nest. Terms without the axis cancel, and a term `number * axis` adds its number:
after folding that is all there is. Only what is left, wraps and floors, is asked of Inductor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import sympy
from torch._inductor.codegen import cpp

from . import scope

Asked = Callable[..., sympy.Expr]


def install() -> None:
    """Put the short way in front of Inductor's, for compiles of ours; does so once."""
    names = vars(cpp)
    theirs = names["stride_at_vec_range"]
    if not hasattr(theirs, "inductors"):
        names["stride_at_vec_range"] = _with_short_way(theirs)


def _with_short_way(theirs: Asked) -> Asked:
    # theirs keeps its last 128 answers: fewer than one nest of many pieces asks for
    remembered = functools.lru_cache(maxsize=8192)(theirs)

    def stride_at_vec_range(
        index: sympy.Expr, var: sympy.Symbol, vec_length: int | None = None
    ) -> sympy.Expr:
        if scope.current() is None:
            return theirs(index, var, vec_length)
        step, rest = linear_part(index, var)
        return step + remembered(rest, var, vec_length) if rest else step

    stride_at_vec_range.inductors = theirs  # type: ignore
    return stride_at_vec_range


def linear_part(index: sympy.Expr, var: sympy.Symbol) -> tuple[sympy.Expr, sympy.Expr]:
    """The number that multiplies `var`, and the sum of the other terms that `var` is in."""
    step: sympy.Expr = sympy.S.Zero
    rest: list[sympy.Expr] = []
    for term in sympy.Add.make_args(index):
        if term.has(var):
            number, factor = term.as_coeff_Mul()
            if factor == var:
                step += number
            else:
                rest.append(term)
    return step, sympy.Add(*rest)
