"""The GPU hook: Inductor's Triton scheduling, with the ranges of a nest in one launch.

A nest that is cut becomes one kernel whose blocks choose a range. Everything else is Inductor's.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import sympy
from torch._inductor.codegen.cuda_combined_scheduling import CUDACombinedScheduling
from torch._inductor.codegen.triton import TritonScheduling
from torch._inductor.scheduler import SchedulerNode
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from torch_piecewise.config import Config
from torch_piecewise.loops.fold import fold
from torch_piecewise.loops.ir import Box, LoopNest
from torch_piecewise.plan.instructions import work
from torch_piecewise.plan.launch import Extent, choose_ranges, told, ways
from torch_piecewise.plan.passes import Part, choose_passes
from torch_piecewise.plan.plan import NestPlan, Reason

from . import facts, passes, scope
from .adapter import to_body
from .along import Along
from .given import given_in, in_ranges, not_cut
from .launch import Launch, Range
from .limited import bodies_of
from .planning import Cut, Found, look
from .ranges import shape
from .versions import size_hint

LANE = 8  # elements, of those that one lane works on in Inductor's blocks
SIMPLER = 0.97  # what folding over all of a nest has to leave of its instructions, to be used


@dataclass(frozen=True)
class Choice:
    """The plan of a nest; `pieces` are the ranges of its launch, none where it stays one kernel.

    `folded` is the nest without what is decided all over it. A reduction has `parts` of its passes.
    `given`: the ranges are the user's, and not timed beside the whole.
    """

    plan: NestPlan
    pieces: tuple[tuple[Box, LoopNest], ...] = ()
    folded: LoopNest | None = None
    nest: LoopNest | None = None
    parts: tuple[Part, ...] = ()
    scores: Any = None  # Inductor's, of its memory accesses
    given: bool = False


class RangesScheduling(TritonScheduling):
    """`TritonScheduling` for a compile of ours: overrides how fused nodes become a kernel."""

    def _codegen_nodes(self, nodes: Sequence[SchedulerNode], coalesce_analysis: Any = None) -> Any:
        mine = scope.current()
        scheduler: Any = self.scheduler
        kept = [n for n in nodes if n.get_name() not in scheduler.removed_ops]
        if mine is None or not kept:
            return super()._codegen_nodes(nodes, coalesce_analysis)
        choice = self._choose(kept, mine, coalesce_analysis)
        mine.nests.append(choice.plan)
        if choice.pieces and mine.apply:
            self._write(kept, choice, mine.config)
        elif choice.parts and mine.apply:
            self._write_passes(kept, choice)
        else:
            with _folded(kept, choice.folded if mine.apply else None, self.group_fn):
                super()._codegen_nodes(kept, coalesce_analysis)
        facts.write()
        return None

    def _choose(self, nodes: Sequence[SchedulerNode], mine: scope.Scope, coalescing: Any) -> Choice:
        """Find the seams of the nest that the nodes make and decide about its ranges or parts."""
        found, config = look(nodes), mine.config
        if isinstance(found, NestPlan):
            return Choice(found)
        if mine.along is not None:
            given = _as_given(found, config, mine.along)
            if isinstance(given, Choice):
                return given
            found = given
        if config.split == "off":
            return Choice(found.plan([], Reason("off", "", "splitting is off")))
        inside = _inside(nodes)
        if not any(axis.reduce for axis in found.nest.axes):
            return _in_ranges(found, config, inside)
        chosen = choose_passes(found.search, config.split, size_hint, inside)
        scores = passes.scores(self, nodes, coalescing) if chosen.parts else None
        if chosen.parts and not passes.has_loop(self, nodes, found.nest, scores):
            why = "its programs share rows, or have whole rows at once: there is no loop to cut"
            return Choice(found.plan([], Reason("one-step", "", why)))
        plan = found.plan(chosen.boxes, chosen.reason)
        return Choice(plan, nest=found.nest, parts=chosen.parts, scores=scores)

    def _write_passes(self, nodes: list[SchedulerNode], choice: Choice) -> None:
        """The kernel of a reduction by parts, and its call."""
        assert choice.nest is not None
        kernel = passes.generate(self, nodes, choice.nest, choice.parts, choice.scores)
        with V.set_kernel_handler(kernel):
            source = kernel.codegen_kernel()
        name = self.define_kernel(source, nodes, kernel)
        self._called(nodes, name, kernel)
        kernel.call_kernel(name)
        self._finish(kernel)

    def _called(self, nodes: list[SchedulerNode], name: str, kernel: Any) -> None:
        with V.set_kernel_handler(kernel):
            for node in nodes:
                node.mark_run()
        self.codegen_comment(nodes, name)

    def _finish(self, kernel: Any) -> None:
        V.graph.removed_buffers |= kernel.removed_buffers
        V.graph.inplaced_to_remove |= kernel.inplaced_to_remove
        self.free_buffers_in_scheduler()

    def _write(self, nodes: list[SchedulerNode], choice: Choice, config: Config) -> None:
        """The launch of a nest that is cut, and its call."""
        launch, source = make(self, nodes, choice, config)
        first = launch.ranges[0].kernel
        name = self.define_kernel(source, nodes, first)
        self._called(nodes, name, first)
        launch.call(name)
        self._finish(launch)


class PiecewiseCuda(CUDACombinedScheduling):
    """Inductor's scheduling for CUDA, whose Triton part is ours."""

    def __init__(self, scheduler: Any):
        super().__init__(scheduler)
        self._triton_scheduling = RangesScheduling(scheduler)


def make(
    scheduling: Any, nodes: list[SchedulerNode], choice: Choice, config: Config
) -> tuple[Launch, str]:
    """A launch with the pieces of a nest, and by the cost model's choice the nest as it is."""
    ranges = [Range(f"range_{k}", *shape(n), n) for k, (_, n) in enumerate(choice.pieces)]
    parts = [_extent(one) for one in ranges]
    whole = None
    if config.split == "auto" and not choice.given:
        (numel, _) = nodes[0].group[1]
        ranges.append(Range("whole", sympy.S.One, numel, choice.folded))
        whole = _extent(ranges[-1])
    launch = Launch(scheduling, nodes, ranges, ways(parts, whole, size_hint))
    return launch, launch.generate()


def _extent(one: Range) -> Extent:
    return Extent(size_hint(one.rows), size_hint(one.columns), one.nest)


def _as_given(found: Found, config: Config, along: Along) -> Choice | Found:
    """A nest in the user's ranges, or as it is with a note that says why not.

    They are cut further at all seams or not at all: what pays is timed beside the whole, which is
    not asked for here.
    """
    given = given_in(found, along)
    if isinstance(given, str):
        return not_cut(found, given)
    if any(axis.reduce for axis in found.nest.axes):
        return not_cut(found, "a launch in ranges can't have a reduction")

    def decide_inside(limited: Found) -> Cut:
        if config.split != "seams" or not limited.search.cuts:
            return Cut(limited.plan([], Reason("no-seams", "", "none to cut")))
        cut = choose_ranges(limited.search, "seams", config.max_pieces, size_hint)
        boxes = [box for box, _ in cut.pieces]
        return Cut(limited.plan(boxes, cut.reason, cut.notes), tuple((p,) for p in cut.pieces))

    cut = in_ranges(given, along, decide_inside)
    return Choice(cut.plan, cut.pieces, given=True)


def _folded(nodes: list[SchedulerNode], nest: LoopNest | None, group_fn: Any) -> Any:
    """The nodes as they are, or with the bodies of `nest`."""
    if nest is None:
        return nullcontext()
    return bodies_of(nodes, [to_body(nest, body) for body in nest.bodies], group_fn)


def _inside(nodes: Sequence[SchedulerNode]) -> frozenset[str]:
    """The buffers that the nodes make and nothing else needs."""
    scheduler: Any = V.graph.scheduler
    names = OrderedSet(node.get_name() for node in nodes)
    made = [name for node in nodes for name in node.get_buffer_names()]
    removable = scheduler.can_buffer_be_removed_through_fusion
    return frozenset(name for name in made if removable(name, names))


def _in_ranges(found: Found, config: Config, inside: frozenset[str]) -> Choice:
    """The ranges of a nest without a reduction."""
    search, nest = found.search, found.nest
    if not nest.axes:
        return Choice(found.plan([], Reason("no-seams", "", "one point has no axis")))
    simpler = fold(nest)
    before, after = (work(each, size_hint, LANE, flat=True).issued for each in (nest, simpler))
    less = after < SIMPLER * before
    folded = simpler if less else None
    if not search.cuts and not search.held:
        notes = found.notes
        code, why = ("left", notes[0].text) if notes else ("no-seams", "no seam on its axes")
        return Choice(found.plan([], Reason(code, "", why)), (), folded)
    cut = choose_ranges(search, config.split, config.max_pieces, size_hint, inside)
    boxes = [box for box, _ in cut.pieces]
    reason = told(cut.reason, config.split) if boxes else cut.reason
    return Choice(found.plan(boxes, reason, cut.notes), cut.pieces, folded)
