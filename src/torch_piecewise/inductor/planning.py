"""From the scheduler nodes of one fused loop to its plan and its pieces."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

import sympy
import torch
from torch._inductor.scheduler import BaseSchedulerNode, SchedulerNode
from torch._inductor.utils import parallel_num_threads

from torch_piecewise.config import Config
from torch_piecewise.loops import seams, text
from torch_piecewise.loops.ir import Box, LoopNest, walk
from torch_piecewise.loops.split import sections
from torch_piecewise.plan.alike import choose_alike, choose_group_alike
from torch_piecewise.plan.plan import AxisPlan, NestPlan, Piece, Reason, Seam

from . import scope
from .adapter import NotInIR, to_nest
from .versions import argmax_takes_positions, size_hint

# Pieces that differ in their reduction ranges only: parts that reduce into the same values.
Section = tuple[tuple[Box, LoopNest], ...]


@dataclass(frozen=True)
class Function:
    """A function of the generated code: so many sections, or boxes of loops that nests share."""

    name: str
    comment: str
    parts: int


@dataclass(frozen=True)
class Cut:
    """A nest's plan; `sections` are the nests to generate, none where the nest stays whole.

    `functions` have all of the sections, in order, or there are none.
    """

    plan: NestPlan
    sections: tuple[Section, ...] = ()
    functions: tuple[Function, ...] = ()

    @property
    def pieces(self) -> Section:
        return tuple(piece for section in self.sections for piece in section)


def first_inner(nest: LoopNest, fused: int | None) -> int:
    """The number of the first axis whose ranges can stand side by side inside the other loops.

    These are the reduction axes, or without any those inside of the `fused` outer loops.
    """
    iterate = sum(not axis.reduce for axis in nest.axes)
    return iterate if fused is None or iterate < len(nest.axes) else min(fused, iterate)


@dataclass(frozen=True)
class Found:
    """A nest in the loop IR with its seams, and notes on those that can't be cut."""

    nodes: Sequence[SchedulerNode]
    nest: LoopNest
    search: seams.SeamSearch
    notes: tuple[Reason, ...]

    def plan(
        self,
        pieces: Sequence[Box],
        reason: Reason,
        more: Sequence[Reason] = (),
        elsewhere: Sequence[seams.SeamAt] = (),
        settled: Container[str] = (),
    ) -> NestPlan:
        """The plan with these pieces, or with one that is all of the nest.

        `more` are further notes, `elsewhere` seams that were not found in the nest as a whole,
        `settled` the texts of notes that hold no longer.
        """
        notes = [*(n for n in self.notes if n.text not in settled), *more]
        places = {(s.axis, s.position): s for s in (*elsewhere, *self.search.seams)}
        return NestPlan(
            name=self.nest.name,
            axes=tuple(AxisPlan(a.name, str(a.size), a.reduce) for a in self.nest.axes),
            seams=tuple(Seam(str(s.axis), str(s.position), s.cause) for s in places.values()),
            pieces=tuple(
                _piece(self.nest, k, box) for k, box in enumerate(pieces or [everything(self.nest)])
            ),
            reason=replace(reason, where=self.nest.name),
            notes=tuple(replace(n, where=self.nest.name) for n in notes),
            origins=origins(self.nodes),
            text=text.show(self.nest),
        )


def look(nodes: Sequence[SchedulerNode]) -> Found | NestPlan:
    """The nest that `nodes` make and its seams, or the plan of one that is not in the loop IR."""
    try:
        nest = to_nest(nodes)
    except NotInIR as why:
        return _opaque(nodes, Reason(why.code, nodes[0].get_name(), str(why)))
    search = seams.find(nest)
    notes = tuple(Reason(n.code, nest.name, n.text) for n in search.notes)
    return Found(nodes, nest, search, (*notes, *_leave_positions(search, nest)))


def decide(
    found: Found, config: Config, fused: int | None = None, more: Sequence[Reason] = ()
) -> Cut:
    """Decide about the pieces of a nest.

    `fused` is the number of outer loops that it shares with other nests: those stay whole here,
    for the reasons that `more` gives.
    """
    in_blocks = _in_blocks(found, config) if fused is None else None
    if in_blocks:
        return in_blocks
    nest, own = found.nest, {a.symbol for a in found.nest.axes[fused or 0 :]}
    cuts = {axis: at for axis, at in found.search.cuts.items() if axis in own}
    if (found.search.cuts or found.search.slants) and config.split == "off":
        return Cut(found.plan([], Reason("off", "", "splitting is off")))
    if not cuts and more:
        return Cut(found.plan([], more[0], more[1:]))
    if not cuts:
        notes = found.notes
        code, why = ("left", notes[0].text) if notes else ("no-seams", "no seam on its axes")
        return Cut(found.plan([], Reason(code, "", why)))
    threads = parallel_num_threads()
    cut = choose_alike(found.search, cuts, config.split, config.max_pieces, threads, size_hint)
    boxes = [box for box, _ in cut.pieces]
    plan = found.plan(boxes, cut.reason, (*more, *cut.notes))
    return Cut(plan, apart(nest, cut.pieces, fused))


def _in_blocks(found: Found, config: Config) -> Cut | None:
    """The nest in blocks of an axis, each cut along another one, if a condition over both pays."""
    search, nest = found.search, found.nest
    if not search.slants or config.split == "off":
        return None
    depth = 1 + [axis.symbol for axis in nest.axes].index(search.slants[0].outer)
    threads, most = parallel_num_threads(), config.max_pieces
    cutting = choose_group_alike([search], depth, config.split, most, threads, size_hint)
    if not cutting.settled and not search.cuts and cutting.reason.code != "no-seams":
        return Cut(found.plan([], cutting.reason))
    if not cutting.settled:
        return None
    pieces = tuple(piece for _, (inside,) in cutting.boxes for piece in inside.pieces)
    seams_in_blocks = [seam for _, (inside,) in cutting.boxes for seam in inside.seams]
    plan = found.plan(
        [box for box, _ in pieces],
        cutting.reason,
        cutting.notes,
        [*cutting.seams, *seams_in_blocks],
        cutting.settled,
    )
    return Cut(plan, apart(nest, pieces))


def apart(nest: LoopNest, pieces: Section, fused: int | None = None) -> tuple[Section, ...]:
    """The pieces of a nest in sections."""
    by_box = dict(pieces)
    found = sections(nest, [box for box, _ in pieces], first_inner(nest, fused))
    return tuple(tuple((box, by_box[box]) for box in section) for section in found)


def _leave_positions(search: seams.SeamSearch, nest: LoopNest) -> Iterator[Reason]:
    """Give up the cuts of a reduction that counts positions, where parts can't say theirs."""
    kinds = {op.args[2] for b in nest.bodies for op in walk(b.block) if op.name == "reduction"}
    cut = [a for a in nest.axes if a.reduce and a.symbol in search.cuts]
    if cut and kinds & {"argmax", "argmin"} and not argmax_takes_positions():
        for axis in cut:
            del search.cuts[axis.symbol]
            search.fixed.add(axis.symbol)
        text = "this torch's argmax in C++ counts positions from 0 in every part"
        yield Reason("argmax-position", nest.name, text)


def everything(nest: LoopNest) -> Box:
    """The box that is all of the nest."""
    axes = nest.axes
    return Box(tuple(a.symbol for a in axes), tuple((sympy.S.Zero, a.size) for a in axes))


def _opaque(nodes: Sequence[SchedulerNode], reason: Reason) -> NestPlan:
    """The plan of a nest that the loop IR can't express."""
    _, groups = max(nodes, key=lambda node: node.is_reduction()).group
    # a GPU's scheduling has the number of points in place of the sizes
    iterate, reduce = (part if isinstance(part, tuple) else (part,) for part in groups)
    axes = (
        *(AxisPlan(f"i{k}", str(size)) for k, size in enumerate(iterate)),
        *(AxisPlan(f"r{k}", str(size), True) for k, size in enumerate(reduce) if size != 1),
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
