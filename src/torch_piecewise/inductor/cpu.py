"""The CPU hook: Inductor's C++ scheduling, with each nest cut into its pieces.

A nest that is cut becomes several loops side by side in the one kernel of its nest, each generated
by Inductor from a body that the loop IR folded for its box. Everything else is Inductor's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch._inductor.codegen.cpp import CppScheduling, KernelGroup, OuterLoopFusedSchedulerNode
from torch._inductor.loop_body import LoopBody
from torch._inductor.scheduler import SchedulerNode
from torch._inductor.utils import IndentedBuffer, parallel_num_threads

from torch_piecewise.loops.ir import Box
from torch_piecewise.plan.plan import Reason

from . import facts, scope
from .adapter import to_body, unit_axes
from .functions import FunctionKernelGroup
from .planning import Cut, cut_nest, uncut
from .rows import PieceKernel, joined

_OUTER = Reason("outer-fused", "", "it shares its outer loop with other nests; left to Inductor")


class PiecewiseScheduling(CppScheduling):
    """`CppScheduling` for a compile of ours: overrides how one fused node becomes loops."""

    def codegen_node(self, node: Any) -> None:
        mine = scope.current()
        if mine is None:  # the gate was passed when this scheduler was made
            super().codegen_node(node)
            return
        if isinstance(node, OuterLoopFusedSchedulerNode):
            mine.nests.extend(uncut(inner.get_nodes(), _OUTER) for inner in node.get_outer_nodes())
            super().codegen_node(node)
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

    def reset_kernel_group(self) -> None:
        mine = scope.current()
        functions = mine is not None and mine.config.piece_functions
        self.kernel_group = FunctionKernelGroup() if functions else KernelGroup()

    def _codegen_pieces(self, nodes: list[SchedulerNode], cut: Cut) -> None:
        group = self.kernel_group
        pieces = [*self._piece_kernels(nodes, cut)]
        if isinstance(group, FunctionKernelGroup):
            for piece, planned in zip(pieces, cut.plan.pieces, strict=True):
                group.finalize_piece(piece.kernel, f"piecewise_{planned.name}", piece.comment)
        else:
            outer = sum(not axis.reduce for axis in cut.plan.axes) - 1
            kernels = [*joined(pieces, outer, parallel_num_threads())]
            for number, piece in enumerate(kernels):
                start = len(group.loops_code._lines)
                group.loops_code.writeline(piece.comment)
                group.finalize_kernel(piece.kernel, [])
                if number < len(kernels) - 1:
                    _without_barrier(group.loops_code, start)
        group.scheduled_nodes += nodes

    def _piece_kernels(self, nodes: list[SchedulerNode], cut: Cut) -> Iterator[PieceKernel]:
        bodies = [[to_body(piece, body) for body in piece.bodies] for _, piece in cut.pieces]
        for number, ((box, nest), limited) in enumerate(zip(cut.pieces, bodies, strict=True)):
            # the first piece decides which buffers are written in place; the others follow it
            with _limited_to(nodes, limited, inplace=number == 0):
                kernel = self.kernel_proxy_cls(self.kernel_group)
                kernel.codegen_nodes(nodes)
            outer = sum(not axis.reduce for axis in nest.axes) - 1
            depth = outer - len(unit_axes(nest))
            yield PieceKernel(box, depth, _comment(number, len(bodies), box), kernel)

    def flush(self) -> None:
        super().flush()  # type: ignore[no-untyped-call]
        facts.write()


def _comment(number: int, count: int, box: Box) -> str:
    """Says which piece follows. No buffer names: equal kernels must stay equal text."""
    return f"// piece {number + 1} of {count}: {box}"


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
