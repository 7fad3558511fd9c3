"""Plans for nests that run one after another inside outer loops that they share.

Inductor makes such groups of a softmax or a layer norm (`OuterLoopFusedSchedulerNode`). The shared
axes are cut for all nests of the group at once, the other axes of each nest for that nest alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch._inductor.scheduler import SchedulerNode

from torch_piecewise.config import Config
from torch_piecewise.loops import seams
from torch_piecewise.loops.ir import Axis, Box, LoopNest
from torch_piecewise.loops.seams import SeamSearch
from torch_piecewise.loops.split import Cuts, boxes, restrict
from torch_piecewise.plan.choose import (
    INNER_COST,
    LEAST_GAIN,
    judge,
    loop_cost,
    under_cap,
    work,
)
from torch_piecewise.plan.plan import NestPlan, Reason, Seam

from .adapter import NotInIR
from .planning import nest_plan, points, uncut, whole_box
from .versions import size_hint

Piece = tuple[Box, LoopNest]


@dataclass(frozen=True)
class Member:
    """One nest of the group: the nodes that are fused into it, and what they do."""

    nodes: Sequence[SchedulerNode]
    nest: LoopNest | NotInIR


@dataclass(frozen=True)
class SharedBox:
    """A box of the shared axes, and for each nest its pieces inside, in order."""

    box: Box
    pieces: tuple[tuple[Piece, ...], ...]


@dataclass(frozen=True)
class SharedCut:
    """The plan of each nest; `boxes` is empty where all stay whole."""

    plans: tuple[NestPlan, ...]
    boxes: tuple[SharedBox, ...] = ()


@dataclass(frozen=True)
class _Search:
    """The seams of one nest; `inner` are the cuts on axes of its own."""

    member: Member
    nest: LoopNest
    found: SeamSearch
    inner: Cuts
    notes: tuple[Reason, ...]

    def plan(self, pieces: Sequence[Box], reason: Reason, joint: SeamSearch) -> NestPlan:
        own = [*self.found.seams]
        places = {(s.axis, s.position) for s in own}
        own += [s for s in joint.seams if (s.axis, s.position) not in places]
        listed = tuple(Seam(str(s.axis), str(s.position), s.cause) for s in own)
        reason = replace(reason, where=self.nest.name)
        return nest_plan(self.nest, self.member.nodes, pieces, reason, listed, self.notes)


@dataclass(frozen=True)
class _Candidate:
    """One way to cut the group: the pieces of each nest and their estimated work."""

    outer: Cuts
    pieces: tuple[tuple[Piece, ...], ...]
    work: float

    @property
    def count(self) -> int:
        return sum(map(len, self.pieces))


def cut_shared(members: Sequence[Member], depth: int, config: Config) -> SharedCut:
    """Find the seams of nests that share their first `depth` axes and decide about the pieces."""
    left = _why_left(members, depth)
    if left:
        return whole(members, left)
    nests = [m.nest for m in members if isinstance(m.nest, LoopNest)]
    axes = nests[0].axes[:depth]
    found = [seams.find(nest) for nest in nests]
    joint = seams.together(axes, found)
    outer, note = under_cap(joint.nest, joint.cuts, config.max_pieces, size_hint)
    notes = [Reason(n.code, nests[0].name, n.text) for n in joint.notes] + ([note] if note else [])
    most = max(1, config.max_pieces // math.prod(len(at) + 1 for at in outer.values()))
    searches = [
        _inside(member, nest, search, axes, most, notes)
        for member, nest, search in zip(members, nests, found, strict=True)
    ]
    if not outer and not any(s.inner for s in searches):
        return SharedCut(tuple(_without_cuts(s, joint) for s in searches))
    if config.split == "off":
        off = Reason("off", "", "splitting is off")
        return SharedCut(tuple(s.plan([whole_box(s.nest)], off, joint) for s in searches))
    return _choose(searches, joint, outer, config.split)


def whole(members: Sequence[Member], reason: Reason) -> SharedCut:
    """The group left whole, for a reason."""
    return SharedCut(tuple(uncut(m.nest, m.nodes, reason) for m in members))


def _why_left(members: Sequence[Member], depth: int) -> Reason | None:
    """Why the shared loops can't be cut, before any seam is looked for."""
    axes: set[tuple[Axis, ...]] = set()
    for member in members:
        if isinstance(member.nest, NotInIR):
            name = member.nodes[0].get_name()
            return Reason(member.nest.code, "", f"shares its outer loop with {name}: {member.nest}")
        axes.add(member.nest.axes[:depth])
    if len(axes) > 1 or any(a.reduce for a in next(iter(axes))):
        return Reason("outer-unlike", "", "shares outer loops over sizes written differently")
    return None


def _inside(
    member: Member,
    nest: LoopNest,
    search: SeamSearch,
    axes: Sequence[Axis],
    most: int,
    shared_notes: Sequence[Reason],
) -> _Search:
    """The cuts of one nest on the axes that it does not share, at most `most` pieces."""
    own = {a.symbol for a in nest.axes} - {a.symbol for a in axes}
    inner, note = under_cap(
        nest, {a: at for a, at in search.cuts.items() if a in own}, most, size_hint
    )
    notes = [Reason(n.code, nest.name, n.text) for n in search.notes]
    return _Search(member, nest, search, inner, (*notes, *shared_notes, *((note,) if note else ())))


def _without_cuts(search: _Search, joint: SeamSearch) -> NestPlan:
    code, why = "no-seams", "no seam on its axes"
    if search.notes:
        code, why = "left", search.notes[0].text
    return search.plan([whole_box(search.nest)], Reason(code, "", why), joint)


def _choose(searches: Sequence[_Search], joint: SeamSearch, outer: Cuts, split: str) -> SharedCut:
    name = searches[0].nest.name
    uncut_work = sum(work(s.nest) * points(s.nest) for s in searches)
    if split == "seams":
        best = _candidate(searches, joint, outer, lambda plain, cut: True)
    else:
        ways = ({}, outer) if outer else ({},)
        candidates = [
            _candidate(searches, joint, way, lambda plain, cut: cut * LEAST_GAIN < plain)
            for way in ways
        ]
        best = min(candidates, key=lambda c: c.work)
    choice = judge(split, name, uncut_work, best.work, best.count)
    if not choice.split or best.count == len(searches):
        reason = choice.reason
        return SharedCut(tuple(s.plan([whole_box(s.nest)], reason, joint) for s in searches))
    plans = tuple(
        s.plan([box for box, _ in pieces], _reason(choice.reason, pieces), joint)
        for s, pieces in zip(searches, best.pieces, strict=True)
    )
    return SharedCut(plans, _by_box(joint.nest, best))


def _reason(reason: Reason, pieces: Sequence[Piece]) -> Reason:
    if len(pieces) > 1:
        return reason
    return Reason("no-gain", "", "only other nests inside its outer loop are cut")


def _candidate(
    searches: Sequence[_Search],
    joint: SeamSearch,
    outer: Cuts,
    worthwhile: Callable[[float, float], bool],
) -> _Candidate:
    """The group with its shared axes cut at `outer`, each nest cut inside where worthwhile."""
    shared = boxes(joint.nest, outer)
    times = points(joint.nest)  # how often a loop inside the shared ones starts
    total = len(shared) * loop_cost(torch.get_num_threads()) if len(shared) > 1 else 0.0
    chosen = []
    for search in searches:
        pieces = _pieces(search.nest, outer)
        cost = _work(pieces)
        if search.inner:
            inside = _pieces(search.nest, {**outer, **search.inner})
            ranges = len(inside) // len(pieces)
            cost_inside = _work(inside) + (ranges - 1) * INNER_COST * times
            if worthwhile(cost, cost_inside):
                pieces, cost = inside, cost_inside
        chosen.append(pieces)
        total += cost
    return _Candidate(outer, tuple(chosen), total)


def _pieces(nest: LoopNest, cuts: Cuts) -> tuple[Piece, ...]:
    return tuple((box, restrict(nest, box)) for box in boxes(nest, cuts))


def _work(pieces: Sequence[Piece]) -> float:
    return sum(work(nest) * points(nest) for _, nest in pieces)


def _by_box(shared: LoopNest, candidate: _Candidate) -> tuple[SharedBox, ...]:
    """The pieces box by box of the shared axes: those come first, so each box has a run of them."""
    outer = boxes(shared, candidate.outer)
    result = []
    for k, box in enumerate(outer):
        runs = []
        for pieces in candidate.pieces:
            length = len(pieces) // len(outer)
            runs.append(pieces[k * length : (k + 1) * length])
        result.append(SharedBox(box, tuple(runs)))
    return tuple(result)
