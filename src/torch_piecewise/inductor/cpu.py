"""The CPU hook: Inductor's C++ scheduling, with each nest cut into its pieces.

A nest that is cut becomes several loops side by side in the one kernel of its nest, each generated
by Inductor from a body that the loop IR folded for its box. Everything else is Inductor's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch._inductor.codegen.cpp import (
    CppKernelProxy,
    CppScheduling,
    KernelGroup,
    OuterLoopFusedSchedulerNode,
)
from torch._inductor.loop_body import LoopBody
from torch._inductor.scheduler import SchedulerNode

from torch_piecewise.loops.ir import Box, LoopNest
from torch_piecewise.plan.plan import NestPlan, Reason

from . import facts, scope
from .adapter import to_body
from .functions import FunctionKernelGroup
from .outer import Heard, is_shared, shared_kernels
from .planning import Cut, cut_nest, decide, read_nest
from .shared import Member, SharedCut, cut_shared, whole
from .tiling import PieceKernel

_UNSHARED = Reason("outer-tiling", "", "its pieces can't share the outer loop as the whole does")


class PiecewiseScheduling(CppScheduling):
    """`CppScheduling` for a compile of ours: overrides how one fused node becomes loops."""

    def codegen_node(self, node: Any) -> None:
        mine = scope.current()
        if mine is None:  # the gate was passed when this scheduler was made
            super().codegen_node(node)
            return
        if isinstance(node, OuterLoopFusedSchedulerNode):
            self._codegen_shared(node, mine)
            return
        # Inductor may split a loop of its own first; doing so twice changes nothing
        nodes = self.try_loop_split(node.get_nodes())
        cut = cut_nest(nodes, mine.config)
        mine.nests.append(cut.plan)
        if not (cut.pieces and mine.apply):
            super().codegen_node(node)
            return
        self._codegen_pieces(self.kernel_group, nodes, cut)
        if self._get_scheduled_num_args() > CppScheduling.MAX_FUSED_KERNEL_ARGS_NUM:
            self._set_flush_status(True)

    def reset_kernel_group(self) -> None:
        mine = scope.current()
        functions = mine is not None and mine.config.piece_functions
        self.kernel_group = FunctionKernelGroup() if functions else KernelGroup()

    def _codegen_pieces(
        self, group: Any, nodes: list[SchedulerNode], cut: Cut, decided: bool = False
    ) -> None:
        """Write the pieces of a nest. `decided`: which buffers are written in place is settled."""
        for number, (box, piece) in enumerate(cut.pieces):
            # the first piece decides which buffers are written in place; the others follow it
            inplace = number == 0 and not decided
            kernel = _kernel(PieceKernel(group), nodes, piece, inplace)
            comment = _comment(number, len(cut.pieces), box)
            name = cut.plan.pieces[number].name
            _write(group, kernel, nodes if number == 0 else [], name, comment)

    def _codegen_shared(self, node: OuterLoopFusedSchedulerNode, mine: scope.Scope) -> None:
        """Generate nests with shared outer loops; Inductor says whether the loops are shared."""
        members = [Member(n.get_nodes(), read_nest(n.get_nodes())) for n in node.get_outer_nodes()]
        cut = cut_shared(members, node.outer_loop_fusion_depth, mine.config)
        group: Any = self.kernel_group

        def heard(kernel: Any, nodes: list[SchedulerNode]) -> None:
            if not is_shared(kernel):
                member = next(m for m in members if m.nodes[0] is nodes[0])
                mine.nests.append(self._write_alone(group, kernel, member, mine))
                return
            kernels = self._shared_kernels(group, node, members, cut) if mine.apply else []
            left = kernels is None
            mine.nests.extend(whole(members, _UNSHARED).plans if left else cut.plans)
            if not kernels:
                group.finalize_kernel(kernel, nodes)
            for number, one in enumerate(kernels or []):
                comment = _comment(number, len(cut.boxes), cut.boxes[number].box)
                name = f"{members[0].nodes[0].get_name()}_outer_{number}"
                _write(group, one, nodes if number == 0 else [], name, comment)

        hearing: Any = Heard(group, heard)
        self.kernel_group = hearing
        try:
            super().codegen_node(node)
        finally:
            self.kernel_group = group

    def _write_alone(self, group: Any, kernel: Any, member: Member, mine: scope.Scope) -> NestPlan:
        """One nest of a group that shares no loops after all: its pieces, or `kernel`, whole."""
        nodes = list(member.nodes)
        cut = decide(member.nest, nodes, mine.config)
        if cut.pieces and mine.apply:
            self._codegen_pieces(group, nodes, cut, decided=True)
        else:
            group.finalize_kernel(kernel, nodes)
        return cut.plan

    def _shared_kernels(
        self,
        group: Any,
        node: OuterLoopFusedSchedulerNode,
        members: Sequence[Member],
        cut: SharedCut,
    ) -> list[CppKernelProxy] | None:
        """A kernel for each box of the shared loops; see `outer.shared_kernels`."""
        bodies = {n: n._body for m in members for n in m.nodes}

        def make(nodes: Sequence[Any], piece: LoopNest, as_whole: bool) -> CppKernelProxy:
            kernel = PieceKernel(group)
            if as_whole:
                kernel.chosen_from = [bodies[n] for n in nodes]
            return _kernel(kernel, nodes, piece, inplace=False)

        return shared_kernels(node, members, cut.boxes, make)

    def flush(self) -> None:
        super().flush()  # type: ignore[no-untyped-call]
        facts.write()


def _kernel(
    kernel: CppKernelProxy, nodes: Sequence[SchedulerNode], piece: LoopNest, inplace: bool
) -> CppKernelProxy:
    """Generate into a kernel the loops of some nodes, limited to one piece."""
    bodies = [to_body(piece, body) for body in piece.bodies]
    with _limited_to(nodes, bodies, inplace):
        kernel.codegen_nodes(list(nodes))
    return kernel


def _write(group: Any, kernel: Any, nodes: list[SchedulerNode], name: str, comment: str) -> None:
    """Add the loops of a piece to a kernel; `nodes` are those that they are the first loops of."""
    if isinstance(group, FunctionKernelGroup):
        group.finalize_piece(kernel, nodes, f"piecewise_{name}", comment)
    else:
        group.loops_code.writeline(comment)
        group.finalize_kernel(kernel, nodes)


def _comment(number: int, count: int, box: Box) -> str:
    """Says which piece follows. No buffer names: equal kernels must stay equal text."""
    return f"// piece {number + 1} of {count}: {box}"


@contextmanager
def _limited_to(
    nodes: Sequence[SchedulerNode], bodies: Sequence[LoopBody], inplace: bool
) -> Iterator[None]:
    """The nodes with the bodies of one piece, for the time of generating it.

    `inplace` False keeps them from deciding again which buffers share memory. (Inductor's config
    says the same for the whole process; another thread's compile must not see that.)
    """
    saved = [(n, n._body, n._sizes, n.group) for n in nodes]
    try:
        for node, body in zip(nodes, bodies, strict=True):
            sizes = (tuple(body.sizes[0]), tuple(body.sizes[1]))
            node._body, node._sizes, node.group = body, sizes, (node.group[0], sizes)
            if not inplace:
                vars(node)["decide_inplace_update"] = _decided
        yield
    finally:
        for node, old_body, old_sizes, old_group in saved:
            node._body, node._sizes, node.group = old_body, old_sizes, old_group
            vars(node).pop("decide_inplace_update", None)


def _decided() -> None:
    """Stands in for `decide_inplace_update` where that has been settled."""
