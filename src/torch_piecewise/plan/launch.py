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

from torch_piecewise.loops.ir import Box, LoopNest, walk
from torch_piecewise.loops.seams import SeamSearch
from torch_piecewise.loops.split import Cuts, boxes, movable

from .choose import (
    HINT,
    MOST_PRICED,
    Cutting,
    Pricing,
    choose_boxes,
    count_boxes,
    joined,
    under_cap,
    worthwhile,
)
from .cost import FREE, Size, shown
from .instructions import LANES, beside, by_vectors, good_lane, slots
from .memory import H200, SECTOR, Gpu, reread, rows_beside, traffic
from .plan import Reason

MOST_RANGES = 12  # each is code of its own in the launch, and compiles for its own time
LEAST = 10_000.0  # nanoseconds of a nest, below which no one sees the difference
AT_MEMORY = 1.05  # times what memory takes, where the card can't be faster
# What splitting has to promise, to be timed: more with every 100 operations to be compiled.
LEAST_GAIN, LEAST_GAIN_OF_CODE = 0.97, 0.015
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
        return slots(self.nest, self.size, flat=True) / self.gpu.slots

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
            return slots(piece, self.size) / self.gpu.slots + wasted / self.gpu.bytes

        return lru_cache(maxsize=None)(price)

    @cached_property
    def inside(self) -> Callable[[Box], float]:
        return self.price

    def placed(self, found: Sequence[Box]) -> tuple[Box, ...]:
        return tuple(found)

    def memory(self, cuts: Cuts, rows: int) -> float:
        """Nanoseconds for the memory that the nest moves, in tiles of so many rows.

        Under masks that is no more than inside cuts.
        """
        few = count_boxes(cuts) <= MOST_PRICED
        found = [self.restricted(box) for box in boxes(self.nest, cuts if few else {})]
        moved = sum(traffic(nest, self.size, self.own, 0) for nest in found)
        again = sum(reread(nest, self.size, rows, self.own) for nest in found) if few else 0.0
        return max(moved / self.gpu.bytes, (moved + again) / self.gpu.cached)


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
    memory = pricing.memory(cuts, TALL)
    whole = beside(pricing.whole, pricing.memory(cuts, 1))
    if whole < LEAST or whole < AT_MEMORY * memory:
        return Cutting((), _left(nest.name, whole, memory))
    if not _conditions(nest):  # every range computes all but the wraps
        takes = beside(slots(nest, size, wraps=False) / pricing.gpu.slots, memory)
        if whole / takes < _least_gain(nest):
            text = f"estimated {shown(whole)}, and {shown(takes)} without any wrap"
            return Cutting((), Reason("no-gain", nest.name, text, HINT))
    kept, notes = under_cap(worthwhile(cuts, pricing), most, pricing)
    if max_pieces > MOST_RANGES:
        notes = tuple(replace(n, hint=f"a launch has {MOST_RANGES} ranges at most") for n in notes)
    found = joined(boxes(nest, kept), pricing.price)
    takes = beside(sum(map(pricing.price, found)), memory)
    pieces = tuple((box, pricing.restricted(box)) for box in found)
    least = _least_gain(*(piece for _, piece in pieces))
    text = f"estimated {shown(whole)} whole, {shown(takes)} in {len(found)} pieces"
    if whole / takes < least:
        text += f": gain {whole / takes:.2f}, under {least:.2f} for so much code"
        return Cutting((), Reason("no-gain", nest.name, text, HINT), notes)
    reason = Reason("gain", nest.name, f"{text}: gain {whole / takes:.2f}")
    return Cutting(pieces, reason, notes)


def _left(where: str, whole: float, memory: float) -> Reason:
    """Why a nest is not worth timing in ranges."""
    if whole < LEAST:
        text = f"estimated {shown(whole)}, under {shown(LEAST)}"
        return Reason("small", where, text, HINT)
    text = f"estimated {shown(whole)}, and its memory alone takes {shown(memory)}"
    return Reason("no-gain", where, text, HINT)


def _least_gain(*code: LoopNest) -> float:
    """What ranges with this code have to promise."""
    return LEAST_GAIN + LEAST_GAIN_OF_CODE * sum(map(_operations, code)) / 100


def _conditions(nest: LoopNest) -> bool:
    """Whether there is something that a range may leave out."""
    return any(op.name in ("masked", "where") for body in nest.bodies for op in walk(body.block))


def _operations(nest: LoopNest) -> int:
    return sum(1 for body in nest.bodies for op in walk(body.block) if op.name not in FREE)


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


def tile(height: int, width: int, elements: int, waste: float, rows: int = 1) -> tuple[int, int]:
    """Columns and rows of a range's tiles: powers of two with about `elements` elements.

    The widest whose last tile of a row wastes at most `waste` more than the best, and which leaves
    room for so many `rows`.
    """
    if height == 1:
        return min(elements, power_of_two(width)), 1
    widest = min(max(elements // rows, UNIT), elements, power_of_two(width), 1024)
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
    """One way to run a launch: the ranges that it uses, by number, with their tiles, and warps.

    `turns` are at how many places, evenly apart in the order of the blocks, work goes on at a time.
    """

    tiles: Mapping[int, Tiles]
    warps: int
    turns: int = 1


@dataclass(frozen=True)
class Shape:
    """How many elements one block works on, by how many warps."""

    elements: int
    warps: int

    @property
    def lane(self) -> int:
        """Elements for one lane."""
        return self.elements // (self.warps * LANES)


TALL = 8  # rows of a tile that reads from other rows too: it has them from the nearest cache
WASTE = 0.04  # of a row, that its last tile may go beyond it
# as Inductor's for a nest of one long row; the second is better where little is read by vectors
WHOLE = (Shape(1024, 4), Shape(512, 8))
WARPS = 4
FEW = (Shape(256, 4), Shape(128, 2))  # where there is little work
TURNS = 16  # blocks of each range that has a sixteenth of them run at any time
AT_ONCE = 1.05  # what ranges have to gain by running at once, to be timed so


@dataclass(frozen=True)
class Extent:
    """Rows and columns of a range; what decides about the work of one lane, for its nest."""

    rows: int
    columns: int
    nest: LoopNest | None = None

    @property
    def points(self) -> int:
        return self.rows * self.columns


def ways(
    parts: Sequence[Extent], whole: Extent | None, size: Size, gpu: Gpu = H200
) -> tuple[Way, ...]:
    """How to run a launch: by the `parts`, and as the `whole`, a range behind them.

    Tiles are as suits the largest part.

    More ways would find a few percent, and cost their compile time each.
    """
    largest = max(parts, key=lambda part: part.points)
    assert largest.nest is not None
    lane, one_by_one = good_lane(largest.nest, size)
    shape = Shape(lane * LANES * WARPS, WARPS)
    inductors = WHOLE if one_by_one else WHOLE[:1]
    total = sum(part.points for part in parts)
    if total < 2 * gpu.multiprocessors * shape.elements:  # some would have no work
        shape = FEW[0] if total >= gpu.multiprocessors * FEW[0].elements else FEW[1]
        inductors = (shape,)
    found = [Way({k: _tiles(part, shape) for k, part in enumerate(parts)}, shape.warps)]
    if gain_at_once(parts, size, gpu) > AT_ONCE:
        found.append(replace(found[0], turns=TURNS))
    if whole is not None:
        found += [Way({len(parts): _tiles(whole, each)}, each.warps) for each in inductors]
    return tuple(found)


def gain_at_once(parts: Sequence[Extent], size: Size, gpu: Gpu = H200) -> float:
    """How many times faster ranges are that run beside each other, by the estimates.

    One that computes and one that waits for memory then take the time of the longer of the two.
    """
    nests = [part.nest for part in parts if part.nest is not None]
    issue = [slots(nest, size) / gpu.slots for nest in nests]
    memory = [traffic(nest, size) / gpu.bytes for nest in nests]
    at_once = max(sum(issue), sum(memory))
    return sum(map(max, issue, memory)) / at_once if at_once else 1.0


def _tiles(part: Extent, shape: Shape) -> Tiles:
    nest = part.nest
    spread = nest is not None and rows_beside(nest) > 0 and not by_vectors(nest)
    rows = TALL if spread else 1
    return Tiles(*tile(part.rows, part.columns, shape.elements, WASTE, rows))
