"""Generate a group of nests that share outer loops, box by box of the shared axes.

Inductor generates the group whole first, into `Heard`: it decides there whether the loops can be
shared, which buffers live inside one iteration only, and which are written in place. All boxes
follow these decisions; where they can't, what Inductor generated is what is written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from torch._inductor.virtualized import V

from torch_piecewise.loops.ir import Box, LoopNest

from .shared import Member, Piece, SharedBox

# nodes, the piece, whether to tile as the whole does -> its kernel
MakeKernel = Callable[[Sequence[Any], LoopNest, bool], CppKernelProxy]


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


def shared_kernels(
    node: OuterLoopFusedSchedulerNode,
    members: Sequence[Member],
    boxes: Sequence[SharedBox],
    make: MakeKernel,
) -> list[CppKernelProxy] | None:
    """A kernel for every box, None where the loops of one can't be shared."""
    kernels = []
    for box in boxes:
        with _local_indices(members, box.box):
            inside = _inside(node, members, box, make, as_whole=False)
            # a nest may have been vectorised along a shared axis, the others not
            inside = inside or _inside(node, members, box, make, as_whole=True)
        if inside is None:
            return None
        kernels.append(node.merge_outer_fusion_kernels(inside))
    return kernels


def _inside(
    node: OuterLoopFusedSchedulerNode,
    members: Sequence[Member],
    box: SharedBox,
    make: MakeKernel,
    as_whole: bool,
) -> list[CppKernelProxy] | None:
    """The kernels that run one after another in one iteration of the shared loops."""
    depth = node.outer_loop_fusion_depth
    kernels = []
    for member, pieces in zip(members, box.pieces, strict=True):
        for number, (inner, nest) in enumerate(pieces):
            kernel = make(member.nodes, nest, as_whole)
            if len(pieces) > 1:
                _label(kernel, depth, inner_comment(number, pieces, depth, inner))
            kernels.append(kernel)
    # Inductor also asks whether the shared loops are long enough: that is for the whole to say
    loops = [SimpleNamespace(loop_nest=k.loop_nest, ranges=[sympy.S.One] * depth) for k in kernels]
    return kernels if node.check_outer_fusion_loop_level_attr(loops, depth) else None


def inner_comment(number: int, pieces: Sequence[Piece], depth: int, box: Box) -> str:
    own = Box(box.axes[depth:], box.ranges[depth:])
    return f"// piece {number + 1} of {len(pieces)} inside: {own}"


def _label(kernel: CppKernelProxy, depth: int, comment: str) -> None:
    """Have a comment written before the first loop inside the shared ones."""
    nest: Any = kernel.loop_nest
    loop = nest.loops[depth]
    lines = loop.lines

    def commented() -> list[str] | None:
        found = lines()
        return found and [comment, *found]

    loop.lines = commented


@contextmanager
def _local_indices(members: Sequence[Member], box: Box) -> Iterator[None]:
    """Local buffers are indexed as in the whole, though the shared axes of a box count from 0.

    Inductor drops the shared axes from the index of a buffer that lives inside one iteration; the
    place where the box begins has to go too.
    """
    context: Any = V.local_buffer_context
    if not isinstance(context, LocalBufferContext) or not context.local_buffers:
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


def _begins(members: Sequence[Member], box: Box, local: Mapping[str, Any]) -> dict[str, sympy.Expr]:
    """For each buffer that became local, its index where the box begins: it is contiguous."""
    begins = {}
    for name in local:
        node: Any = V.graph.scheduler.name_to_buf[name].defining_op
        nest = next(m.nest for m in members if node in m.nodes)
        assert isinstance(nest, LoopNest)
        body = next(b for b in nest.bodies if b.name == node.get_name())
        index: sympy.Expr = sympy.S.Zero
        for symbol in (*body.iterate, *body.reduce):
            start = box.range(symbol)[0] if symbol in box.axes else sympy.S.Zero
            index = index * nest.axis(symbol).size + start
        begins[name] = index
    return begins
