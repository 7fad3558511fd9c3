"""Which axis the parts of a reduction are vectorised along: all of them along the same one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from torch._inductor import config
from torch._inductor.codegen.cpp import VECTORIZABLE_DTYPES, TilingSelect
from torch._inductor.codegen.cpp_utils import _get_dtype_from_loopbodies, _get_loop_body
from torch.utils._sympy.functions import FloorDiv

from .piece import shown_with_all_axes
from .versions import size_hint


@dataclass(frozen=True)
class Tiling:
    """`factor` elements of axis number `axis` at a time; no vectors where the factor is 0.

    `masked`: a mask would make much of the work dearer. Then a short end of a range is better done
    one element at a time.
    """

    factor: int
    axis: int = 0
    masked: bool = False

    def whole_vectors(self, size: sympy.Expr) -> sympy.Expr:
        """How many of `size` elements fill vectors."""
        return FloorDiv(size, self.factor) * self.factor

    def vector_tail(self, size: sympy.Expr) -> bool:
        """Whether the last of `size` elements are one masked vector; as Inductor decides."""
        if not config.cpp.enable_loop_tail_vec:
            return False
        return not self.masked or 2 * (size_hint(size) % self.factor) > self.factor


NO_TILING = Tiling(0)


def preferred(functions: Sequence[Any], var_sizes: Sequence[Any]) -> Tiling:
    """What Inductor would choose for these bodies.

    Where it would transpose blocks of two axes, the last axis is taken: the reduction's.
    """
    shown = shown_with_all_axes(functions)
    factors, axes, *stats = TilingSelect().select_tiling(shown, var_sizes)
    if not factors:
        return NO_TILING
    iterate, reduce = max(var_sizes, key=lambda sizes: len(sizes[1]))
    return Tiling(factors[-1], axes[-1] % (len(iterate) + len(reduce)), _often_masked(*stats))


def _often_masked(stats: Any = None) -> bool:
    if stats is None:
        return False
    operations = sum(stats.op_counter.values())
    dear = stats.mask_op_count + sum(stats.non_contig_indexing_op_counter.values())
    return bool(operations > 0 and dear / operations > stats.OVERHEAD_RATIO_THRESHOLD)


def vectorisable(functions: Sequence[Any]) -> bool:
    """Whether Inductor has vectors of all the dtypes in these bodies."""
    dtypes = _get_dtype_from_loopbodies(_get_loop_body(functions))
    return all(dtype in VECTORIZABLE_DTYPES for dtype in dtypes)


def accesses(functions: Sequence[Any]) -> int:
    """How often these bodies load or store an element, at every point."""
    blocks = [
        block
        for body in _get_loop_body(functions)
        for block in (body.root_block, *body.subblocks.values())
    ]
    return sum(node.target in ("load", "store") for b in blocks for node in b.graph.nodes)


def common(parts: Sequence[Any], depth: int) -> Tiling:
    """The tiling of the part with most accesses; `depth` is the number of outer axes.

    A part of constants has no preference worth following, however large it is.

    Along an inner axis a part that has no vectors adds to the scalar accumulators beside the
    others. Along an outer axis that is not possible: then no part has any.
    """
    largest = max(parts, key=lambda part: part.accesses * size_hint(sympy.Mul(*part.points)))
    tiling: Tiling = largest.tiling
    if tiling.factor and tiling.axis < depth and not all(part.vectorisable for part in parts):
        return NO_TILING
    return tiling
