"""One iteration space for nodes that Inductor fused though their loops are written differently.

Inductor merges the loops of every node for itself, so that a node over [64, 32] may be fused with
one over [2048]. Their common refinement has all the loops: each index of a node is a number whose
digits are loops of the refinement.
"""

from __future__ import annotations

from collections.abc import Sequence

import sympy

Sizes = tuple[sympy.Expr, ...]


def refined(every: Sequence[Sizes]) -> Sizes | None:
    """The sizes of the common refinement, None where the spaces have none.

    Only leading sizes may be symbolic: an order of products of symbols can't be told.
    """
    total = sympy.prod(every[0])
    if not all(_equal(sympy.prod(sizes), total) for sizes in every):
        return None
    steps: set[int] = set()  # how many points one step of a loop goes on
    for sizes in every:
        step = 1
        for size in reversed(sizes[1:]):
            if not isinstance(size, sympy.Integer):
                return None
            step *= int(size)
            steps.add(step)
    found: list[sympy.Expr] = []
    before = 1
    for step in sorted(steps):
        if step % before:
            return None
        if step != before:
            found.append(sympy.Integer(step // before))
        before = step
    first = sympy.expand(total / before)
    if not found or first != 1:
        found.append(first)
    return tuple(reversed(found))


def with_reduction(spaces: Sequence[tuple[Sizes, Sizes]]) -> tuple[Sizes, Sizes] | None:
    """Iteration and reduction axes that refine those of all nodes, some of which reduce.

    Other nodes are over all points, or over those that are iterated only.
    """
    iterate, reduce = max(spaces, key=lambda space: len(space[1]))
    rows, columns = sympy.prod(iterate), sympy.prod(reduce)
    own = [(*first, *second) for first, second in spaces]
    every = refined([sizes for sizes in own if _equal(sympy.prod(sizes), rows * columns)])
    if every is None:
        return None
    count = next((k for k in range(len(every)) if _equal(sympy.prod(every[k:]), columns)), None)
    if count is None:
        return None
    over_rows = [first for first, second in spaces if not second]
    over_rows = [sizes for sizes in over_rows if _equal(sympy.prod(sizes), rows)]
    found = refined([every[:count] or (sympy.S.One,), *over_rows])
    return None if found is None else (found, every[count:])


def _equal(a: sympy.Expr, b: sympy.Expr) -> bool:
    return bool(sympy.expand(a - b) == 0)


def indices(
    sizes: Sizes, symbols: Sequence[sympy.Symbol], refinement: Sizes
) -> tuple[sympy.Expr, ...]:
    """The indices of a space of `sizes`, in the `symbols` of its refinement's loops."""
    if sizes == refinement:
        return tuple(symbols)
    found: list[sympy.Expr] = []
    left = list(zip(symbols, refinement, strict=True))
    for number in reversed(range(len(sizes))):
        index: sympy.Expr = sympy.S.Zero
        step: sympy.Expr = sympy.S.One
        while left and (number == 0 or step != sizes[number]):
            symbol, size = left.pop()
            index, step = index + step * symbol, step * size
        found.append(index)
    assert not left
    return tuple(reversed(found))
