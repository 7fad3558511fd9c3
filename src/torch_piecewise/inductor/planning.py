"""From the scheduler nodes of one fused loop to its plan and its pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sympy
import torch
from torch._inductor.scheduler import BaseSchedulerNode, SchedulerNode
from torch._inductor.utils import parallel_num_threads

from torch_piecewise.config import Config
from torch_piecewise.loops import seams, text
from torch_piecewise.loops.ir import Box, LoopNest, walk
from torch_piecewise.loops.split import sections
from torch_piecewise.plan.choose import choose
from torch_piecewise.plan.plan import AxisPlan, NestPlan, Piece, Reason, Seam

from . import scope
from .adapter import NotInIR, to_nest
from .versions import argmax_takes_positions, size_hint

# Pieces that differ in their reduction ranges only: parts that reduce into the same values.
Section = tuple[tuple[Box, LoopNest], ...]


@dataclass(frozen=True)
class Cut:
    """A nest's plan; `sections` are the nests to generate, none where the nest stays whole."""

    plan: NestPlan
    sections: tuple[Section, ...] = ()

    @property
    def pieces(self) -> Section:
        return tuple(piece for section in self.sections for piece in section)


def first_inner(nest: LoopNest, fused: int | None) -> int:
    """The number of the first axis whose ranges can stand side by side inside the other loops.

    These are the reduction axes, or without any those inside of the `fused` outer loops.
    """
    iterate = sum(not axis.reduce for axis in nest.axes)
    return iterate if fused is None or iterate < len(nest.axes) else min(fused, iterate)


def cut_nest(nodes: Sequence[SchedulerNode], config: Config, fused: int | None = None) -> Cut:
    """Find the seams of the nest that `nodes` make and decide about its pieces.

    `fused` is the number of outer loops that it shares with other nests: those stay whole.
    """
    nest = _read(nodes)
    if isinstance(nest, NotInIR):
        return Cut(_opaque(nodes, Reason(nest.code, nodes[0].get_name(), str(nest))))
    search = seams.find(nest)
    notes = tuple(Reason(n.code, nest.name, n.text) for n in search.notes)
    notes = (*notes, *_leave_positions(search, nest), *_leave_outer(search, nest, fused))
    found = tuple(Seam(str(s.axis), str(s.position), s.cause) for s in search.seams)

    def plan(pieces: Sequence[Box], reason: Reason) -> NestPlan:
        return _plan(nest, nodes, pieces, reason, found, notes)

    everything = _everything(nest)

    if not search.cuts:
        code, why = ("left", notes[0].text) if notes else ("no-seams", "no seam on its axes")
        return Cut(plan([everything], Reason(code, nest.name, why)))
    if config.split == "off":
        return Cut(plan([everything], Reason("off", nest.name, "splitting is off")))
    threads = parallel_num_threads()
    cut = choose(nest, search.cuts, config.split, config.max_pieces, threads, size_hint)
    notes = (*notes, *cut.notes)
    if not cut.pieces:
        return Cut(plan([everything], cut.reason))
    apart = sections(nest, [box for box, _ in cut.pieces], first_inner(nest, fused))
    pieces = dict(cut.pieces)
    found_sections = tuple(tuple((box, pieces[box]) for box in section) for section in apart)
    return Cut(plan([box for box, _ in cut.pieces], cut.reason), found_sections)


def _leave_positions(search: seams.SeamSearch, nest: LoopNest) -> Iterator[Reason]:
    """Give up the cuts of a reduction that counts positions, where parts can't say theirs."""
    kinds = {op.args[2] for b in nest.bodies for op in walk(b.block) if op.name == "reduction"}
    cut = [a for a in nest.axes if a.reduce and a.symbol in search.cuts]
    if cut and kinds & {"argmax", "argmin"} and not argmax_takes_positions():
        for axis in cut:
            del search.cuts[axis.symbol]
        text = "this torch's argmax in C++ counts positions from 0 in every part"
        yield Reason("argmax-position", nest.name, text)


def _leave_outer(search: seams.SeamSearch, nest: LoopNest, fused: int | None) -> Iterator[Reason]:
    """Give up the cuts of the loops that other nests share."""
    if fused is None:
        return
    for axis in nest.axes[: first_inner(nest, fused)]:
        if search.cuts.pop(axis.symbol, None):
            text = f"{axis.name} has seams, but other nests share its loop or one inside of it"
            yield Reason("outer-fused", nest.name, text)


def _read(nodes: Sequence[SchedulerNode]) -> LoopNest | NotInIR:
    try:
        return to_nest(nodes)
    except NotInIR as why:
        return why


def _everything(nest: LoopNest) -> Box:
    axes = nest.axes
    return Box(tuple(a.symbol for a in axes), tuple((sympy.S.Zero, a.size) for a in axes))


def _plan(
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


def _opaque(nodes: Sequence[SchedulerNode], reason: Reason) -> NestPlan:
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
