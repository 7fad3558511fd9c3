"""Reductions, scans, sorts and norms, cut along the dims that they do not reduce.

How a reduction is cut over the very dim that it reduces stands in `partials`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.fx import Node

from .axes import (
    CannotCut,
    Cut,
    Range,
    SameCall,
    arguments,
    named,
    rule,
    shape,
    tensor_inputs,
    wrapped,
)

aten, prims = torch.ops.aten, torch.ops.prims

# Of these an empty list of dims reduces nothing; of all others it reduces every dim.
NONE_WHEN_EMPTY = frozenset([aten.any.dims, aten.all.dims])

# Operators whose value keeps the dim that they work along, with the code of the refusal there.
ALONG: dict[Any, str] = {
    aten._softmax.default: "reduced",
    aten._log_softmax.default: "reduced",
    aten._safe_softmax.default: "reduced",
    aten._softmax_backward_data.default: "reduced",
    aten._log_softmax_backward_data.default: "reduced",
    aten.cumsum.default: "scan",
    aten.cumprod.default: "scan",
    aten.cummax.default: "scan",
    aten.cummin.default: "scan",
    aten.logcumsumexp.default: "scan",
    aten.sort.default: "sort",
    aten.sort.stable: "sort",
    aten.topk.default: "sort",
}

# Operators that normalize over the batch: whether they do as in training (None: an argument says),
# and whether running statistics that are new go to values of the node and not into the arguments.
BATCH_NORMS: dict[Any, tuple[bool | None, bool]] = {
    aten.native_batch_norm.default: (None, False),
    aten.cudnn_batch_norm.default: (None, False),
    aten.miopen_batch_norm.default: (None, False),
    aten._native_batch_norm_legit.no_stats: (None, True),
    aten._native_batch_norm_legit_functional.default: (None, True),
    aten._native_batch_norm_legit_no_training.default: (False, True),
    aten._batch_norm_no_update.default: (False, True),
    aten._batch_norm_with_update_functional.default: (True, True),
}


def reduced_dims(node: Node) -> tuple[int, ...]:
    """The dims of the first input that a reduction reduces, from the first to the last."""
    given = arguments(node)
    ndim = len(shape(node.args[0]))  # type: ignore[arg-type]
    dims = given.get("dim", given.get("dims"))
    if isinstance(dims, int):
        dims = [dims]
    if dims is None or (not dims and node.target not in NONE_WHEN_EMPTY):
        return tuple(range(ndim))
    return tuple(sorted(wrapped(d, ndim) for d in dims))


def taken(pairs: Iterable[tuple[Node | None, int | None]]) -> dict[Node, int | None]:
    """The dims of the inputs for `SameCall`; raises where one input is taken in two ways."""
    dims: dict[Node, int | None] = {}
    for each, dim in pairs:
        if each is not None and dims.setdefault(each, dim) != dim:
            raise CannotCut("repeated", f"{each.name} is read along two dims by one operator")
    return dims


@rule(
    *[aten.sum.default, aten.sum.dim_IntList, aten.nansum.default, prims.sum.default],
    *[aten.mean.default, aten.mean.dim, aten.prod.default, aten.prod.dim_int, prims.prod.default],
    *[aten.amax.default, aten.amin.default, prims.amax.default, prims.amin.default],
    *[aten.max.default, aten.max.dim, aten.min.default, aten.min.dim, aten.aminmax.default],
    *[aten.any.default, aten.any.dim, aten.any.dims, aten.all.default, aten.all.dim, aten.all.dims],
    *[aten.var.correction, aten.var_mean.correction, prims.var.default],
    *[aten.std.correction, aten.std_mean.correction, aten.logsumexp.default],
    *[aten.argmax.default, aten.argmin.default, aten.linalg_vector_norm.default],
    *[aten.norm.Scalar, aten.norm.ScalarOpt_dim, aten.norm.ScalarOpt_dim_dtype],
    *[aten.count_nonzero.default, aten.count_nonzero.dim_IntList],
    *[aten.kthvalue.default, aten.median.default, aten.median.dim, aten.mode.default],
    *[aten.nanmedian.default, aten.nanmedian.dim],
)
def reduction(node: Node, dim: int) -> Cut:
    """A dim that stays is the input's; one that is kept with size 1 is a reduced one."""
    source = node.args[0]
    assert isinstance(source, Node)
    over, ndim = reduced_dims(node), len(shape(source))
    keeps = arguments(node).get("keepdim", False)
    own = dim if keeps else [d for d in range(ndim) if d not in over][dim]
    if own in over:
        raise CannotCut("reduced", f"{named(node)} reduces dim {own}")
    return SameCall(node, {source: own})


@rule(*ALONG)
def along(node: Node, dim: int) -> Cut:
    """Every dim is the inputs' but the one that the operator works along."""
    worked = wrapped(arguments(node)["dim"], len(shape(node)))
    if dim == worked:
        raise CannotCut(ALONG[node.target], f"every place of dim {dim} is of all: {named(node)}")
    return SameCall(node, dict.fromkeys(tensor_inputs(node), dim))


@rule(aten._fft_r2c.default, aten._fft_c2c.default, aten._fft_c2r.default)
def transform(node: Node, dim: int) -> Cut:
    """Every dim but those that are transformed."""
    given, ndim = arguments(node), len(shape(node))
    if dim in [wrapped(d, ndim) for d in given["dim"]]:
        raise CannotCut("reduced", f"{named(node)} transforms dim {dim}")
    return SameCall(node, {given["self"]: dim})


@rule(aten.native_layer_norm.default, aten._fused_rms_norm.default)
def layer_norm(node: Node, dim: int) -> Cut:
    """The leading dims; the last ones, of the normalized shape, are reduced."""
    given = arguments(node)
    if dim >= len(shape(node)) - len(given["normalized_shape"]):
        raise CannotCut("reduced", f"{named(node)} normalizes over dim {dim}")
    return SameCall(node, taken([(given["input"], dim), *_whole(given, "weight", "bias")]))


@rule(aten.native_group_norm.default)
def group_norm(node: Node, dim: int) -> Cut:
    """The batch alone: channels are reduced in groups, and the rest wholly."""
    if dim > 0:
        raise CannotCut("reduced", f"{named(node)} normalizes over dim {dim}")
    given = arguments(node)

    def batch(range: Range) -> Mapping[int | str, Any]:
        return {3 if len(node.args) > 3 else "N": range.size}

    return SameCall(node, taken([(given["input"], 0), *_whole(given, "weight", "bias")]), batch)


@rule(*BATCH_NORMS)
def batch_norm(node: Node, dim: int) -> Cut:
    """Any dim where the statistics are given; where they are computed, the channels (dim 1).

    The further values have only the channels' dim: along it they are cut as dim 0, along other
    dims each range computes all of them.
    """
    given = arguments(node)
    training, functional = BATCH_NORMS[node.target]
    if training is None:
        training = given["training"]
    names = ("weight", "bias", "running_mean", "running_var")
    if training and not functional and isinstance(given["running_mean"], Node):
        raise CannotCut("mutation", f"{named(node)} writes to the running statistics")
    if dim != 1 and (training or given.get("running_mean") is None):
        raise CannotCut("statistics", f"{named(node)} computes its statistics over dim {dim}")
    per_channel = 0 if dim == 1 else None
    others = [(each, per_channel) for each, _ in _whole(given, *names)]
    return SameCall(node, taken([(given["input"], dim), *others]))


def _whole(given: Mapping[str, Any], *names: str) -> list[tuple[Node | None, int | None]]:
    """The arguments of these names that the node has, each to be taken as a whole."""
    return [(given[name], None) for name in names if given.get(name) is not None]
