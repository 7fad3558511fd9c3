"""Decide for one nest which of its seams to cut, and whether its pieces are worth having.

`"seams"` cuts wherever a seam is. `"auto"` cuts where `cost` says that a cut saves more than one
more piece of code is worth, and leaves the nest whole where all cuts together save too little. Both
keep under the cap on pieces by giving up the cuts that save least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby, pairwise
from typing import Protocol

import sympy

from torch_piecewise.loops.idle import adds_nothing
from torch_piecewise.loops.ir import Axis, Box, LoopNest
from torch_piecewise.loops.split import Cuts, boxes, restrict

from .cost import Size, cost, inside, shown, starts
from .plan import Reason
from .vectors import in_whole_vectors

LEAST_GAIN = 1.05  # estimated speed-up below which a nest stays whole
# In nanoseconds of one run:
LEAST_SAVING = 3_000.0  # below this no one sees the difference, and more code costs compile time
PIECE_WORTH = 500.0  # what one more piece has to save, for the same reason
START = 30.0  # starting one more loop
START_THREADS = 300.0  # where threads share its iterations
LEAST_SHARE = 0.01  # of the nest's time, that a cut has to save
MOST_PRICED = 36  # boxes of one nest

Pieces = tuple[tuple[Box, LoopNest], ...]


@dataclass(frozen=True)
class Choice:
    """What to do with a nest, and why."""

    split: bool
    reason: Reason


@dataclass(frozen=True)
class Cutting:
    """The pieces of a nest, none where it stays whole, why, and which cuts were given up."""

    pieces: Pieces
    reason: Reason
    notes: tuple[Reason, ...] = ()


class Priced(Protocol):
    """Loops with estimates for their boxes: one nest, or what several nests share."""

    @property
    def nest(self) -> LoopNest: ...
    @property
    def size(self) -> Size: ...
    @property
    def whole(self) -> float: ...
    @property
    def start(self) -> float: ...
    @property
    def price(self) -> Callable[[Box], float]: ...
    @property
    def inside(self) -> Callable[[Box], float]: ...
    def placed(self, found: Sequence[Box]) -> tuple[Box, ...]: ...


@dataclass(frozen=True)
class Pricing:
    """Estimates for boxes of one nest; each box is restricted once."""

    nest: LoopNest
    size: Size

    @cached_property
    def whole(self) -> float:
        """What the nest takes uncut."""
        return cost(self.nest, self.size)

    @cached_property
    def start(self) -> float:
        """The part of it that starting loops takes."""
        return starts(self.nest, self.size)

    @cached_property
    def restricted(self) -> Callable[[Box], LoopNest]:
        return lru_cache(maxsize=None)(lambda box: restrict(self.nest, box))

    @cached_property
    def price(self) -> Callable[[Box], float]:
        def price(box: Box) -> float:
            within = self.inside(box)
            return within + starts(self.restricted(box), self.size) if within else 0.0

        return lru_cache(maxsize=None)(price)

    @cached_property
    def inside(self) -> Callable[[Box], float]:
        """The price without what starting loops takes."""

        def inside_of(box: Box) -> float:
            piece = self.restricted(box)
            return 0.0 if adds_nothing(piece) else inside(piece, self.size)

        return lru_cache(maxsize=None)(inside_of)

    def placed(self, found: Sequence[Box]) -> tuple[Box, ...]:
        """The boxes where the pieces are: priced at the seams, they stand at whole vectors."""
        return in_whole_vectors(found, self.nest)


def choose(
    nest: LoopNest, cuts: Cuts, split: str, max_pieces: int, threads: int, size: Size
) -> Cutting:
    """Choose among the cuts of a nest. `size` says what is not known when compiling."""
    pricing = Pricing(nest, size)
    found, reason, notes = choose_boxes(cuts, pricing, split, max_pieces, threads)
    return Cutting(tuple((box, pricing.restricted(box)) for box in found), reason, notes)


def choose_boxes(
    cuts: Cuts, pricing: Priced, split: str, max_pieces: int, threads: int
) -> tuple[tuple[Box, ...], Reason, tuple[Reason, ...]]:
    """The boxes to cut into, none where all stays whole, why, and which cuts were given up."""
    name, kept = pricing.nest.name, cuts
    if split == "auto":
        most, count = pricing.whole / LEAST_GAIN, count_boxes(cuts)
        hoped = judge(split, name, pricing.whole, at_best(cuts, pricing, most), count, bound=True)
        if not hoped.split:
            return (), hoped.reason, ()
        kept = worthwhile(cuts, pricing)
        if not kept:
            text = f"none of its {sum(map(len, cuts.values()))} cuts saves enough"
            return (), Reason("no-gain", name, text, HINT), ()
    kept, notes = under_cap(kept, max_pieces, pricing)
    if not kept:
        return (), notes[0], notes
    found = boxes(pricing.nest, kept)
    if split == "auto":
        found = joined(found, pricing.price)
    cut = sum(map(pricing.price, found)) / threads + loop_cost(threads) * len(found)
    if split == "auto":
        found = pricing.placed(found)
    choice = judge(split, name, pricing.whole / threads, cut, len(found))
    return found if choice.split else (), choice.reason, notes


HINT = 'split="seams" cuts it all the same'


def judge(
    split: str,
    where: str,
    whole: float,
    cut: float,
    count: int,
    bound: bool = False,
) -> Choice:
    """Weigh what `count` pieces take against what the whole takes, both in nanoseconds.

    `bound`: the pieces take at least that.
    """
    gain = whole / max(cut, 1.0)
    least, most = ("at least ", "at most ") if bound else ("", "")
    text = f"estimated {shown(whole)} whole, {least}{shown(cut)} in {count} pieces"
    text += f": gain {most}{gain:.2f}"
    if split == "seams":
        return Choice(True, Reason("seams", where, text))
    if gain < LEAST_GAIN:
        return Choice(False, Reason("no-gain", where, f"{text}, under {LEAST_GAIN}", HINT))
    if whole - cut < LEAST_SAVING:
        text += f", which saves less than {shown(LEAST_SAVING)}"
        return Choice(False, Reason("small", where, text, HINT))
    return Choice(True, Reason("gain", where, text))


def loop_cost(threads: int) -> float:
    """What one more loop costs, however short."""
    return START if threads == 1 else START_THREADS


def at_best(cuts: Cuts, pricing: Priced, most: float) -> float:
    """What all of the cuts would take if loops started for nothing: no choice of them takes less.

    Most nests are done with here, before every cut is weighed. The boxes are added up from the
    largest on, until they take more than `most`. Of more boxes than can be looked at the largest
    stands for all, which is a guess.
    """
    nest, size = pricing.nest, pricing.size
    if count_boxes(cuts) > MOST_PRICED:
        largest = [max(pairwise(_ends(nest, cuts, a)), key=_length(size)) for a in nest.axes]
        box = Box(tuple(a.symbol for a in nest.axes), tuple(largest))
        return pricing.inside(box) * _points(nest.axes, size) / max(_extent(box, size), 1)
    takes = pricing.start
    for box in sorted(boxes(nest, cuts), key=lambda box: -_extent(box, size)):
        takes += pricing.inside(box)
        if takes > most:
            break
    return takes


def _points(axes: Sequence[Axis], size: Size) -> int:
    return math.prod(size(axis.size) for axis in axes)


def _extent(box: Box, size: Size) -> int:
    return math.prod(map(_length(size), box.ranges))


def _ends(nest: LoopNest, cuts: Cuts, axis: Axis) -> tuple[sympy.Expr, ...]:
    return (sympy.S.Zero, *cuts.get(axis.symbol, ()), axis.size)


def _length(size: Size) -> Callable[[tuple[sympy.Expr, sympy.Expr]], int]:
    return lambda ends: size(ends[1] - ends[0])


def worthwhile(cuts: Cuts, pricing: Priced) -> dict[sympy.Symbol, tuple[sympy.Expr, ...]]:
    """The cuts that save enough."""
    least = max(PIECE_WORTH, LEAST_SHARE * pricing.whole)
    kept = {axis: tuple(at) for axis, at in cuts.items() if at}
    while kept:
        axis, position, saving = _least(kept, pricing)
        if saving >= least:
            break
        kept = _without(kept, axis, position)
    return kept


def under_cap(
    cuts: Cuts, max_pieces: int, pricing: Priced
) -> tuple[dict[sympy.Symbol, tuple[sympy.Expr, ...]], tuple[Reason, ...]]:
    """Cuts that make at most `max_pieces`, and a reason where that needed some given up."""
    kept = {axis: tuple(at) for axis, at in cuts.items() if at}
    count = count_boxes(kept)
    given_up = 0
    while kept and count_boxes(kept) > max_pieces:
        axis, position, _ = _least(kept, pricing)
        kept = _without(kept, axis, position)
        given_up += 1
    if not given_up:
        return kept, ()
    text = f"{count} pieces at its seams, the cap is {max_pieces}"
    hint = "raise the option max_pieces"
    if not kept:
        return {}, (Reason("too-many-pieces", pricing.nest.name, text, hint),)
    text += f": {given_up} of the cuts, which save least, left out, {count_boxes(kept)} pieces"
    return kept, (Reason("joined", pricing.nest.name, text, hint),)


def joined(found: Sequence[Box], price: Callable[[Box], float]) -> tuple[Box, ...]:
    """The boxes, those of one row joined where together they cost hardly more than apart.

    A row are boxes that differ along one axis only: corners and edges of a boundary, for one.
    """
    result = tuple(found)
    for k in reversed(range(len(result[0].axes))):
        rows = groupby(result, key=lambda box: (box.ranges[:k], box.ranges[k + 1 :]))
        result = tuple(box for _, row in rows for box in _joined_row(tuple(row), k, price))
    return result


def _joined_row(row: tuple[Box, ...], k: int, price: Callable[[Box], float]) -> tuple[Box, ...]:
    kept = [row[0]]
    for box in row[1:]:
        ranges = list(box.ranges)
        ranges[k] = (kept[-1].ranges[k][0], ranges[k][1])
        together = Box(box.axes, tuple(ranges))
        if price(together) <= price(kept[-1]) + price(box) + PIECE_WORTH:
            kept[-1] = together
        else:
            kept.append(box)
    return tuple(kept)


def count_boxes(cuts: Cuts) -> int:
    """How many boxes the cuts make."""
    return math.prod(len(positions) + 1 for positions in cuts.values())


def _without(
    cuts: Mapping[sympy.Symbol, tuple[sympy.Expr, ...]], axis: sympy.Symbol, position: sympy.Expr
) -> dict[sympy.Symbol, tuple[sympy.Expr, ...]]:
    left = tuple(p for p in cuts[axis] if p != position)
    return {a: left if a == axis else at for a, at in cuts.items() if a != axis or left}


def _least(cuts: Cuts, pricing: Priced) -> tuple[sympy.Symbol, sympy.Expr, float]:
    """The cut that saves least: axis, position, nanoseconds.

    Some conditions are decided only where several axes are cut, so a cut is judged with those of
    the other axes in place, unless that makes too many boxes to look at.
    """
    others = cuts if count_boxes(cuts) <= MOST_PRICED else {}

    def saving(axis: sympy.Symbol, k: int) -> float:
        def total(positions: Sequence[sympy.Expr]) -> float:
            found = boxes(pricing.nest, {**others, axis: positions})
            return sum(map(pricing.price, found))

        at = cuts[axis]
        return total((*at[:k], *at[k + 1 :])) - total(at)

    every = [(a, at[k], saving(a, k)) for a, at in cuts.items() for k in range(len(at))]
    return min(every, key=lambda found: found[2])
