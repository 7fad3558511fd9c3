"""From the scheduler nodes of one fused loop to its plan and its pieces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import sympy
import torch
from torch._inductor.scheduler import BaseSchedulerNode, SchedulerNode

from torch_piecewise.config import Config
from torch_piecewise.loops import seams, text
from torch_piecewise.loops.ir import Box, LoopNest
from torch_piecewise.loops.split import boxes, restrict
from torch_piecewise.plan.choose import choose, under_cap
from torch_piecewise.plan.plan import AxisPlan, NestPlan, Piece, Reason, Seam

from . import scope
from .adapter import NotInIR, to_nest
from .versions import size_hint


@dataclass(frozen=True)
class Cut:
    """A nest's plan; `pieces` are the nests to generate, none where the nest stays whole."""

    plan: NestPlan
    pieces: tuple[tuple[Box, LoopNest], ...] = ()


def cut_nest(nodes: Sequence[SchedulerNode], config: Config) -> Cut:
    """Find the seams of the nest that `nodes` make and decide about its pieces."""
    return decide(read_nest(nodes), nodes, config)


def decide(nest: LoopNest | NotInIR, nodes: Sequence[SchedulerNode], config: Config) -> Cut:
    """`cut_nest` for a nest that has been read already."""
    if isinstance(nest, NotInIR):
        return Cut(opaque_plan(nodes, Reason(nest.code, nodes[0].get_name(), str(nest))))
    search = seams.find(nest)
    notes = tuple(Reason(n.code, nest.name, n.text) for n in search.notes)
    found = tuple(Seam(str(s.axis), str(s.position), s.cause) for s in search.seams)

    def plan(pieces: Sequence[Box], reason: Reason) -> NestPlan:
        return nest_plan(nest, nodes, pieces, reason, found, notes)

    whole = whole_box(nest)

    if not search.cuts:
        code, why = ("left", notes[0].text) if notes else ("no-seams", "no seam on its axes")
        return Cut(plan([whole], Reason(code, nest.name, why)))
    if config.split == "off":
        return Cut(plan([whole], Reason("off", nest.name, "splitting is off")))
    cuts, note = under_cap(nest, search.cuts, config.max_pieces, size_hint)
    if note:
        notes = (*notes, note)
    if not cuts:
        return Cut(plan([whole], note or Reason("no-seams", nest.name, "")))
    cut = tuple((box, restrict(nest, box)) for box in boxes(nest, cuts))
    pieces = [piece for _, piece in cut]
    choice = choose(config.split, nest, pieces, points, torch.get_num_threads())
    if not choice.split:
        return Cut(plan([whole], choice.reason))
    return Cut(plan([box for box, _ in cut], choice.reason), cut)


def uncut(nest: LoopNest | NotInIR, nodes: Sequence[SchedulerNode], reason: Reason) -> NestPlan:
    """The plan of a nest that stays whole, for a reason given."""
    reason = replace(reason, where=nodes[0].get_name())
    if isinstance(nest, NotInIR):
        return opaque_plan(nodes, replace(reason, text=f"{reason.text}; {nest}"))
    return nest_plan(nest, nodes, [whole_box(nest)], reason, (), ())


def read_nest(nodes: Sequence[SchedulerNode]) -> LoopNest | NotInIR:
    try:
        return to_nest(nodes)
    except NotInIR as why:
        return why


def whole_box(nest: LoopNest) -> Box:
    axes = nest.axes
    return Box(tuple(a.symbol for a in axes), tuple((sympy.S.Zero, a.size) for a in axes))


def nest_plan(
    nest: LoopNest,
    nodes: Sequence[SchedulerNode],
    pieces: Sequence[Box],
    reason: Reason,
    found: tuple[Seam, ...],
    notes: tuple[Reason, ...],
) -> NestPlan:
    return NestPlan(
        name=nest.name,
        axes=tuple(AxisPlan(a.name, str(a.size), a.reduce) for a in nest.axes),
        seams=found,
        pieces=tuple(_piece(nest, k, box) for k, box in enumerate(pieces)),
        reason=reason,
        notes=notes,
        origins=origins(nodes),
        text=text.show(nest),
    )


def opaque_plan(nodes: Sequence[SchedulerNode], reason: Reason) -> NestPlan:
    """The plan of a nest that the loop IR can't express."""
    _, (iterate, reduce) = nodes[0].group
    axes = (
        *(AxisPlan(f"i{k}", str(size)) for k, size in enumerate(iterate)),
        *(AxisPlan(f"r{k}", str(size), True) for k, size in enumerate(reduce)),
    )
    name = nodes[0].get_name()
    piece = Piece(f"{name}_0", tuple((a.name, "0", a.size) for a in axes))
    return NestPlan(name, axes, (), (piece,), reason, (), origins(nodes), in_ir=False)


def _piece(nest: LoopNest, number: int, box: Box) -> Piece:
    ranges = zip(box.axes, box.ranges, strict=True)
    return Piece(
        f"{nest.name}_{number}",
        tuple((str(axis), str(start), str(stop)) for axis, (start, stop) in ranges),
    )


def points(nest: LoopNest) -> float:
    return float(math.prod(size_hint(a.size) for a in nest.axes))


def origins(nodes: Sequence[BaseSchedulerNode]) -> tuple[str, ...]:
    """Names, in the graph that Dynamo gave, of the nodes that a nest computes.

    Names and not source lines: the same code may come from a cache for another file's graph.
    """
    mine = scope.current()
    traces = mine.traces if mine else {}
    first = {trace: name for name, trace in reversed(list(traces.items()))}
    found: set[str] = set()
    for node in nodes:
        for snode in node.get_nodes():
            ir_node = getattr(snode, "node", None)
            for fx in ir_node.get_origins() if ir_node is not None else ():
                roots = [r for r in _ancestors(fx) if r in traces]
                # a backward's nodes have no ancestor there, but their forward's stack trace
                by_trace = first.get(fx.meta.get("stack_trace") or "")
                found.update(roots or ([by_trace] if by_trace else []))
    return tuple(sorted(found))


def _ancestors(fx: torch.fx.Node) -> list[str]:
    """The names of the nodes that passes made this one from, oldest generation only."""
    sources = fx.meta.get("from_node") or []
    roots: list[str] = []
    while sources:
        roots = [s.name for s in sources]
        sources = [deeper for s in sources for deeper in (s.from_node or [])]
    return roots or [fx.name]
