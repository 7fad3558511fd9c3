"""The lowering of a concatenation, for compiles of ours: see `plan.concat` for the decision.

It runs before fusion, so that the readers are judged from the graph: through views, by what kind of
operation they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import sympy
import torch
from torch._inductor import config as inductor_config
from torch._inductor import ir
from torch._inductor.virtualized import V, ops

from torch_piecewise.plan.concat import Concat, choose_concat
from torch_piecewise.plan.cost import BYTE, WEIGHTS
from torch_piecewise.plan.instructions import WEIGHTS as GPU_WEIGHTS
from torch_piecewise.plan.memory import H200
from torch_piecewise.plan.reuse import functions_take

from . import scope
from .versions import lower_first, size_hint

aten = torch.ops.aten
VIEWS = frozenset(
    {
        aten.view.default,
        aten.reshape.default,
        aten.permute.default,
        aten.transpose.int,
        aten.unsqueeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.expand.default,
        aten.slice.Tensor,
        aten.select.int,
    }
)
VARIANCES = (aten.var.correction, aten.var_mean.correction)
REDUCTIONS = frozenset(
    {
        aten.sum.dim_IntList,
        aten.mean.dim,
        aten.amax.default,
        aten.amin.default,
        aten.prod.dim_int,
        aten.any.dim,
        aten.max.dim,
        aten.min.dim,
        aten.argmax.default,
        aten.argmin.default,
        aten.sum.default,
        aten.mean.default,
        aten.max.default,
        aten.min.default,
        aten.prod.default,
        aten.any.default,
        *VARIANCES,
    }
)

COPIES = frozenset({aten.clone.default, aten.copy.default})


def lower(inputs: Sequence[Any], dim: int = 0) -> Any:
    """A lowering of `aten.cat`; None leaves it to Inductor."""
    mine = scope.current()
    if mine is None or not mine.apply or mine.config.split == "off" or not _simple(inputs):
        return None
    if inductor_config.force_pointwise_cat:
        return None  # Inductor does it for every concatenation
    dim = dim % len(inputs[0].get_size())
    node = V.graph.current_node
    concat = Concat(
        name=node.name,
        elements=float(sum(size_hint(math.prod(x.get_size())) for x in inputs)),
        itemsize=inputs[0].get_dtype().itemsize,
        inputs=len(inputs),
        work=max(_work(x) for x in inputs),
        readers=tuple(_readers(node)),
        byte=1 / H200.bytes if inputs[0].get_device().type != "cpu" else BYTE,
    )
    choice = choose_concat(concat)
    if choice.reason not in mine.notes:  # a graph may be lowered twice
        mine.notes.append(choice.reason)
    if not choice.split:
        return None
    result = _computed(inputs, dim)
    mine.inlined.append(result.data.data)
    return result


def _computed(inputs: Sequence[Any], dim: int) -> Any:
    """The concatenation as a formula of its index: each input's under the mask of its range.

    Inductor's own (`pointwise_cat`) wraps the index of each input, so that it is not expanded: a
    loop that stays whole would then load its neighbours one by one.
    """
    ends = list(accumulate(x.get_size()[dim] for x in inputs))
    loaders = [x.make_loader() for x in inputs]

    def element(index: Sequence[sympy.Expr]) -> Any:
        place = ops.index_expr(index[dim], torch.int64)
        value: Any = None
        for k in reversed(range(len(inputs))):
            start = ends[k - 1] if k else sympy.S.Zero
            before = ops.lt(place, ops.index_expr(ends[k], torch.int64))
            after = ops.ge(place, ops.index_expr(start, torch.int64))
            inside = before if k == 0 else after if value is None else ops.and_(after, before)
            own = [*index[:dim], index[dim] - start, *index[dim + 1 :]]
            loaded = ops.masked(inside, partial(loaders[k], own), 0.0)
            value = loaded if value is None else ops.where(inside, loaded, value)
        return value

    size = list(inputs[0].get_size())
    size[dim] = ends[-1]
    return ir.Pointwise.create(
        device=inputs[0].get_device(),
        dtype=inputs[0].get_dtype(),
        inner_fn=element,
        ranges=size,
    )


def _simple(inputs: Sequence[Any]) -> bool:
    """Whether nothing needs converting or leaving out first, and loops that we cut do the work."""
    first = inputs[0]
    return (
        len(inputs) > 1
        and all(isinstance(x, ir.TensorBox) for x in inputs)
        and all(x.get_device() == first.get_device() for x in inputs)
        and first.get_device().type in ("cpu", "cuda")
        and all(x.get_dtype() == first.get_dtype() for x in inputs)
        and all(len(x.get_size()) == len(first.get_size()) > 0 for x in inputs)
        and first.get_dtype() not in (torch.int8, torch.uint8)  # Inductor calls ATen for these
        and not first.get_dtype().is_complex
    )


def _readers(node: torch.fx.Node, viewed: bool = False) -> Iterator[str]:
    """What reads a node, looking through views."""
    for user in node.users:
        if user.target in VIEWS:
            yield from _readers(user, True)
        elif user.target in VARIANCES and viewed:
            # Inductor takes mean and variance from one pass where both read the same load; under
            # masks, which no cut removes where the view spreads the joins over two axes, from two
            yield f"{user.target} of a view"
        elif user.target in REDUCTIONS:
            yield _kind(user)
        elif user.target in COPIES or torch.Tag.pointwise in getattr(user.target, "tags", ()):
            yield "pointwise"
        else:
            yield "the caller" if user.op == "output" else str(user.target)


def _kind(user: torch.fx.Node) -> str:
    """How a reduction reads a concatenation. On a GPU a launch cuts no reduction yet."""
    operand: Any = user.args[0]
    before, after = operand.meta["val"], user.meta["val"]
    if before.device.type == "cpu":
        return "reduction"
    after = after[0] if isinstance(after, (tuple, list)) else after
    few = inductor_config.unroll_reductions_threshold
    unrolled = before.numel() < few * after.numel() and after.numel() > 1
    return "unrolled" if unrolled else f"{user.target}, a reduction,"


def _work(x: Any) -> float:
    """Nanoseconds for one element of an input that is not in memory yet."""
    data = x.data
    while isinstance(data, (ir.BaseView, ir.StorageBox)):
        data = data.data
    if not isinstance(data, ir.Pointwise):
        return 0.0
    found = data.inner_fn_opcount()
    if not ir.is_cpu(data):
        slots = found.num_ops + sum(GPU_WEIGHTS.get(name, 0.0) for name in found.used_ops)
        return slots / H200.slots
    return found.num_ops * WEIGHTS["arithmetic"] + functions_take(found.used_ops)


def install() -> None:
    """Put the lowering before Inductor's; outside compiles of ours it answers None."""
    lower_first(aten.cat.default, lower)
