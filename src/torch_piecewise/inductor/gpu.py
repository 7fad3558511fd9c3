"""The GPU hook: Inductor's Triton scheduling, with the ranges of a nest in one launch.

A nest that is cut becomes one kernel whose blocks choose a range. Everything else is Inductor's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch._inductor.codegen.cuda_combined_scheduling import CUDACombinedScheduling
from torch._inductor.codegen.triton import TritonScheduling
from torch._inductor.scheduler import SchedulerNode
from torch._inductor.virtualized import V

from torch_piecewise.config import Config
from torch_piecewise.plan.launch import choose_ranges, told, ways
from torch_piecewise.plan.plan import NestPlan, Reason

from . import facts, scope
from .launch import Launch, Range
from .planning import Cut, Found, look
from .ranges import extent, shape
from .versions import size_hint


class RangesScheduling(TritonScheduling):
    """`TritonScheduling` for a compile of ours: overrides how fused nodes become a kernel."""

    def _codegen_nodes(self, nodes: Sequence[SchedulerNode], *args: Any, **kwargs: Any) -> Any:
        mine = scope.current()
        scheduler: Any = self.scheduler
        kept = [n for n in nodes if n.get_name() not in scheduler.removed_ops]
        if mine is None or not kept:
            return super()._codegen_nodes(nodes, *args, **kwargs)
        cut = _cut(kept, mine.config)
        mine.nests.append(cut.plan)
        if cut.pieces and mine.apply:
            self._write(kept, cut, mine.config)
        else:
            super()._codegen_nodes(nodes, *args, **kwargs)
        facts.write()
        return None

    def _write(self, nodes: list[SchedulerNode], cut: Cut, config: Config) -> None:
        """The launch of a nest that is cut, and its call."""
        launch, source = make(self, nodes, cut, config)
        first = launch.ranges[0].kernel
        name = self.define_kernel(source, nodes, first)
        with V.set_kernel_handler(first):
            for node in nodes:
                node.mark_run()
        self.codegen_comment(nodes, name)
        launch.call(name)
        V.graph.removed_buffers |= launch.removed_buffers
        V.graph.inplaced_to_remove |= launch.inplaced_to_remove
        self.free_buffers_in_scheduler()


class PiecewiseCuda(CUDACombinedScheduling):
    """Inductor's scheduling for CUDA, whose Triton part is ours."""

    def __init__(self, scheduler: Any):
        super().__init__(scheduler)
        self._triton_scheduling = RangesScheduling(scheduler)


def make(
    scheduling: Any, nodes: list[SchedulerNode], cut: Cut, config: Config
) -> tuple[Launch, str]:
    """A launch with the pieces of a nest, and by the cost model's choice the nest as it is."""
    ranges = [Range(f"range_{k}", *shape(nest), nest) for k, (_, nest) in enumerate(cut.pieces)]
    whole = None
    if config.split == "auto":
        (numel, _) = nodes[0].group[1]
        whole = len(ranges)
        ranges.append(Range("whole", 1, numel, None))
    sizes = [(extent(r.rows, size_hint), extent(r.columns, size_hint)) for r in ranges]
    launch = Launch(scheduling, nodes, ranges, ways(sizes, whole))
    return launch, launch.generate()


def _cut(nodes: Sequence[SchedulerNode], config: Config) -> Cut:
    """Find the seams of the nest that `nodes` make and decide about its ranges."""
    found = look(nodes)
    return Cut(found) if isinstance(found, NestPlan) else _decide(found, config)


def _decide(found: Found, config: Config) -> Cut:
    search = found.search
    if (search.cuts or search.slants) and config.split == "off":
        return Cut(found.plan([], Reason("off", "", "splitting is off")))
    if not search.cuts:
        notes = found.notes
        code, why = ("left", notes[0].text) if notes else ("no-seams", "no seam on its axes")
        return Cut(found.plan([], Reason(code, "", why)))
    if any(axis.reduce for axis in found.nest.axes):
        return Cut(found.plan([], Reason("reduction", "", "reductions stay whole on a GPU")))
    cut = choose_ranges(search, config.split, config.max_pieces, size_hint)
    boxes = [box for box, _ in cut.pieces]
    reason = told(cut.reason, config.split) if boxes else cut.reason
    return Cut(found.plan(boxes, reason, cut.notes), tuple((piece,) for piece in cut.pieces))
