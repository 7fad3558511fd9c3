"""Cuts close to the ends of a long vectorised axis, moved to where whole vectors end.

A boundary one element wide as a piece of its own is a fraction of a vector, and so is what is left
at the end of the rest, all of whose stores straddle cache lines. Whole vectors that keep the
boundary's condition take less: a lattice step of 512 columns 1.2 times less.
"""

from __future__ import annotations

import sympy

from torch_piecewise.loops.ir import LoopNest
from torch_piecewise.loops.seams import WHOLE
from torch_piecewise.loops.split import Cuts

from .cost import vector_axis

LONG = 16 * WHOLE  # on a shorter axis the whole vectors at the ends are much of it


def moved(position: int, size: int) -> int:
    """Where a piece begins for a seam at `position` of a vectorised axis."""
    if size < LONG:
        return position
    if 0 < position < WHOLE:
        return WHOLE
    return position if position <= size - WHOLE else position // WHOLE * WHOLE


def in_whole_vectors(cuts: Cuts, nest: LoopNest) -> Cuts:
    """The cuts, those of the vectorised axis moved where they are close to its ends.

    Only of an innermost axis that is iterated and has a known size.
    """
    axis = nest.axes[-1] if nest.axes else None
    if axis is None or axis.reduce or vector_axis(nest) != axis.symbol:
        return cuts
    at = cuts.get(axis.symbol, ())
    if not all(isinstance(e, sympy.Integer) for e in (axis.size, *at)):
        return cuts
    places = sorted({moved(int(p), int(axis.size)) for p in at})
    return {**cuts, axis.symbol: tuple(map(sympy.Integer, places))}
