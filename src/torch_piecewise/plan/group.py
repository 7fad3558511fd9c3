"""Decide for nests that run one after another inside outer loops that they share, as in a softmax.

The shared axes are cut for all nests at once, and inside every box of them each nest at the seams
that it has there: these may differ from box to box.

    for i0 in the first box:     # every nest: one piece, or several along its own axes
    for i0 in the second box:    # every nest again
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import sympy

from torch_piecewise.loops import seams
from torch_piecewise.loops.idle import adds_nothing
from torch_piecewise.loops.ir import Axis, Box, LoopNest
from torch_piecewise.loops.seams import SeamAt, SeamSearch, Slant
from torch_piecewise.loops.split import Cuts, boxes, restrict

from .choose import (
    HINT,
    PIECE_WORTH,
    Choice,
    Pieces,
    Pricing,
    choose_boxes,
    count_boxes,
    joined,
    judge,
    loop_cost,
    under_cap,
    worthwhile,
)
from .cost import Size, starts
from .plan import Reason

BLOCKS = (4, 8, 16)  # numbers of blocks that are tried


@dataclass(frozen=True)
class Inside:
    """One nest inside a box of the shared axes: its pieces there, and what they take.

    `computing` is the price without what starting loops takes. `seams` are those on its own axes.
    """

    pieces: Pieces
    price: float
    computing: float
    seams: tuple[SeamAt, ...] = ()


@dataclass(frozen=True)
class GroupCutting:
    """The boxes of the shared axes, with each nest inside; none where these axes stay whole.

    `seams` are those of the shared axes, `settled` the texts of notes that no longer hold.
    """

    boxes: tuple[tuple[Box, tuple[Inside, ...]], ...]
    seams: tuple[SeamAt, ...]
    reason: Reason
    notes: tuple[Reason, ...] = ()
    settled: frozenset[str] = frozenset()


@dataclass(frozen=True)
class GroupPricing:
    """Estimates for boxes of the shared axes: each is worth what the nests take inside, at best.

    `nest` has the shared axes and no body; `cap` is the most pieces of a nest inside a box.
    """

    nest: LoopNest
    members: tuple[SeamSearch, ...]
    split: str
    cap: int
    size: Size

    @cached_property
    def whole(self) -> float:
        """What all nests take while the shared axes are whole."""
        (everything,) = boxes(self.nest, {})
        return self.price(everything)

    def estimate(self, found: Sequence[Box], threads: int) -> float:
        """Nanoseconds of one run in these boxes, or whole where there are none."""
        if not found:
            return self.whole / threads
        return sum(map(self.price, found)) / threads + loop_cost(threads) * len(found)

    @cached_property
    def start(self) -> float:
        return sum(starts(member.nest, self.size) for member in self.members)

    @cached_property
    def within(self) -> Callable[[Box], tuple[Inside, ...]]:
        def within(box: Box) -> tuple[Inside, ...]:
            return tuple(self._inside(member, box) for member in self.members)

        return lru_cache(maxsize=None)(within)

    @property
    def price(self) -> Callable[[Box], float]:
        return lambda box: sum(part.price for part in self.within(box))

    @property
    def inside(self) -> Callable[[Box], float]:
        return lambda box: sum(part.computing for part in self.within(box))

    def placed(self, found: Sequence[Box]) -> tuple[Box, ...]:
        """The boxes: vectors are not along shared axes."""
        return tuple(found)

    def _inside(self, member: SeamSearch, box: Box) -> Inside:
        """The best pieces of one nest in a box of the shared axes."""
        limited = restrict(member.nest, _in_nest(member.nest, box))
        pricing = Pricing(limited, self.size)
        cuts, found = self._own_cuts(member, limited)
        kept = worthwhile(cuts, pricing) if self.split == "auto" else cuts
        kept, _ = under_cap(kept, self.cap, pricing)
        inner = boxes(limited, kept)
        if self.split == "auto":
            inner = joined(inner, pricing.price)
        price, computing = (sum(map(of, inner)) for of in (pricing.price, pricing.inside))
        if self.split == "auto":
            inner = pricing.placed(inner)
        pieces = tuple(
            (_placed(box, own), pricing.restricted(own) if kept else limited) for own in inner
        )
        return Inside(pieces, price, computing, found)

    def _own_cuts(self, member: SeamSearch, limited: LoopNest) -> tuple[Cuts, tuple[SeamAt, ...]]:
        """The cuts of the axes that a nest does not share, and their seams."""
        own = {a.symbol for a in limited.axes[len(self.nest.axes) :]} - member.fixed
        if not (member.notes or any(axis in own for axis in member.cuts)):
            return {}, ()  # nothing is open on these axes in any box
        whole = limited.axes == member.nest.axes
        search = member if whole else seams.find(limited, in_block=True)
        cuts = {axis: at for axis, at in search.cuts.items() if axis in own}
        return cuts, tuple(seam for seam in search.seams if seam.axis in own)


def choose_group(
    members: Sequence[SeamSearch],
    depth: int,
    split: str,
    max_pieces: int,
    threads: int,
    size: Size,
) -> GroupCutting:
    """Choose among the cuts of the first `depth` axes, which all members share."""
    axes = members[0].nest.axes[:depth]
    joint = seams.together(axes, members)
    left = tuple(Reason(n.code, "", n.text) for n in joint.notes)
    pricing = GroupPricing(joint.nest, tuple(members), split, max_pieces, size)
    found: tuple[Box, ...] = ()
    reason, notes = Reason("no-seams", "", "no seam on the shared axes"), left
    count = count_boxes(joint.cuts)
    if count > max_pieces:  # each is the work of several nests to weigh
        text = f"{count} boxes of the shared axes, the cap is {max_pieces}"
        reason = Reason("too-many-pieces", "", text, "raise the option max_pieces")
    elif joint.cuts:
        found, reason, more = choose_boxes(joint.cuts, pricing, split, max_pieces, threads)
        reason, notes = _for_all(reason, pricing), (*left, *more)
    blocks = _blocks(joint, pricing, max_pieces, threads, found)
    if blocks:
        return replace(blocks, reason=_for_all(blocks.reason, pricing), notes=left)
    if any(len(p) > max_pieces for p in _all_pieces(pricing, found)):
        pricing = replace(pricing, cap=max(1, max_pieces // len(found)))
    chosen = tuple((box, pricing.within(box)) for box in found)
    return GroupCutting(chosen, tuple(joint.seams), reason, notes)


def _blocks(
    joint: SeamSearch,
    pricing: GroupPricing,
    max_pieces: int,
    threads: int,
    otherwise: Sequence[Box],
) -> GroupCutting | None:
    """Blocks of an axis in which a condition over two axes is mostly settled.

    The seams that make the boxes `otherwise` stay. None where these boxes take less, or no
    condition can be settled so; where there are no such boxes either, the reason for no blocks.
    """
    slants = _slants(joint, pricing)
    if not slants:
        return None
    axis = joint.nest.axis(slants[0].outer)
    kept = _starts(joint.cuts, otherwise)
    if not all(isinstance(at, sympy.Integer) for at in kept.get(axis.symbol, ())):
        return None
    best = _best_blocks(pricing, axis, kept, max_pieces, threads)
    if otherwise and (not best or best.takes >= pricing.estimate(otherwise, threads)):
        return None
    choice = _judged(best, pricing, axis, max_pieces, threads)
    if not best or not choice.split:
        return GroupCutting((), tuple(joint.seams), choice.reason)
    notes = [slant.note.text for slant in slants]
    seamed = {seam.position for seam in joint.seams if seam.axis == axis.symbol}
    begins = dict.fromkeys(box.range(axis.symbol)[0] for box in best.boxes)
    blocks = [at for at in begins if at != 0 and at not in seamed]
    cause = f"a block of {axis.name}, {notes[0]}"
    return GroupCutting(
        tuple((box, pricing.within(box)) for box in best.boxes),
        (*joint.seams, *(SeamAt(axis.symbol, at, cause) for at in blocks)),
        choice.reason,
        (),
        frozenset(notes),
    )


@dataclass(frozen=True)
class _Blocks:
    """Boxes of the shared axes, and what they take with what their pieces have to be worth."""

    boxes: tuple[Box, ...]
    takes: float


def _best_blocks(
    pricing: GroupPricing, axis: Axis, kept: Cuts, max_pieces: int, threads: int
) -> _Blocks | None:
    """Of several numbers of blocks of `axis` that which takes least; None if the cap allows none.

    A piece that adds nothing has no code, so the cap does not count it.
    """
    best: _Blocks | None = None
    worth = PIECE_WORTH if pricing.split == "auto" else 0.0
    for count in BLOCKS:
        own = _with_blocks(kept.get(axis.symbol, ()), int(axis.size), count)
        found = boxes(pricing.nest, {**kept, axis.symbol: own})
        if not 1 < len(found) <= max_pieces:
            continue
        pieces = _all_pieces(pricing, found)
        written = [sum(not adds_nothing(nest) for _, nest in one) for one in pieces]
        takes = pricing.estimate(found, threads) + worth * sum(written)
        if max(written) <= max_pieces and (best is None or takes < best.takes):
            best = _Blocks(found, takes)
    return best


def _judged(
    best: _Blocks | None, pricing: GroupPricing, axis: Axis, max_pieces: int, threads: int
) -> Choice:
    """Whether the blocks are worth having."""
    name, whole = pricing.nest.name, pricing.whole / threads
    if int(axis.size) <= seams.WHOLE:
        return Choice(False, Reason("small", name, f"{axis.name} is too short for blocks"))
    if best is None:
        text = f"blocks of {axis.name} make more pieces than the cap, {max_pieces}"
        return Choice(False, Reason("too-many-pieces", name, text, "raise the option max_pieces"))
    total = sum(len(pieces) for pieces in _all_pieces(pricing, best.boxes))
    takes = pricing.estimate(best.boxes, threads)
    choice = judge(pricing.split, name, whole, takes, total)
    if choice.split and pricing.split == "auto" and best.takes >= whole:
        text = f"{choice.reason.text}, too little for so many pieces"
        return Choice(False, Reason("no-gain", name, text, HINT))
    return choice


def _starts(cuts: Cuts, found: Sequence[Box]) -> dict[sympy.Symbol, tuple[sympy.Expr, ...]]:
    """Those of the cuts at which any of the boxes begins."""
    begins = {axis: {box.range(axis)[0] for box in found} for axis in cuts}
    kept = {axis: tuple(p for p in at if p in begins[axis]) for axis, at in cuts.items()}
    return {axis: at for axis, at in kept.items() if at}


def _slants(joint: SeamSearch, pricing: GroupPricing) -> list[Slant]:
    """The conditions over a shared axis and one of a nest's own; all of the same shared axis."""
    shared = {a.symbol: a for a in joint.nest.axes if a.symbol not in joint.fixed}
    found = [
        slant
        for member in pricing.members
        for slant in member.slants
        if slant.outer in shared
        and slant.inner not in shared
        and isinstance(shared[slant.outer].size, sympy.Integer)
    ]
    return [slant for slant in found if slant.outer == found[0].outer]


def _with_blocks(seams_at: Sequence[sympy.Expr], size: int, count: int) -> list[sympy.Expr]:
    """Where about `count` blocks of an axis begin, but for the first: at every seam too.

    A block that would begin close to a seam begins there.
    """
    step = -(-size // (count * seams.WHOLE)) * seams.WHOLE
    even = (sympy.Integer(at) for at in range(step, size, step))
    free = [at for at in even if not any(abs(at - seam) < seams.WHOLE for seam in seams_at)]
    return sorted([*free, *seams_at], key=int)


def _for_all(reason: Reason, pricing: GroupPricing) -> Reason:
    if len(pricing.members) == 1:
        return reason
    names = ", ".join(axis.name for axis in pricing.nest.axes)
    return replace(reason, text=f"{reason.text}, for all nests that share {names}")


def _all_pieces(pricing: GroupPricing, found: Sequence[Box]) -> list[Pieces]:
    """For each member, its pieces in all of the boxes."""
    inside = [pricing.within(box) for box in found]
    return [tuple(p for part in one for p in part.pieces) for one in zip(*inside, strict=True)]


def _in_nest(nest: LoopNest, box: Box) -> Box:
    """A box of the shared axes as one of a nest, whose other axes are whole."""
    rest = [a for a in nest.axes if a.symbol not in box.axes]
    (whole,) = boxes(replace(nest, axes=tuple(rest)), {})
    return Box((*box.axes, *whole.axes), (*box.ranges, *whole.ranges))


def _placed(box: Box, own: Box) -> Box:
    """A box that was found inside a box of the shared axes, in terms of the nest."""
    return Box(own.axes, (*box.ranges, *own.ranges[len(box.ranges) :]))
