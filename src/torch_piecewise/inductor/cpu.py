"""The CPU hook: Inductor's C++ scheduling, with each nest cut into its pieces.

A nest that is cut becomes several loops side by side in the one kernel of its nest, each generated
by Inductor from a body that the loop IR folded for its box. Everything else is Inductor's.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch._inductor.codegen.cpp import CppScheduling, KernelGroup, OuterLoopFusedSchedulerNode
from torch._inductor.scheduler import SchedulerNode
from torch._inductor.utils import IndentedBuffer, parallel_num_threads

from . import facts, scope
from .functions import FunctionKernelGroup
from .limited import comment, limited
from .lowp import in_float32
from .outer import FusedKernel, together
from .piece import PieceKernel
from .planning import Cut, cut_nest
from .rows import Loops, joined


class PiecewiseScheduling(CppScheduling):
    """`CppScheduling` for a compile of ours: overrides how one fused node becomes loops."""

    def codegen_node(self, node: Any) -> None:
        mine = scope.current()
        if mine is None:  # the gate was passed when this scheduler was made
            super().codegen_node(node)
            return
        if isinstance(node, OuterLoopFusedSchedulerNode):
            self._codegen_outer_fused(node, mine)
            return
        # Inductor may split a loop of its own first; doing so twice changes nothing
        nodes = self.try_loop_split(node.get_nodes())
        cut = cut_nest(in_float32(self.kernel_group, nodes), mine.config)
        mine.nests.append(cut.plan)
        if not (cut.pieces and mine.apply):
            super().codegen_node(node)
            return
        self._codegen_pieces(nodes, cut)
        if self._get_scheduled_num_args() > CppScheduling.MAX_FUSED_KERNEL_ARGS_NUM:
            self._set_flush_status(True)

    def _codegen_outer_fused(self, node: Any, mine: scope.Scope) -> None:
        """Nests under one outer loop: each may have its inner axes cut."""
        depth = node.outer_loop_fusion_depth
        nests = [in_float32(self.kernel_group, n.get_nodes()) for n in node.get_outer_nodes()]
        cuts = [cut_nest(nodes, mine.config, depth) for nodes in nests]
        mine.nests.extend(cut.plan for cut in cuts)
        if mine.apply and any(cut.sections for cut in cuts):
            # Inductor makes a kernel for each nest, and perhaps once more where it can't fuse them
            names = [n.get_nodes()[0].get_name() for n in node.get_outer_nodes()]
            by_name = dict(zip(names, cuts, strict=True))
            self.kernel_proxy_cls = partial(FusedKernel, by_name, depth)  # type: ignore
        try:
            super().codegen_node(node)
        finally:
            vars(self).pop("kernel_proxy_cls", None)

    def reset_kernel_group(self) -> None:
        mine = scope.current()
        functions = mine is not None and mine.config.piece_functions
        self.kernel_group = FunctionKernelGroup() if functions else KernelGroup()

    def _codegen_pieces(self, nodes: list[SchedulerNode], cut: Cut) -> None:
        group, every = self.kernel_group, [*self._loops(nodes, cut)]
        group.scheduled_nodes += nodes
        if isinstance(group, FunctionKernelGroup):
            first = 0
            for loops, section in zip(every, cut.sections, strict=True):
                name = f"piecewise_{cut.plan.pieces[first].name}"
                group.finalize_piece(loops.kernel, name, loops.comment)
                first += len(section)
            return
        outer = sum(not axis.reduce for axis in cut.plan.axes) - 1
        kernels = [*joined(every, outer, parallel_num_threads())]
        for number, loops in enumerate(kernels):
            start = len(group.loops_code._lines)
            group.loops_code.writeline(loops.comment)
            group.finalize_kernel(loops.kernel, [])
            if number < len(kernels) - 1:
                _without_barrier(group.loops_code, start)

    def _loops(self, nodes: list[SchedulerNode], cut: Cut) -> Iterator[Loops]:
        """The loops of each section. The first piece decides which buffers are written in place."""
        group, first, count = self.kernel_group, 0, len(cut.pieces)
        for section in cut.sections:
            box, piece = section[0]
            if len(section) == 1:
                with limited(nodes, piece)(first == 0):
                    kernel = PieceKernel(group)  # type: ignore[no-untyped-call]
                    kernel.codegen_nodes(nodes)
                yield Loops(box, comment(first, count, box), kernel)
            else:
                parts = together(group, nodes, section, first, count)
                parts.codegen_nodes(nodes)
                yield Loops(box, f"// {len(section)} pieces with the same accumulators", parts)
            first += len(section)

    def flush(self) -> None:
        super().flush()  # type: ignore[no-untyped-call]
        facts.write()


def _without_barrier(code: IndentedBuffer, start: int) -> None:
    """Let threads go on to the next piece: pieces of a nest are as independent as its points.

    The barrier at the end of the last piece waits for all of them.
    """
    for number in range(start, len(code._lines)):
        line = code._lines[number]
        if isinstance(line, str) and line.lstrip().startswith(
            ("#pragma omp for", "#pragma omp single")
        ):
            code._lines[number] = f"{line} nowait"
