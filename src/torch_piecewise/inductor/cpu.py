"""The CPU hook: Inductor's C++ scheduling, with each nest cut into its pieces.

A nest that is cut becomes several loops side by side in the one kernel of its nest, each generated
by Inductor from a body that the loop IR folded for its box. Everything else is Inductor's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from torch._inductor.codegen.cpp import CppScheduling, KernelGroup, OuterLoopFusedSchedulerNode
from torch._inductor.scheduler import SchedulerNode
from torch._inductor.utils import IndentedBuffer, parallel_num_threads

from torch_piecewise.plan.plan import NestPlan, Reason

from . import facts, scope
from .functions import FunctionKernelGroup
from .given import cut_found, cut_members, cut_nest
from .group import uncut
from .limited import comment, limited
from .lowp import in_float32
from .outer import Heard, SharedKernels, is_shared
from .parts import together
from .piece import PieceKernel
from .planning import Cut, Function, look
from .rows import Loops, joined

UNSHARED = Reason("outer-fused", "", "in its pieces the nests can't share their outer loops")


class PiecewiseScheduling(CppScheduling):
    """`CppScheduling` for a compile of ours: overrides how one fused node becomes loops."""

    def codegen_node(self, node: Any) -> None:
        mine = scope.current()
        if mine is None:  # the gate was passed when this scheduler was made
            super().codegen_node(node)
            return
        if isinstance(node, OuterLoopFusedSchedulerNode):
            self._codegen_outer_fused(node, mine)
        else:
            self._codegen_nest(node, mine)
        if mine.apart or self._get_scheduled_num_args() > CppScheduling.MAX_FUSED_KERNEL_ARGS_NUM:
            self._set_flush_status(True)

    def _codegen_nest(self, node: Any, mine: scope.Scope) -> None:
        # Inductor may split a loop of its own first; doing so twice changes nothing
        nodes = self.try_loop_split(node.get_nodes())
        cut = cut_nest(in_float32(self.kernel_group, nodes), mine.config, mine.along)
        mine.nests.append(cut.plan)
        if cut.pieces and mine.apply:
            self._codegen_pieces(self.kernel_group, nodes, cut)
        else:
            super().codegen_node(node)

    def _codegen_outer_fused(self, node: Any, mine: scope.Scope) -> None:
        """Nests under one outer loop; Inductor says whether they share it after all."""
        group: Any = self.kernel_group
        members = [look(in_float32(group, n.get_nodes())) for n in node.get_outer_nodes()]
        names = [n.get_nodes()[0].get_name() for n in node.get_outer_nodes()]

        def heard(kernel: Any, nodes: list[SchedulerNode]) -> None:
            if is_shared(kernel):
                depth = node.outer_loop_fusion_depth
                cut = cut_members(members, depth, mine.config, mine.along)
                written = SharedKernels(group, node, members, cut)
                mine.nests.extend(self._write_shared(kernel, nodes, written, mine.apply))
            else:
                found = members[names.index(nodes[0].get_name())]
                alone = (
                    Cut(found)
                    if isinstance(found, NestPlan)
                    else cut_found(found, mine.config, mine.along)
                )
                mine.nests.append(alone.plan)
                if alone.pieces and mine.apply:
                    self._codegen_pieces(group, nodes, alone, decided=True)
                else:
                    group.finalize_kernel(kernel, nodes)

        hearing: Any = Heard(group, heard)
        self.kernel_group = hearing
        try:
            super().codegen_node(node)
        finally:
            self.kernel_group = group

    def _write_shared(
        self, whole: Any, nodes: list[SchedulerNode], shared: SharedKernels, apply: bool
    ) -> Sequence[NestPlan]:
        """Write the boxes of the shared loops, or the `whole`; the plans say which."""
        group, boxes = shared.group, shared.cut.boxes if apply else ()
        kernels = shared.kernels() if boxes else []
        if not kernels:
            group.finalize_kernel(whole, nodes)
            return shared.cut.plans if kernels is not None else uncut(shared.members, UNSHARED)
        group.scheduled_nodes += nodes
        if len(boxes) == 1:
            group.finalize_kernel(kernels[0], [])
            return shared.cut.plans
        texts = [
            f"// box {number + 1} of {len(boxes)}, all nests in it: {box.box}"
            for number, box in enumerate(boxes)
        ]
        functions = [
            Function(f"piecewise_{nodes[0].get_name()}_outer_{number}", text, 1)
            for number, text in enumerate(texts)
        ]
        every = [Loops(box.box, t, k) for box, t, k in zip(boxes, texts, kernels, strict=True)]
        self._write_all(group, every, functions, shared.cut.functions)
        return shared.cut.plans

    def reset_kernel_group(self) -> None:
        mine = scope.current()
        functions = mine is not None and (mine.config.piece_functions or mine.along is not None)
        self.kernel_group = FunctionKernelGroup() if functions else KernelGroup()

    def _codegen_pieces(
        self, group: Any, nodes: list[SchedulerNode], cut: Cut, decided: bool = False
    ) -> None:
        """Write the pieces of a nest. `decided`: which buffers are written in place is settled."""
        every = [*self._loops(group, nodes, cut, decided)]
        group.scheduled_nodes += nodes
        pieces = iter(cut.plan.pieces)
        functions = []
        for loops, section in zip(every, cut.sections, strict=True):
            first, *_ = islice(pieces, len(section))
            functions.append(Function(f"piecewise_{first.name}", loops.comment, 1))
        outer = sum(not axis.reduce for axis in cut.plan.axes) - 1
        self._write_all(group, every, functions, cut.functions, outer)

    def _write_all(
        self,
        group: Any,
        every: Sequence[Loops],
        pieces: Sequence[Function],
        ranges: Sequence[Function],
        outer: int = 0,
    ) -> None:
        """Write loops that are independent of each other.

        If so wanted each as one of the functions of the `pieces`, or by the functions of `ranges`.
        Those with the same ranges on the `outer` first axes may share their loops.
        """
        mine = scope.current()
        if mine is not None and mine.config.piece_functions:
            for loops, function in zip(every, pieces, strict=True):
                with group.function(function.name, function.comment):
                    group.finalize_kernel(loops.kernel, [])
            return
        left = iter(every)
        for function in ranges:
            with group.function(function.name, function.comment):
                self._side_by_side(group, [*islice(left, function.parts)], outer)
        self._side_by_side(group, [*left], outer)

    def _side_by_side(self, group: Any, every: Sequence[Loops], outer: int) -> None:
        kernels = [*joined(every, outer, parallel_num_threads())]
        for number, loops in enumerate(kernels):
            self._write(group, loops.comment, loops.kernel, number == len(kernels) - 1)

    def _write(self, group: Any, text: str, kernel: Any, last: bool) -> None:
        """The loops of a kernel; after the last one threads wait for all of them."""
        start = len(group.loops_code._lines)
        group.loops_code.writeline(text)
        group.finalize_kernel(kernel, [])
        if not last:
            _without_barrier(group.loops_code, start)

    def _loops(
        self, group: Any, nodes: list[SchedulerNode], cut: Cut, decided: bool
    ) -> Iterator[Loops]:
        """The loops of each section. The first piece decides which buffers are written in place."""
        first, count = 0, len(cut.pieces)
        for section in cut.sections:
            box, piece = section[0]
            inplace = first == 0 and not decided
            if len(section) == 1:
                with limited(nodes, piece)(inplace):
                    kernel = PieceKernel(group)  # type: ignore[no-untyped-call]
                    kernel.codegen_nodes(nodes)
                yield Loops(box, comment(first, count, box), kernel)
            else:
                parts = together(group, nodes, section, first, count, inplace)
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
