"""Store a value that several operations read, where computing it for each of them takes longer.

Inductor computes what is not stored in every place that reads it. It stores values made by a few
operations that are slow on a CPU (exp, log, tanh); here the cost model's weights speak for all.
Readers of the same elements are fused with the value's loop either way; readers of shifted ones, as
in a stencil, would compute it once for every shift.
"""

from __future__ import annotations

from typing import Any

import sympy
from torch._inductor import ir
from torch._inductor.virtualized import V

from torch_piecewise.plan.reuse import choose_store

from . import scope
from .versions import size_hint


def install() -> None:
    """Where Inductor would not store a value, ask `_should_realize`: no, outside our compiles."""
    theirs = ir.StorageBox.should_realize_on_reuse
    if getattr(theirs, "with_weights", False):
        return

    def should_realize_on_reuse(self: Any, users: int, *args: Any, **kwargs: Any) -> bool:
        return theirs(self, users, *args, **kwargs) or _should_realize(self.data, users)

    should_realize_on_reuse.with_weights = True  # type: ignore[attr-defined]
    ir.StorageBox.should_realize_on_reuse = should_realize_on_reuse  # type: ignore[method-assign]


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
