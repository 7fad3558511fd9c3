"""Pieces that stand under the same outer loops: parts of a reduction, and outer-fused nests.

Inductor may put nests under one outer loop, as those of a softmax over rows. It asks each for a
kernel and takes the loops inside; here such a kernel is one whose inner axes are cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch._inductor.codegen.cpp import CppKernelProxy
from torch._inductor.scheduler import SchedulerNode

from torch_piecewise.loops.idle import adds_nothing

from .limited import comment, limited
from .parts import Part, PartsKernel
from .planning import Cut, Section, first_inner


def together(
    group: Any,
    nodes: Sequence[SchedulerNode],
    section: Section,
    first: int,
    count: int,
    fused: int | None = None,
) -> PartsKernel:
    """The kernel of a section; its first piece has number `first` of `count`.

    `fused` is the number of outer loops that are shared with other nests.
    """
    last_box, nest = section[-1]
    inner = first_inner(nest, fused)
    parts = [
        Part(limited(nodes, piece), comment(first + k, count, box), adds_nothing(piece))
        for k, (box, piece) in enumerate(section)
    ]
    # together the parts cover every inner axis; the last one ends where the axes do
    outer = [axis.size for axis in nest.axes[:inner]]
    sizes = (*outer, *(stop for _, stop in last_box.ranges[inner:]))
    depth = sum(not axis.reduce for axis in nest.axes)
    return PartsKernel(group, parts, (sizes[:depth], sizes[depth:]), inner, first == 0)


class FusedKernel(CppKernelProxy):
    """What Inductor takes for the kernel of one outer-fused nest; `cuts` by the first node's name.

    A nest that is not cut is generated as ever.
    """

    def __init__(self, cuts: Mapping[str, Cut], depth: int, group: Any):
        super().__init__(group)  # type: ignore[no-untyped-call]
        self.cuts, self.depth = cuts, depth
        self.parts: PartsKernel | None = None

    def codegen_nodes(self, nodes: list[SchedulerNode]) -> None:
        cut = self.cuts[nodes[0].get_name()]
        if not cut.sections:
            super().codegen_nodes(nodes)
            return
        (section,) = cut.sections
        parts = together(self.kernel_group, nodes, section, 0, len(section), self.depth)
        parts.codegen_nodes(nodes)
        depth = parts.reduction_depth
        assert parts.call_ranges is not None
        self.set_ranges(parts.call_ranges[:depth], parts.call_ranges[depth:])
        self.parts, self.loop_nest, self.kernels = parts, parts.loop_nest, parts.kernels

    def codegen_loops(self, code: Any, worksharing: Any) -> None:
        # Inductor puts the fused kernel into the first nest's loops: then all loops are its own
        nest: Any = self.loop_nest
        if self.parts is not None and nest.kernel is self.parts:
            self.parts.codegen_loops(code, worksharing)
        else:
            super().codegen_loops(code, worksharing)  # type: ignore[no-untyped-call]
