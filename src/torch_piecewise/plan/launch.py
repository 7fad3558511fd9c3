"""Decide for a nest on a GPU which ranges its one launch has, and how they are tiled.

The ranges of a launch share its blocks: the number of a block says which range it works on, and
which tile of that. What splitting takes away are instructions, so that a nest which moves memory as
fast as the card can is left alone. Where splitting promises enough, both are generated, and the
first call measures which is faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import sympy

from torch_piecewise.loops.ir import Box, LoopNest
from torch_piecewise.loops.seams import SeamSearch
from torch_piecewise.loops.split import Cuts, boxes, movable

from .choose import (
    MOST_PRICED,
    Cutting,
    Pricing,
    at_best,
    choose_boxes,
    count_boxes,
    joined,
    judge,
    under_cap,
    worthwhile,
)
from .cost import Size
from .instructions import H200, SECTOR, Gpu, instructions, misaligned, traffic
from .plan import Reason

MOST_RANGES = 12  # each is code of its own in the launch, and compiles for its own time
UNIT = 64  # elements that a range should start at a multiple of: whole lines of memory
LONG = 16 * UNIT  # in a shorter row the ranges beside a cut are too much of it


@dataclass(frozen=True)
class LaunchPricing(Pricing):
    """Nanoseconds that the instructions of boxes of a nest take: see `choose.Priced`."""

    held: bool = False  # whether there are boxes that must not be moved
    own: frozenset[str] = frozenset()  # buffers that live in the nest only
    gpu: Gpu = H200

    @cached_property
    def whole(self) -> float:
        return instructions(self.nest, self.size, flat=True) / self.gpu.slots

    @cached_property
    def start(self) -> float:
        return 0.0

    @cached_property
    def price(self) -> Callable[[Box], float]:
        def price(box: Box) -> float:
            if self.held and not movable(self.nest, box):
                return math.inf
            piece = self.restricted(box)
            moved = (traffic(piece, self.size, self.own, sector) for sector in (SECTOR, 0))
            wasted = next(moved) - next(moved)
            return instructions(piece, self.size) / self.gpu.slots + wasted / self.gpu.bytes

        return lru_cache(maxsize=None)(price)

    @cached_property
    def inside(self) -> Callable[[Box], float]:
        return self.price

    def placed(self, found: Sequence[Box]) -> tuple[Box, ...]:
        return tuple(found)

    def memory(self, cuts: Cuts) -> float:
        """Nanoseconds for the memory that the nest moves: under masks no more than inside cuts."""
        few = count_boxes(cuts) <= MOST_PRICED
        found = [self.restricted(box) for box in boxes(self.nest, cuts if few else {})]
        moved = sum(traffic(nest, self.size, self.own, 0) for nest in found)
        return moved / self.gpu.bytes


def choose_ranges(
    search: SeamSearch,
    split: str,
    max_pieces: int,
    size: Size,
    inside: frozenset[str] = frozenset(),
) -> Cutting:
    """The ranges of one launch, none where the nest is left to Inductor.

    One range that is all of the nest differs from Inductor's by its tiles. `inside` are buffers
    that nothing but the nest needs.
    """
    nest = search.nest
    pricing = LaunchPricing(nest, size, bool(search.held), inside)
    cuts = aligned({**search.cuts, **search.held}, nest)
    most = min(max_pieces, MOST_RANGES)
    if split == "seams":
        found, reason, notes = choose_boxes(cuts, pricing, split, most, 1)
        if not all(pricing.price(box) < math.inf for box in found):
            return Cutting((), Reason("negative-wrap", nest.name, "of all cuts too few are left"))
        return Cutting(tuple((box, pricing.restricted(box)) for box in found), reason, notes)
    memory = pricing.memory(cuts)
    whole = max(pricing.whole, memory)
    best = max(at_best(cuts, pricing, whole), memory)
    hoped = judge(split, nest.name, whole, best, count_boxes(cuts), bound=True)
    if not hoped.split:
        return Cutting((), hoped.reason)
    kept, notes = under_cap(worthwhile(cuts, pricing), most, pricing)
    if max_pieces > MOST_RANGES:
        notes = tuple(replace(n, hint=f"a launch has {MOST_RANGES} ranges at most") for n in notes)
    found = joined(boxes(nest, kept), pricing.price)
    takes = max(sum(map(pricing.price, found)), memory)
    choice = judge(split, nest.name, whole, takes, len(found))
    if not choice.split:
        return Cutting((), choice.reason, notes)
    return Cutting(tuple((box, pricing.restricted(box)) for box in found), choice.reason, notes)


def aligned(cuts: Cuts, nest: LoopNest) -> dict[sympy.Symbol, tuple[sympy.Expr, ...]]:
    """The cuts, those of the innermost axis only where vectors end.

    One elsewhere becomes two, with a narrow range between them that keeps the masks. In rows of no
    whole number of vectors there are no such places.
    """
    result = {axis: tuple(at) for axis, at in cuts.items()}
    axis = nest.axes[-1]
    at = result.get(axis.symbol, ())
    if not at or not all(isinstance(p, sympy.Integer) for p in (*at, axis.size)):
        return result
    size = int(axis.size)
    if size % UNIT or size < LONG:
        return result
    places = {p // UNIT * UNIT for p in map(int, at)} | {-(-p // UNIT) * UNIT for p in map(int, at)}
    result[axis.symbol] = tuple(map(sympy.Integer, sorted(places - {0, size})))
    return result


def tile(height: int, width: int, elements: int, waste: float) -> tuple[int, int]:
    """Columns and rows of a range's tiles: powers of two with about `elements` elements.

    The widest whose last tile of a row wastes at most `waste` more than the best.
    """
    if height == 1:
        return min(elements, power_of_two(width)), 1
    widest = min(elements, power_of_two(width), 1024)
    widths = [widest >> k for k in range(8) if widest >> k >= min(64, widest)]
    wasted = {w: math.ceil(width / w) * w / width for w in widths}
    columns = max(w for w in widths if wasted[w] <= min(wasted.values()) * (1 + waste))
    return columns, max(1, min(elements // columns, power_of_two(height)))


def power_of_two(number: int) -> int:
    """The smallest that is not below."""
    return 1 << max(0, number - 1).bit_length()


def told(reason: Reason, split: str) -> Reason:
    """The reason to cut, with what is measured later."""
    if split != "auto":
        return reason
    text = f"{reason.text}; the first call times it against the whole"
    return Reason(reason.code, reason.where, text, reason.hint)


@dataclass(frozen=True)
class Tiles:
    """The shape of a range's tiles: powers of two."""

    columns: int
    rows: int = 1


@dataclass(frozen=True)
class Way:
    """One way to run a launch: the ranges that it uses, by number, with their tiles, and warps."""

    tiles: Mapping[int, Tiles]
    warps: int


@dataclass(frozen=True)
class Shape:
    """How many elements one block works on, by how many warps, and what a row may waste."""

    elements: int
    warps: int
    waste: float


LIGHT = Shape(2048, 4, 0.04)
HEAVY = Shape(1024, 4, 0.04)
MANY = 60.0  # instructions for an element, from which more elements a lane only cost registers
# Where most accesses can't be made by vectors, lanes that are neighbours should work on neighbours.
SCALAR = Shape(1024, 8, 0.04)
MISALIGNED = 0.4  # of the accesses
# as Inductor's for a nest of one long row; the second is better for some that are scalar
WHOLE = (Shape(1024, 4, 0.0), Shape(512, 8, 0.0))
FEW = (Shape(256, 4, 0.1), Shape(128, 2, 0.1))  # where there is little work


@dataclass(frozen=True)
class Extent:
    """Rows and columns of a range; what decides about the work of one lane, for its nest."""

    rows: int
    columns: int
    nest: LoopNest | None = None

    @property
    def points(self) -> int:
        return self.rows * self.columns


def shape_of(nest: LoopNest, size: Size) -> Shape:
    """What suits the largest range of a launch."""
    if misaligned(nest) >= MISALIGNED:
        return SCALAR
    points = math.prod(size(a.size) for a in nest.axes)
    return HEAVY if instructions(nest, size) >= MANY * points else LIGHT


def ways(
    parts: Sequence[Extent], whole: Extent | None, size: Size, gpu: Gpu = H200
) -> tuple[Way, ...]:
    """How to run a launch: by the `parts`, and as the `whole`, a range behind them.

    More ways would find a few percent, and cost their compile time each.
    """
    largest = max(parts, key=lambda part: part.points)
    assert largest.nest is not None
    own = shape_of(largest.nest, size)
    total = sum(part.points for part in parts)
    if total < 2 * gpu.multiprocessors * own.elements:  # some would have no work
        own = FEW[0] if total >= gpu.multiprocessors * FEW[0].elements else FEW[1]
    found = [Way({k: _tiles(part, own) for k, part in enumerate(parts)}, own.warps)]
    if whole is not None:
        for each in _whole_shapes(own):
            found.append(Way({len(parts): _tiles(whole, each)}, each.warps))
    return tuple(found)


def _whole_shapes(own: Shape) -> tuple[Shape, ...]:
    """How the nest as a whole is run, beside parts of a shape."""
    if own in FEW:
        return (own,)
    return WHOLE if own == SCALAR else WHOLE[:1]


def _tiles(part: Extent, own: Shape) -> Tiles:
    return Tiles(*tile(part.rows, part.columns, own.elements, own.waste))
