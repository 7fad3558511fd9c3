"""Decide for a nest on a GPU which ranges its one launch has, and how they are tiled.

The ranges of a launch share its blocks: the number of a block says which range it works on, and
which tile of that. What splitting takes away are instructions, so that a nest which moves memory as
fast as the card can is left alone. Where splitting promises enough, both are generated, and the
first call measures which is faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import sympy

from torch_piecewise.loops.ir import Box, LoopNest
from torch_piecewise.loops.seams import SeamSearch
from torch_piecewise.loops.split import Cuts, boxes, movable, restrict

from .choose import (
    MOST_PRICED,
    Cutting,
    at_best,
    choose_boxes,
    count_boxes,
    joined,
    judge,
    under_cap,
    worthwhile,
)
from .cost import Size
from .instructions import H200, Gpu, instructions, traffic
from .plan import Reason

MOST_RANGES = 12  # each is code of its own in the launch, and compiles for its own time
UNIT = 16  # elements that stores of a range should start at a multiple of
LONG = 16 * UNIT  # in a shorter row the ranges beside a cut are too much of it


@dataclass(frozen=True)
class LaunchPricing:
    """Nanoseconds that the instructions of boxes of a nest take: see `choose.Priced`."""

    nest: LoopNest
    size: Size
    held: bool = False  # whether there are boxes that must not be moved
    gpu: Gpu = H200

    @cached_property
    def whole(self) -> float:
        return instructions(self.nest, self.size, flat=True) / self.gpu.slots

    @property
    def start(self) -> float:
        return 0.0

    @cached_property
    def restricted(self) -> Callable[[Box], LoopNest]:
        return lru_cache(maxsize=None)(lambda box: restrict(self.nest, box))

    @cached_property
    def price(self) -> Callable[[Box], float]:
        def price(box: Box) -> float:
            if self.held and not movable(self.nest, box):
                return math.inf
            return instructions(self.restricted(box), self.size) / self.gpu.slots

        return lru_cache(maxsize=None)(price)

    @property
    def inside(self) -> Callable[[Box], float]:
        return self.price

    def placed(self, found: Sequence[Box]) -> tuple[Box, ...]:
        return tuple(found)

    def memory(self, cuts: Cuts) -> float:
        """Nanoseconds for the memory that the nest moves: under masks no more than inside cuts."""
        few = count_boxes(cuts) <= MOST_PRICED
        found = [self.restricted(box) for box in boxes(self.nest, cuts if few else {})]
        return sum(traffic(nest, self.size) for nest in found) / self.gpu.bytes


def choose_ranges(search: SeamSearch, split: str, max_pieces: int, size: Size) -> Cutting:
    """The ranges of one launch, none where the nest is left to Inductor.

    One range that is all of the nest differs from Inductor's by its tiles.
    """
    nest = search.nest
    pricing = LaunchPricing(nest, size, bool(search.held))
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


SHAPES = (Shape(1024, 4, 0.04), Shape(2048, 4, 0.04))
# Where most accesses can't be made by vectors, lanes that are neighbours should work on neighbours.
SCALAR = (Shape(512, 8, 0.04), Shape(1024, 8, 0.04))
MISALIGNED = 0.4  # of the accesses
WHOLE = (Shape(1024, 4, 0.0), Shape(512, 8, 0.0))  # as Inductor's for a nest of one long row
FEW = (Shape(256, 4, 0.1), Shape(128, 2, 0.1))  # where there is little work


def ways(
    sizes: Sequence[tuple[int, int]], whole: int | None, scalar: bool = False, gpu: Gpu = H200
) -> list[Way]:
    """How to run the ranges of these rows and columns, and the nest as the range `whole`.

    `scalar`: most accesses can't be made by vectors. Large tiles are left out where they would
    leave multiprocessors without work.
    """
    parts = [k for k in range(len(sizes)) if k != whole]
    total = sum(sizes[k][0] * sizes[k][1] for k in parts)
    shapes = [
        s for s in (SCALAR if scalar else SHAPES) if total >= 2 * gpu.multiprocessors * s.elements
    ]
    few = FEW[0] if total >= gpu.multiprocessors * FEW[0].elements else FEW[1]
    found = []
    for own in shapes or [few]:
        tiles = {k: Tiles(*tile(*sizes[k], own.elements, own.waste)) for k in parts}
        found.append(Way(tiles, own.warps))
    if whole is not None:
        for own in WHOLE if shapes else [few]:
            tiles = {whole: Tiles(*tile(*sizes[whole], own.elements, own.waste))}
            found.append(Way(tiles, own.warps))
    return [way for k, way in enumerate(found) if way not in found[:k]]
