"""The CPU hook: Inductor's C++ scheduling, with each nest cut into its pieces.

A nest that is cut becomes several loops side by side in the one kernel of its nest, each generated
by Inductor from a body that the loop IR folded for its box. Everything else is Inductor's.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch._inductor.codegen.cpp import CppScheduling, KernelGroup, OuterLoopFusedSchedulerNode
from torch._inductor.scheduler import SchedulerNode

from . import facts, scope
from .functions import FunctionKernelGroup
from .limited import comment, limited
from .outer import FusedKernel, together
from .planning import Cut, Section, cut_nest


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
        cut = cut_nest(nodes, mine.config)
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
        cuts = [cut_nest(n.get_nodes(), mine.config, depth) for n in node.get_outer_nodes()]
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
        group, number = self.kernel_group, 0
        for section in cut.sections:
            kernel, title = self._kernel(nodes, section, number, len(cut.pieces))
            scheduled = nodes if number == 0 else []
            if isinstance(group, FunctionKernelGroup):
                name = f"piecewise_{cut.plan.pieces[number].name}"
                group.finalize_piece(kernel, scheduled, name, title)
            else:
                group.loops_code.writeline(title)
                group.finalize_kernel(kernel, scheduled)
            number += len(section)

    def _kernel(
        self, nodes: list[SchedulerNode], section: Section, first: int, count: int
    ) -> tuple[Any, str]:
        """The loops of a section and the comment before them; its first piece has number `first`.

        The first piece of all decides which buffers are written in place; the others follow it.
        """
        if len(section) == 1:
            box, piece = section[0]
            with limited(nodes, piece)(first == 0):
                kernel = self.kernel_proxy_cls(self.kernel_group)
                kernel.codegen_nodes(nodes)
            return kernel, comment(first, count, box)
        kernel = together(self.kernel_group, nodes, section, first, count)
        kernel.codegen_nodes(nodes)
        return kernel, f"// {len(section)} pieces with the same accumulators"

    def flush(self) -> None:
        super().flush()  # type: ignore[no-untyped-call]
        facts.write()
