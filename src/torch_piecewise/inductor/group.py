"""The plan of nests that share outer loops: what `plan.group` chooses, for scheduler nodes.

Inductor makes such groups of a softmax or a layer norm (`OuterLoopFusedSchedulerNode`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import sympy
from torch._inductor.utils import parallel_num_threads

from torch_piecewise.config import Config
from torch_piecewise.loops.ir import Axis, Box
from torch_piecewise.loops.seams import SeamAt
from torch_piecewise.plan.alike import choose_group_alike
from torch_piecewise.plan.group import GroupCutting
from torch_piecewise.plan.plan import NestPlan, Reason

from .planning import Cut, Found, Function, Section, apart, decide
from .versions import size_hint


@dataclass(frozen=True)
class SharedBox:
    """A box of the shared axes, and for each nest its sections inside.

    A nest without sections is generated as Inductor has it: only where the box is everything.
    """

    box: Box
    sections: tuple[tuple[Section, ...], ...]


@dataclass(frozen=True)
class GroupCut:
    """The plan of each nest; `boxes` is empty where nothing is cut.

    `functions` have all of the boxes, in order, or there are none.
    """

    plans: tuple[NestPlan, ...]
    boxes: tuple[SharedBox, ...] = ()
    functions: tuple[Function, ...] = ()


def cut_group(members: Sequence[Found | NestPlan], depth: int, config: Config) -> GroupCut:
    """Decide about the pieces of nests that share their first `depth` axes."""
    found = [m for m in members if isinstance(m, Found)]
    if not found:
        return GroupCut(tuple(m for m in members if isinstance(m, NestPlan)))
    left = _in_the_way(members, depth)
    if left or config.split == "off":
        return _inner_cuts(members, depth, config, left)
    searches = [m.search for m in found]
    threads, most = parallel_num_threads(), config.max_pieces
    cutting = choose_group_alike(searches, depth, config.split, most, threads, size_hint)
    if cutting.boxes:
        return _by_boxes(found, depth, cutting)
    told = cutting.reason.code != "no-seams"
    reasons = (cutting.reason, *cutting.notes) if told else cutting.notes
    return _inner_cuts(members, depth, config, reasons)


def uncut(members: Sequence[Found | NestPlan], reason: Reason) -> tuple[NestPlan, ...]:
    """The plans of nests that are left whole, for one reason."""
    return tuple(m.plan([], reason) if isinstance(m, Found) else m for m in members)


def _in_the_way(members: Sequence[Found | NestPlan], depth: int) -> tuple[Reason, ...]:
    """Why the shared axes can't be cut, where one of them has seams."""
    axes: set[tuple[Axis, ...]] = set()
    seams: set[str] = set()
    why = ""
    for member in members:
        if isinstance(member, NestPlan):
            why = f"{member.name} is not in the loop IR: {member.reason.text}"
            continue
        axes.add(member.nest.axes[:depth])
        shared = {a.symbol for a in member.nest.axes[:depth]}
        seams |= {str(axis) for axis in shared & member.search.cuts.keys()}
        seams |= {str(slant.outer) for slant in member.search.slants if slant.outer in shared}
    if len(axes) > 1:
        why = "their sizes are written differently"
    if not (why and seams):
        return ()
    text = f"{', '.join(sorted(seams))} has seams, but nests share its loop and {why}"
    return (Reason("outer-fused", "", text),)


def _inner_cuts(
    members: Sequence[Found | NestPlan], depth: int, config: Config, reasons: tuple[Reason, ...]
) -> GroupCut:
    """Each nest cut along its own axes only, for the reasons given."""
    cuts = [
        Cut(m) if isinstance(m, NestPlan) else decide(m, config, depth, reasons) for m in members
    ]
    plans = tuple(cut.plan for cut in cuts)
    if not any(cut.sections for cut in cuts):
        return GroupCut(plans)
    nest = next(m.nest for m in members if isinstance(m, Found))
    axes = nest.axes[:depth]
    box = Box(tuple(a.symbol for a in axes), tuple((sympy.S.Zero, a.size) for a in axes))
    return GroupCut(plans, (SharedBox(box, tuple(cut.sections for cut in cuts)),))


def _by_boxes(found: Sequence[Found], depth: int, cutting: GroupCutting) -> GroupCut:
    """The shared axes cut, and each nest inside every box."""
    plans = []
    for number, member in enumerate(found):
        inside = [parts[number] for _, parts in cutting.boxes]
        pieces = [box for part in inside for box, _ in part.pieces]
        elsewhere = [seam for part in inside for seam in part.seams]
        elsewhere += _of_others(member, cutting.seams)
        reason, notes, settled = cutting.reason, cutting.notes, cutting.settled
        plans.append(member.plan(pieces, reason, notes, elsewhere, settled))
    boxes = tuple(
        SharedBox(
            box,
            tuple(apart(m.nest, p.pieces, depth) for m, p in zip(found, parts, strict=True)),
        )
        for box, parts in cutting.boxes
    )
    return GroupCut(tuple(plans), boxes)


def _of_others(member: Found, seams: Sequence[SeamAt]) -> list[SeamAt]:
    """The seams on shared axes that other nests have there."""
    own = {(s.axis, s.position) for s in member.search.seams}
    others = (s for s in seams if (s.axis, s.position) not in own)
    return [replace(s, cause=f"in another nest: {s.cause}") for s in others]
