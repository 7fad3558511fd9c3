"""The CPU hook: Inductor's C++ scheduling, with each nest cut into its pieces.

A nest that is cut becomes several loops side by side in the one kernel of its nest, each generated
by Inductor from a body that the loop IR folded for its box. Everything else is Inductor's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch._inductor.codegen.cpp import CppScheduling, KernelGroup, OuterLoopFusedSchedulerNode
from torch._inductor.loop_body import LoopBody
from torch._inductor.scheduler import SchedulerNode

from torch_piecewise.loops.ir import Box
from torch_piecewise.loops.idle import adds_nothing
from torch_piecewise.plan.plan import Reason

from . import facts, scope
from .adapter import to_body
from .functions import FunctionKernelGroup
from .planning import Cut, Section, cut_nest, uncut
from .parts import Part, PartsKernel

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
        group, number = self.kernel_group, 0
        for section in cut.sections:
            kernel, comment = self._kernel(nodes, section, number, len(cut.pieces))
            scheduled = nodes if number == 0 else []
            if isinstance(group, FunctionKernelGroup):
                name = f"piecewise_{cut.plan.pieces[number].name}"
                group.finalize_piece(kernel, scheduled, name, comment)
            else:
                group.loops_code.writeline(comment)
                group.finalize_kernel(kernel, scheduled)
            number += len(section)

    def _kernel(
        self, nodes: list[SchedulerNode], section: Section, first: int, count: int
    ) -> tuple[Any, str]:
        """The loops of a section and the comment before them; its first piece has number `first`.

        The first piece of all decides which buffers are written in place; the others follow it.
        """
        bodies = [[to_body(piece, body) for body in piece.bodies] for _, piece in section]
        limited = [partial(_limited_to, nodes, b) for b in bodies]
        comments = [_comment(first + k, count, box) for k, (box, _) in enumerate(section)]
        if len(section) == 1:
            with limited[0](inplace=first == 0):
                kernel = self.kernel_proxy_cls(self.kernel_group)
                kernel.codegen_nodes(nodes)
            return kernel, comments[0]
        parts = [
            Part(body, comment, adds_nothing(piece))
            for body, comment, (_, piece) in zip(limited, comments, section, strict=True)
        ]
        # together the parts cover every reduction axis; the last one ends where the axis does
        iterate = tuple(a.size for a in section[0][1].axes if not a.reduce)
        reduce = tuple(stop for _, stop in section[-1][0].ranges[len(iterate) :])
        sizes = iterate, reduce
        kernel = PartsKernel(self.kernel_group, parts, sizes, len(iterate), first == 0)
        kernel.codegen_nodes(nodes)
        return kernel, f"// {len(section)} pieces with the same accumulators"

    def flush(self) -> None:
        super().flush()  # type: ignore[no-untyped-call]
        facts.write()


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
