"""Decide for one nest whether its pieces are worth having.

`"seams"` cuts wherever a seam is. `"auto"` cuts where an estimate says that the pieces together do
clearly less work than the whole: the work of a body is counted from its operations, each with the
weight it has inside a vectorised loop. Memory traffic is the same either way, so it only dilutes
the gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import sympy
from torch.utils._sympy.functions import FloorDiv, Mod, ModularIndexing, PythonMod

from torch_piecewise.loops.ir import Block, LoopNest, operands
from torch_piecewise.loops.split import Cuts

from .plan import Reason

LEAST_GAIN = 1.08  # estimated speed-up below which a nest stays whole
# In the unit of the estimates: one vectorised operation on one element, some 0.07 ns on the machine
# that the weights were fitted on.
LEAST_SAVING = 100_000.0  # below this no one sees the difference, and more code costs compile time
PIECE_COST = 2_000.0  # starting one more loop
BARRIER_COST = 20_000.0  # and waiting for the other threads at its end
INNER_COST = 20.0  # starting one more loop inside another, each time

# Weights relative to one vectorised arithmetic operation per element.
_HEAVY = frozenset(
    "exp exp2 expm1 log log1p log2 log10 pow sin cos tan tanh sigmoid erf erfc lgamma atan2 "
    "sinh cosh asin acos atan asinh acosh atanh rsqrt sqrt truediv fmod remainder".split()
)
_FREE = frozenset(("constant", "getitem", "identity"))
_MEMORY = frozenset(("load", "store", "store_reduction"))


@dataclass(frozen=True)
class Choice:
    """What to do with a nest, and why."""

    split: bool
    reason: Reason


def choose(
    split: str,
    nest: LoopNest,
    pieces: Sequence[LoopNest],
    points: Callable[[LoopNest], float],
    threads: int,
) -> Choice:
    """Weigh the pieces of a nest against the whole. `points` estimates a nest's loop iterations."""
    whole = work(nest) * points(nest)
    cut = sum(work(p) * points(p) for p in pieces) + len(pieces) * loop_cost(threads)
    return judge(split, nest.name, whole, cut, len(pieces))


def judge(split: str, where: str, whole: float, cut: float, count: int) -> Choice:
    """Weigh the estimated work of `count` pieces, `cut`, against that of the whole."""
    gain = whole / max(cut, 1.0)
    text = f"estimated work {whole:.3g} whole, {cut:.3g} in {count} pieces: gain {gain:.2f}"
    if split == "seams":
        return Choice(True, Reason("seams", where, text))
    hint = 'split="seams" cuts it all the same'
    if gain < LEAST_GAIN:
        return Choice(False, Reason("no-gain", where, f"{text}, under {LEAST_GAIN}", hint))
    if whole - cut < LEAST_SAVING:
        text += f", which saves less than {LEAST_SAVING:.0e}"
        return Choice(False, Reason("small", where, text, hint))
    return Choice(True, Reason("gain", where, text))


def loop_cost(threads: int) -> float:
    """What one more loop costs, however short."""
    return PIECE_COST if threads == 1 else PIECE_COST + BARRIER_COST


def under_cap(
    nest: LoopNest, cuts: Cuts, max_pieces: int, hint: Callable[[sympy.Expr], int]
) -> tuple[Cuts, Reason | None]:
    """Cuts that make at most `max_pieces`, and a reason where that needed something given up.

    Over the cap each axis keeps the ends of its longest range only: the ranges beside it are joined
    and keep their conditions. Where even that is too much the nest stays whole.
    """
    count = _count(cuts)
    if count <= max_pieces:
        return cuts, None
    coarse = {axis: _longest(nest, axis, at, hint) for axis, at in cuts.items()}
    fewer = _count(coarse)
    text = f"{count} pieces at its seams, the cap is {max_pieces}"
    hint_text = "raise the option max_pieces"
    if fewer > max_pieces:
        return {}, Reason("too-many-pieces", nest.name, text, hint_text)
    text += f": ranges beside the longest one of each axis are joined, {fewer} pieces"
    return coarse, Reason("joined", nest.name, text, hint_text)


def _count(cuts: Cuts) -> int:
    return math.prod(len(positions) + 1 for positions in cuts.values())


def _longest(
    nest: LoopNest,
    axis: sympy.Symbol,
    positions: Sequence[sympy.Expr],
    hint: Callable[[sympy.Expr], int],
) -> tuple[sympy.Expr, ...]:
    """The ends of the longest range of an axis, those that are cuts."""
    ends = (sympy.Integer(0), *positions, nest.axis(axis).size)
    start, stop = max(pairwise(ends), key=lambda r: hint(r[1] - r[0]))
    return tuple(p for p in positions if p in (start, stop))


def work(nest: LoopNest) -> float:
    """Weighted operations for one point of the nest."""
    inner = nest.axes[-1].symbol if nest.axes else None
    return sum(_block_work(body.block, inner) for body in nest.bodies)


def _block_work(block: Block, inner: sympy.Symbol | None) -> float:
    total = 0.0
    for op in block.ops:
        if op.name == "masked":
            body = op.args[1]
            assert isinstance(body, Block)
            total += 3.0 + 1.5 * _block_work(body, inner)  # masked loads, blends, a jump around
        elif op.name in _MEMORY:
            total += 2.0
        elif op.name in _HEAVY:
            total += 8.0
        elif op.name == "check_bounds":
            total += 2.0 * any(op.args[2:])  # one that has nothing to check writes no code
        elif op.name not in _FREE:
            total += 1.0
        total += sum(_index_work(a, inner) for a in operands(op) if isinstance(a, sympy.Expr))
    return total


def _index_work(expr: sympy.Expr, inner: sympy.Symbol | None) -> float:
    """Wraps and floors: along the innermost axis they turn a vector load into scalar ones.

    Those of other axes are computed once for a whole innermost loop.
    """
    steps = expr.atoms(ModularIndexing, FloorDiv, Mod, PythonMod)
    return sum(12.0 if inner in s.free_symbols else 0.05 for s in steps)
