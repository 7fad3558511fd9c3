"""What is stored, and what each reader computes.

A value that several operations read is stored where computing it for each of them takes longer.

Inductor computes what is not stored in every place that reads it. It stores values made by a few
operations that are slow on a CPU (exp, log, tanh); here the cost model's weights speak for all.
Readers of the same elements are fused with the value's loop either way; readers of shifted ones, as
in a stencil, would compute it once for every shift.
"""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.virtualized import V

from torch_piecewise.plan.reuse import choose_store

from . import scope
from .versions import size_hint

aten = torch.ops.aten
PLACED = frozenset(  # each element of the operand is read in one place
    {
        aten.slice_scatter.default,
        aten.select_scatter.default,
        aten.constant_pad_nd.default,
        aten.slice.Tensor,
    }
)
MOST_READS = 32  # of a value that is not stored though Inductor would
MOST_OPERATIONS = 256


def install() -> None:
    """Decide in our compiles what is stored and what is not; outside, nothing changes."""
    box: Any = ir.StorageBox
    if getattr(box.should_realize_on_reuse, "with_weights", False):
        return
    on_reuse, exceeded = box.should_realize_on_reuse, box.has_exceeded_max_reads

    def should_realize_on_reuse(self: Any, users: int, *args: Any, **kwargs: Any) -> bool:
        if _inlined(self.data):
            return False
        return on_reuse(self, users, *args, **kwargs) or _should_realize(self.data, users)

    def has_exceeded_max_reads(self: Any) -> bool:
        return exceeded(self) and not (_inlined(self.data) or _placed_once(self.data))

    should_realize_on_reuse.with_weights = True  # type: ignore[attr-defined]
    box.should_realize_on_reuse = should_realize_on_reuse
    box.has_exceeded_max_reads = has_exceeded_max_reads


def _inlined(data: Any) -> bool:
    """Whether it was lowered to be computed by its readers, on a GPU."""
    mine = scope.current()
    return mine is not None and any(data is each for each in mine.inlined) and not ir.is_cpu(data)


def _placed_once(data: Any) -> bool:
    """Whether a value on a GPU is only put somewhere, as one assigned to a slice is.

    Inductor stores it where it has read much: then the assignment is a pass over memory of its own.
    Cut at the ends of the slice, the two are one loop.
    """
    mine = scope.current()
    if mine is None or not mine.apply or mine.config.split == "off":
        return False
    if not isinstance(data, ir.Pointwise) or ir.is_cpu(data):
        return False
    node = V.graph.current_node
    users = list(node.users)
    if len(users) != 1 or users[0].target not in PLACED:
        return False
    few = data.num_reads() <= MOST_READS
    return few and data.inner_fn_opcount().num_ops <= MOST_OPERATIONS


def _should_realize(data: Any, users: int) -> bool:
    mine = scope.current()
    if mine is None or not mine.apply or mine.config.split == "off":
        return False
    if users < 2 or not isinstance(data, ir.Pointwise) or not ir.is_cpu(data):
        return False
    choice = choose_store(
        name=V.graph.current_node.name,
        operations=data.inner_fn_opcount().used_ops,
        elements=size_hint(sympy.Mul(*data.get_size())),
        itemsize=data.get_dtype().itemsize,
        readers=users,
    )
    if choice.split and choice.reason not in mine.notes:  # a graph may be lowered twice
        mine.notes.append(choice.reason)
    return choice.split
