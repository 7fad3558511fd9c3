"""Pieces side by side along the innermost axis, run row by row in one loop over the outer axes.

One loop after another for each piece would pass over the same rows several times: touch every cache
line at a join twice, and write memory in short strips. Inductor's own outer loop fusion makes the
loop that they share.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torch._inductor.codegen.cpp import LoopLevel, OuterLoopFusedKernel

from torch_piecewise.loops.ir import Box

from .piece import PieceKernel
from .versions import size_hint

ROWS_PER_THREAD = 8  # fewer rows than this are no work to share among threads


@dataclass(frozen=True)
class Loops:
    """The generated loops of a piece, or of pieces that reduce into the same values.

    They are not yet written out; the box is that of the first piece.
    """

    box: Box
    comment: str
    kernel: Any  # a CppKernelProxy, whose loops exist once its code does


class CommentedLoop(LoopLevel):
    """A loop under a comment."""

    comment: str

    @staticmethod
    def of(loop: LoopLevel, comment: str) -> CommentedLoop:
        result: Any = copy.copy(loop)
        result.__class__ = CommentedLoop
        result.comment = comment
        assert isinstance(result, CommentedLoop)
        return result

    def lines(self) -> list[str] | None:
        lines: list[str] | None = super().lines()  # type: ignore[no-untyped-call]
        return lines and [self.comment, *lines]


def joined(pieces: Sequence[Loops], outer: int, threads: int) -> Iterator[Loops]:
    """The pieces in order, those of the same ranges on the `outer` first axes as one kernel."""
    for _, same in groupby(pieces, key=lambda p: p.box.ranges[:outer]):
        row = list(same)
        if len(row) > 1 and _can_share(row, outer, threads):
            yield _one_kernel(row, outer)
        else:
            yield from row


def _can_share(row: Sequence[Loops], depth: int, threads: int) -> bool:
    """Whether all have plain loops over the outer axes, with rows enough for every thread."""
    if depth == 0:
        return False
    for piece in row:
        if not isinstance(piece.kernel, PieceKernel):
            return False
        nest: Any = piece.kernel.loop_nest
        loops = nest.loops
        if loops is None or len(loops) <= depth:
            return False
        if any(loop.steps != 1 or loop.is_reduction for loop in loops[:depth]):
            return False
    rows = math.prod(size_hint(stop - start) for start, stop in row[0].box.ranges[:depth])
    return threads == 1 or rows >= ROWS_PER_THREAD * threads


def _one_kernel(row: Sequence[Loops], depth: int) -> Loops:
    first = row[0].kernel
    shared = OuterLoopFusedKernel(first.kernel_group)  # type: ignore[no-untyped-call]
    for piece in row:
        inner = piece.kernel.loop_nest.from_loop_level(depth)
        inner.loops[0] = CommentedLoop.of(inner.loops[0], piece.comment)
        shared.inner.append(inner)
    first.loop_nest.kernel = shared
    first.loop_nest.loops = first.loop_nest.loops[:depth]
    count = f"// {len(row)} pieces, row by row"
    return Loops(row[0].box, count, first)
