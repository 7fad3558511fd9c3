"""Attention: batch, heads and rows of the query; keys and values are read whole by every row."""

from __future__ import annotations

from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch.fx import Node

from .axes import Bound, CannotCut, Cut, Need, Range, arguments, named, rule, same, shape, value
from .products import ByArgument, call, spread_dim

aten, prims = torch.ops.aten, torch.ops.prims

BATCH, HEADS, ROWS, COLUMNS = range(4)

# The argument with the mask, None where the operator has none.
_MASKS: dict[Any, str | None] = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: "attn_mask",
    aten._scaled_dot_product_efficient_attention.default: "attn_bias",
    aten._scaled_dot_product_flash_attention.default: None,
    aten._scaled_dot_product_cudnn_attention.default: "attn_bias",
    aten._scaled_dot_product_fused_attention_overrideable.default: "attn_bias",
    aten._scaled_dot_product_attention_math.default: "attn_mask",
}


@dataclass(frozen=True)
class CausalRows:
    """Rows of causal attention.

    The operators align the causal mask to the top left, so from the second range on it is written
    as a mask: row `start + i` sees the columns up to its own. Columns beyond the last row of the
    range are left out.
    """

    node: Node
    whole: ByArgument  # the cut without regard to the mask
    mask: str

    @property
    def inputs(self) -> tuple[tuple[Node, int | None], ...]:
        return self.whole.inputs

    def needs(self, range: Range) -> tuple[Need, ...]:
        return self.whole.needs(range)

    def emit(self, to: Any, range: Range) -> Node:
        if same(range.start, 0):
            return self.whole.emit(to, range)
        given = arguments(self.node)
        query = to.get(Need(given["query"], ROWS, range))
        key, values = to.get(Need(given["key"])), to.get(Need(given["value"]))
        columns = shape(given["key"])[ROWS]
        returns_weights = self.node.target is aten._scaled_dot_product_attention_math.default
        if same(shape(given["query"])[ROWS], columns) and not returns_weights:
            columns = range.stop
            key, values = (
                to.call(aten.slice.Tensor, each, ROWS, 0, columns) for each in (key, values)
            )
        mask = self._mask(to, query, range, columns)
        changed = {"query": query, "key": key, "value": values, self.mask: mask}
        return call(to, self.node, {**given, **changed, "is_causal": False})

    def _mask(self, to: Any, own: Node, range: Range, columns: Bound) -> Node:
        """0 where a row sees a column, -inf elsewhere, to be added.

        Its rows lie 16 columns aligned in memory, as kernels of attention on GPUs ask for.
        """
        query = value(own)
        kind = {"dtype": torch.int64, "device": query.device, "requires_grad": False}
        aligned = -(-columns // 16) * 16
        like = {"dtype": query.dtype, "device": query.device}
        rows = to.call(prims.iota.default, range.size, start=range.start, step=1, **kind)
        all_ = to.call(prims.iota.default, aligned, start=0, step=1, **kind)
        seen, hidden = (to.call(aten.full.default, [], x, **like) for x in (0.0, -torch.inf))
        below = to.call(aten.ge.Tensor, to.call(aten.unsqueeze.default, rows, 1), all_)
        mask: Node = to.call(aten.where.self, below, seen, hidden)
        if not same(aligned, columns):
            mask = to.call(aten.slice.Tensor, mask, 1, 0, columns)
        if self.mask == "attn_bias":
            of_all = [
                size if isinstance(size, int) else to.call(aten.sym_size.int, own, dim)
                for dim, size in enumerate(query.shape[:ROWS])
            ]
            mask = to.call(aten.expand.default, mask, [*of_all, range.size, columns])
        return mask


@rule(*_MASKS)
def attention(node: Node, dim: int) -> Cut:
    """Each row of the query is on its own; so are heads where each has its own keys."""
    given = arguments(node)
    _refuse(node, dim)
    dims = {"query": dim}
    if dim in (BATCH, HEADS):
        dims.update(key=dim, value=dim)
    name = _MASKS[node.target]
    masked = name is not None and given[name] is not None
    if name is not None and masked:
        own = spread_dim(given[name], node, dim)
        if own is not None:
            dims[name] = own
    cut = ByArgument(node, dims)
    if dim != ROWS or not given["is_causal"]:
        return cut
    if name is None or masked:
        raise CannotCut("kernel", f"{named(node)}: no mask can say where a range's rows begin")
    return CausalRows(node, cut, name)


# Gradients of attention: the arguments with batch and heads, beside query, key, value; the mask.
_BACKWARDS: dict[Any, tuple[str, str | None]] = {
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: ("grad_out", "attn_mask"),
    aten._scaled_dot_product_efficient_attention_backward.default: ("grad_out_", "attn_bias"),
    aten._scaled_dot_product_flash_attention_backward.default: ("grad_out", None),
    aten._scaled_dot_product_cudnn_attention_backward.default: ("grad_out", "attn_bias"),
    aten._scaled_dot_product_fused_attention_overrideable_backward.default: (
        "grad_out",
        "attn_bias",
    ),
}


@rule(*_BACKWARDS)
def attention_backward(node: Node, dim: int) -> Cut:
    """Batch and heads, each on its own; every row gives to the gradients of all keys and values."""
    given, (entering, mask) = arguments(node), _BACKWARDS[node.target]
    _refuse(node, dim)
    if dim not in (BATCH, HEADS):
        raise CannotCut("reduced", f"{named(node)} adds up what all rows give to keys and values")
    names = ["query", "key", "value", entering, "out", "logsumexp"]
    dims = dict.fromkeys(names, dim)
    if given.get("grad_input_mask", [False])[-1]:
        raise CannotCut("reduced", f"{named(node)} adds up what all give to the mask's gradient")
    if mask is not None and isinstance(given[mask], Node) and value(given[mask]).ndim:
        own = _dim_of_mask(given[mask], node, dim)
        if own is not None:
            dims[mask] = own
    return ByArgument(node, dims)


def _dim_of_mask(mask: Node, node: Node, dim: int) -> int | None:
    """The mask spreads over [batch, heads, rows, columns]; None where all positions read it."""
    own = dim - 4 + len(shape(mask))
    return own if own >= 0 and not same(shape(mask)[own], 1) else None


def _refuse(node: Node, dim: int) -> None:
    given = arguments(node)
    sizes = [shape(given[name]) for name in ("query", "key", "value")]
    if given["dropout_p"] != 0 or given.get("dropout_mask") is not None:
        raise CannotCut("random", f"{named(node)} drops weights at random, in one order for all")
    if any(len(each) != 4 for each in sizes):
        raise CannotCut("no-rule", f"{named(node)} isn't one of batch, heads, rows and columns")
    if dim == COLUMNS:
        raise CannotCut("reduced", f"{named(node)} would weigh all anew for each range of columns")
    if not all(same(each[BATCH], sizes[0][BATCH]) for each in sizes):
        raise CannotCut("shared", f"{named(node)} spreads keys over the batch")
    if dim == HEADS and not all(same(each[HEADS], sizes[0][HEADS]) for each in sizes):
        raise CannotCut("shared", f"{named(node)} has heads that share keys")
    if dim == ROWS and _logsumexp_is_padded(node) and _is_read(node, 1):
        raise CannotCut("kernel", f"{named(node)} rounds the rows of its logsumexp up to 32")


def _logsumexp_is_padded(node: Node) -> bool:
    return node.target is aten._scaled_dot_product_efficient_attention.default and bool(
        arguments(node)["compute_log_sumexp"]
    )


def _is_read(node: Node, place: int) -> bool:
    """Whether one of a node's values is read, or all are at once."""
    return any(user.target is not getitem or user.args[1] == place for user in node.users)
