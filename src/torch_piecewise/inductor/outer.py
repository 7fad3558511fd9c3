"""Nests that share outer loops, box by box of the shared axes.

Inductor may put nests under one outer loop, as those of a softmax over rows. It generates the group
whole first, into `Heard`: it decides there whether the loops can be shared, which buffers live
inside one iteration only, and which are written in place. All boxes follow these decisions; where
they can't, what Inductor generated is what is written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import sympy
from torch._inductor.codegen.cpp import (
    CppKernelProxy,
    KernelGroup,
    OuterLoopFusedKernel,
    OuterLoopFusedSchedulerNode,
)
from torch._inductor.codegen.cpp_utils import LocalBufferContext, rewrite_index_for_function
from torch._inductor.scheduler import SchedulerNode
from torch._inductor.virtualized import V

from torch_piecewise.loops.ir import Box

from .group import GroupCut, SharedBox
from .limited import comment, limited, settled
from .parts import together
from .piece import PieceKernel
from .planning import Found, Section
from .rows import CommentedLoop


class Heard:
    """Stands in for a kernel group: `finalize` hears the kernels that would be written to it."""

    def __init__(self, group: KernelGroup, finalize: Callable[[Any, list[Any]], None]):
        self.group = group
        self.finalize_kernel = finalize

    def __getattr__(self, name: str) -> Any:
        return getattr(self.group, name)


def is_shared(kernel: Any) -> bool:
    """Whether a kernel that was heard is the whole group inside shared loops."""
    return isinstance(kernel.loop_nest.kernel, OuterLoopFusedKernel)


@dataclass
class SharedKernels:
    """Makes the kernels of a group. `members` has what was found in each nest of `node`."""

    group: Any
    node: OuterLoopFusedSchedulerNode
    members: Sequence[Any]
    cut: GroupCut

    def __post_init__(self) -> None:
        self.nodes: list[list[SchedulerNode]] = [n.get_nodes() for n in self.node.get_outer_nodes()]
        self.depth = self.node.outer_loop_fusion_depth

    def kernels(self) -> list[CppKernelProxy] | None:
        """A kernel for every box, None where the loops of one can't be shared."""
        kernels: list[CppKernelProxy] = []
        first = [0] * len(self.nodes)  # of each nest's pieces, the first in the box
        for box in self.cut.boxes:
            with _local_indices(self.members, box.box):
                # a nest may have been vectorised along a shared axis, the others not
                inside = self._inside(box, first, False) or self._inside(box, first, True)
            if inside is None:
                return None
            kernels.append(self.node.merge_outer_fusion_kernels(inside))
            for number, sections in enumerate(box.sections):
                first[number] += sum(map(len, sections))
        return kernels

    def _inside(self, box: SharedBox, first: Sequence[int], as_whole: bool) -> Any:
        """The kernels that run one after another in one iteration of the shared loops."""
        kernels: list[Any] = []
        for number, sections in enumerate(box.sections):
            nodes, count = self.nodes[number], len(self.cut.plans[number].pieces)
            start = first[number]
            for section in sections:
                kernels.append(self._kernel(nodes, section, start, count, as_whole))
                start += len(section)
            if not sections:
                kernel: Any = CppKernelProxy(self.group)  # type: ignore[no-untyped-call]
                with settled(nodes):
                    kernel.codegen_nodes(nodes)
                kernels.append(kernel)
        # Inductor also asks whether the shared loops are long enough: that is for the whole to say
        ones = [sympy.S.One] * self.depth
        loops = [SimpleNamespace(loop_nest=k.loop_nest, ranges=ones) for k in kernels]
        node: Any = self.node
        return kernels if node.check_outer_fusion_loop_level_attr(loops, self.depth) else None

    def _kernel(
        self, nodes: list[SchedulerNode], section: Section, first: int, count: int, as_whole: bool
    ) -> CppKernelProxy:
        if len(section) > 1:
            parts = together(self.group, nodes, section, first, count, False, self.depth)
            parts.codegen_nodes(nodes)
            return parts
        ((box, piece),) = section
        kernel = PieceKernel(self.group)  # type: ignore[no-untyped-call]
        if as_whole:
            kernel.tiled_like = [node._body for node in nodes]
        with limited(nodes, piece)(False):
            kernel.codegen_nodes(nodes)
        if count > 1:
            self._label(kernel, comment(first, count, box))
        return kernel

    def _label(self, kernel: PieceKernel, text: str) -> None:
        """Have a comment written inside the shared loops, before the first of the nest's own."""
        nest: Any = kernel.loop_nest
        if len(nest.loops) > self.depth:
            nest.loops[self.depth] = CommentedLoop.of(nest.loops[self.depth], text)
        else:
            kernel.comment = text


@contextmanager
def _local_indices(members: Sequence[Any], box: Box) -> Iterator[None]:
    """Local buffers are indexed as in the whole, though the shared axes of a box count from 0.

    Inductor drops the shared axes from the index of a buffer that lives inside one iteration; the
    place where the box begins has to go too.
    """
    context: Any = V.local_buffer_context
    moved = any(start != 0 for start, _ in box.ranges)
    if not (moved and isinstance(context, LocalBufferContext) and context.local_buffers):
        yield
        return
    begins = _begins(members, box, context.global_to_local)

    def rewrite(handler: Any, index: sympy.Expr, name: str) -> sympy.Expr:
        return sympy.expand(rewrite_index_for_function(handler, index, name) - begins[name])

    localize = LocalBufferContext.localize_function
    own = vars(context)  # of this context alone, which Inductor made for this group
    own["localize_function"] = functools.partial(localize, context, rewrite_index=rewrite)
    try:
        yield
    finally:
        del own["localize_function"]


def _begins(members: Sequence[Found], box: Box, local: Mapping[str, Any]) -> dict[str, sympy.Expr]:
    """For each buffer that became local, its index where the box begins: it is contiguous."""
    begins = {}
    for name in local:
        node: Any = V.graph.scheduler.name_to_buf[name].defining_op
        nest = next(m.nest for m in members if node in m.nodes)
        body = next(b for b in nest.bodies if b.name == node.get_name())
        index: sympy.Expr = sympy.S.Zero
        for symbol in (*body.iterate, *body.reduce):
            start = box.range(symbol)[0] if symbol in box.axes else sympy.S.Zero
            index = index * nest.axis(symbol).size + start
        begins[name] = index
    return begins
