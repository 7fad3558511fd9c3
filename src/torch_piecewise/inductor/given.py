"""Nests cut at the bounds of the user's ranges: the option `stitch="loops"`.

Each range of a nest is a nest of its own, about whose pieces is decided as always. Where the dim of
the ranges is no loop, or one that can't be cut, a nest is left as it would be, with a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import sympy
from torch._inductor.scheduler import SchedulerNode
from torch._inductor.virtualized import V

from torch_piecewise.config import Config
from torch_piecewise.loops import seams
from torch_piecewise.loops.dims import cuts, factored
from torch_piecewise.loops.ir import Box
from torch_piecewise.loops.split import boxes, restrict
from torch_piecewise.plan.plan import NestPlan, Reason

from .along import Along, places
from .group import GroupCut, SharedBox, cut_group
from .planning import Cut, Found, Function, Section, decide, everything, look

LEFT = "ranges-left"  # the code of a note that says why a nest is not cut at them
GIVEN = "ranges"  # and of the reason of one that is


@dataclass(frozen=True)
class Given:
    """A nest and how the user's ranges cut it: `begins` are (number of the range, first point)."""

    found: Found
    axis: sympy.Symbol
    begins: tuple[tuple[int, sympy.Expr], ...]

    def boxes(self) -> tuple[Box, ...]:
        return boxes(self.found.nest, {self.axis: [at for _, at in self.begins[1:]]})


def given_in(found: Found, along: Along, divide: bool = True) -> Given | str:
    """Where the user's ranges cut a nest, or why they don't.

    `divide`: an axis that goes over the dim several times may become two.
    """
    own = {axis.symbol: axis for axis in found.nest.axes}
    every = [*places(found.nest, along.dims())]
    if not every:
        return f"none of its loops goes along {along.what}"
    at = next((each for each in every if not own[each.axis].reduce), None)
    if at is None:
        return f"it reduces {along.what}, in {every[0].axis}"
    if at.axis in found.search.fixed:
        notes = ", ".join(note.text for note in found.notes)
        return f"{at.axis}, which goes along {along.what}, must not be cut: {notes}"
    begins, why = cuts(at, own[at.axis].size, along.bounds, V.graph.sizevars.statically_known_leq)
    if why:
        return why
    axis = at.axis
    if at.period is not None:
        if not divide:
            return f"{at.axis}, which it shares with other nests, goes over {along.what} repeatedly"
        nest, inner = factored(found.nest, at.axis, at.period)
        axis, found = inner.symbol, replace(found, nest=nest, search=seams.find(nest))
        if axis in found.search.fixed:
            return f"{axis}, which goes along {along.what}, must not be cut"
    if len(begins) == 1:
        return f"all of it is in the range {along.shown(begins[0][0])}"
    return Given(found, axis, tuple(begins))


def cut_nest(nodes: Sequence[SchedulerNode], config: Config, along: Along | None = None) -> Cut:
    """Find the seams of the nest that `nodes` make and decide about its pieces.

    `along` are the user's ranges, where the loops are cut at them.
    """
    found = look(nodes)
    return Cut(found) if isinstance(found, NestPlan) else cut_found(found, config, along)


def cut_found(found: Found, config: Config, along: Along | None) -> Cut:
    """Decide about the pieces of a nest, by the user's ranges where there are any."""
    if along is None:
        return decide(found, config)
    given = given_in(found, along)
    if isinstance(given, str):
        return decide(not_cut(found, given), config)
    return in_ranges(given, along, lambda limited: decide(limited, config))


def in_ranges(given: Given, along: Along, decide_inside: Callable[[Found], Cut]) -> Cut:
    """The pieces of a nest in its ranges, inside each as it is decided there."""
    pieces: list[Box] = []
    sections: list[Section] = []
    functions: list[Function] = []
    notes: list[Reason] = []
    for (number, at), box in zip(given.begins, given.boxes(), strict=True):
        limited = _limited(given.found, box)
        cut = decide_inside(limited)
        own = cut.sections or (((everything(limited.nest), limited.nest),),)
        moved = tuple(_moved(section, given.axis, at) for section in own)
        sections += moved
        pieces += [box for section in moved for box, _ in section]
        functions.append(_function(given, along, number, len(moved)))
        notes += _said(along.shown(number), cut.plan)
    plan = given.found.plan(pieces, _reason(given, along), notes)
    return Cut(plan, tuple(sections), tuple(functions))


def not_cut(found: Found, why: str) -> Found:
    """A nest with a note that says why the user's ranges don't cut it."""
    return replace(found, notes=(*found.notes, _left(why)))


def cut_members(
    members: Sequence[Found | NestPlan], depth: int, config: Config, along: Along | None
) -> GroupCut:
    """As `cut_found`, for nests that share their first `depth` axes."""
    if along is None:
        return cut_group(members, depth, config)
    given = _shared(members, depth, along)
    if isinstance(given, str):
        told = [replace(m, notes=(*m.notes, _left(given))) for m in members]
        return cut_group(told, depth, config)
    found = [m for m in members if isinstance(m, Found)]
    every: list[SharedBox] = []
    functions: list[Function] = []
    notes: list[list[Reason]] = [[] for _ in found]
    for (number, at), box in zip(given.begins, given.boxes(), strict=True):
        limited = [_limited(m, _whole_but(m, box, given.axis)) for m in found]
        cut = cut_group(limited, depth, config)
        own = cut.boxes or (_shared_whole(limited[0], depth, len(found)),)
        every += [_moved_box(each, limited, given.axis, at) for each in own]
        functions.append(_function(given, along, number, len(own)))
        for mine, plan in zip(notes, cut.plans, strict=True):
            mine += _said(along.shown(number), plan)
    plans = []
    for k, member in enumerate(found):
        pieces = [box for each in every for section in each.sections[k] for box, _ in section]
        plans.append(member.plan(pieces, _reason(given, along), notes[k]))
    return GroupCut(tuple(plans), tuple(every), tuple(functions))


def _shared(members: Sequence[Found | NestPlan], depth: int, along: Along) -> Given | str:
    """How the ranges cut the loops that nests share, or why they don't."""
    found = [m for m in members if isinstance(m, Found)]
    opaque = next((m for m in members if isinstance(m, NestPlan)), None)
    if opaque is not None:
        return f"it shares loops with {opaque.name}, which is left whole: {opaque.reason.text}"
    if len({m.nest.axes[:depth] for m in found}) > 1:
        return "nests share its loops, and their sizes are written differently"
    every = [given_in(m, along, divide=False) for m in found]
    shared = {axis.symbol for axis in found[0].nest.axes[:depth]}
    own = [given for given in every if isinstance(given, Given)]
    at = next((given for given in own if given.axis in shared), None)
    if at is None and own:
        return f"{own[0].axis}, which goes along {along.what}, is inside loops that nests share"
    if at is None:
        return next(why for why in every if isinstance(why, str))
    fixed = next((m for m in found if at.axis in m.search.fixed), None)
    return at if fixed is None else f"{at.axis} must not be cut in {fixed.nest.name}"


def _limited(found: Found, box: Box) -> Found:
    """One range of a nest as a nest."""
    nest = restrict(found.nest, box)
    search = seams.find(nest)
    return Found(found.nodes, nest, search, tuple(Reason(n.code, "", n.text) for n in search.notes))


def _whole_but(found: Found, box: Box, axis: sympy.Symbol) -> Box:
    """A box of another nest along one axis."""
    whole = everything(found.nest)
    each = zip(whole.axes, whole.ranges, strict=True)
    return Box(whole.axes, tuple(box.range(a) if a == axis else own for a, own in each))


def _shared_whole(found: Found, depth: int, members: int) -> SharedBox:
    whole = everything(found.nest)
    return SharedBox(Box(whole.axes[:depth], whole.ranges[:depth]), ((),) * members)


def _moved_box(
    box: SharedBox, limited: Sequence[Found], axis: sympy.Symbol, at: sympy.Expr
) -> SharedBox:
    """What was found in one range, in terms of the whole: every nest has sections there."""
    sections = (
        own or (((everything(m.nest), m.nest),),)
        for own, m in zip(box.sections, limited, strict=True)
    )
    moved = (tuple(_moved(section, axis, at) for section in own) for own in sections)
    return SharedBox(_shifted(box.box, axis, at), tuple(moved))


def _moved(section: Section, axis: sympy.Symbol, at: sympy.Expr) -> Section:
    return tuple((_shifted(box, axis, at), nest) for box, nest in section)


def _shifted(box: Box, axis: sympy.Symbol, at: sympy.Expr) -> Box:
    ranges = (
        (sympy.expand(start + at), sympy.expand(stop + at)) if own == axis else (start, stop)
        for own, (start, stop) in zip(box.axes, box.ranges, strict=True)
    )
    return Box(box.axes, tuple(ranges))


def _function(given: Given, along: Along, number: int, parts: int) -> Function:
    ends = "_to_".join(re.sub(r"\W+", "_", str(b)) for b in along.bounds[number : number + 2])
    name = f"piecewise_{given.found.nest.name}_range_{number + 1}_from_{ends}"
    count = len(along.bounds) - 1
    text = f"// range {number + 1} of {count}: {along.shown(number)} of {along.what}"
    return Function(name, text, parts)


def _reason(given: Given, along: Along) -> Reason:
    count = len(given.begins)
    return Reason(GIVEN, "", f"{count} of the ranges given for {along.what}, along {given.axis}")


def _left(why: str) -> Reason:
    return Reason(LEFT, "", f"not cut at the ranges given: {why}")


def _said(range: str, plan: NestPlan) -> list[Reason]:
    """What was decided inside a range, where there was something to decide."""
    notes = [plan.reason, *(note for note in plan.notes if note.text != plan.reason.text)]
    return [replace(n, text=f"in {range}: {n.text}") for n in notes if n.code != "no-seams"]
