"""Operators that read or write at places that a tensor of indices names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from .axes import (
    Bound,
    CannotCut,
    Cut,
    SameCall,
    arguments,
    named,
    rule,
    same,
    shape,
    value,
    wrapped,
)
from .reductions import taken

aten = torch.ops.aten


@rule(aten.embedding.default)
def embedding(node: Node, dim: int) -> Cut:
    """The dims of the indices, then one of the rows that they name."""
    given = arguments(node)
    weight, indices = given["weight"], given["indices"]
    if dim < len(shape(indices)):
        return SameCall(node, taken([(weight, None), (indices, dim)]))
    return SameCall(node, taken([(weight, 1), (indices, None)]))


@rule(aten.embedding_dense_backward.default)
def embedding_backward(node: Node, dim: int) -> Cut:
    """Any row may be written to by any index; within the rows it is the gradient's last dim."""
    if dim == 0:
        raise _scattered(node, dim)
    given = arguments(node)
    grad = given["grad_output"]
    return SameCall(node, taken([(grad, len(shape(grad)) - 1), (given["indices"], None)]))


@rule(aten.gather.default)
def gather(node: Node, dim: int) -> Cut:
    """The index is cut; the source too but along the dim that the index is of.

    The source may be longer than the index along a dim: what is beyond is not read.
    """
    given = arguments(node)
    source, index = given["self"], given["index"]
    gathered = dim == wrapped(given["dim"], len(shape(node)))
    return SameCall(node, taken([(source, None if gathered else dim), (index, dim)]))


@rule(aten.index_select.default)
def index_select(node: Node, dim: int) -> Cut:
    given = arguments(node)
    source, index = given["self"], given["index"]
    if dim != wrapped(given["dim"], len(shape(node))):
        return SameCall(node, taken([(source, dim), (index, None)]))
    scalar = not shape(index)  # one place: its only range is the whole
    return SameCall(node, taken([(source, None), (index, None if scalar else 0)]))


@rule(aten.bucketize.Tensor)
def bucketize(node: Node, dim: int) -> Cut:
    given = arguments(node)
    return SameCall(node, taken([(given["self"], dim), (given["boundaries"], None)]))


@rule(aten.take.default)
def take(node: Node, dim: int) -> Cut:
    given = arguments(node)
    return SameCall(node, taken([(given["self"], None), (given["index"], dim)]))


@dataclass(frozen=True)
class Indexed:
    """Where the dims of `source[indices]` come from, `source` and the indices being tensors.

    The indices are broadcast against each other; their dims replace those of the source that they
    index, in their place, or come first where the indexed dims are not side by side.
    """

    node: Node
    source: Node
    indices: tuple[Node, ...]
    free: tuple[int, ...]  # the dims of the source that are not indexed
    first: int  # where the dims of the indices begin
    shape: tuple[Bound, ...]  # of the indices, broadcast

    @staticmethod
    def of(node: Node) -> Indexed:
        given = arguments(node)
        source, places = given["self"], given["indices"]
        at = [k for k, each in enumerate(places) if each is not None]
        indices = tuple(places[k] for k in at)
        if any(value(each).dtype in (torch.bool, torch.uint8) for each in indices):
            raise CannotCut("data-dependent", f"{named(node)} selects by a mask")
        adjacent = at[-1] - at[0] + 1 == len(at)
        free = tuple(d for d in range(len(shape(source))) if d not in at)
        spread = tuple(torch.broadcast_shapes(*[shape(each) for each in indices]))
        return Indexed(node, source, indices, free, at[0] if adjacent else 0, spread)

    @property
    def ndim(self) -> int:
        """How many dims `source[indices]` has."""
        return len(self.free) + len(self.shape)

    def of_indices(self, dim: int) -> bool:
        return self.first <= dim < self.first + len(self.shape)

    def free_dim(self, dim: int) -> int:
        """The dim of the source that a dim of `source[indices]` is."""
        return self.free[dim if dim < self.first else dim - len(self.shape)]

    def result_dim(self, dim: int) -> int:
        """The dim of `source[indices]` that a dim of the source is which is not indexed."""
        place = self.free.index(dim)
        return place if place < self.first else place + len(self.shape)


def spread_dim(node: Node, dim: int, whole: tuple[Bound, ...]) -> int | None:
    """The dim of a tensor that is broadcast to a shape; None where all positions read it."""
    own = dim - len(whole) + len(shape(node))
    return own if own >= 0 and same(shape(node)[own], whole[dim]) else None


@rule(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(node: Node, dim: int) -> Cut:
    """Dims of the indices cut these, with the source whole; the other dims are the source's."""
    found = Indexed.of(node)
    if not found.of_indices(dim):
        whole = [(each, None) for each in found.indices]
        return SameCall(node, taken([(found.source, found.free_dim(dim)), *whole]))
    own = [(each, spread_dim(each, dim - found.first, found.shape)) for each in found.indices]
    return SameCall(node, taken([(found.source, None), *own]))


@rule(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(node: Node, dim: int) -> Cut:
    """The dims that are not indexed, of what is written to and of the values."""
    found, values = Indexed.of(node), arguments(node)["values"]
    if dim not in found.free:
        raise _scattered(node, dim)
    result = found.result_dim(dim)
    whole: list[Any] = [None] * found.ndim
    whole[result] = shape(node)[dim]
    pairs = [(found.source, dim), (values, spread_dim(values, result, tuple(whole)))]
    return SameCall(node, taken([*pairs, *[(each, None) for each in found.indices]]))


@rule(
    *[aten.scatter.src, aten.scatter.value, aten.scatter.reduce, aten.scatter.value_reduce],
    *[aten.scatter_add.default, aten.scatter_reduce.two],
)
def scatter(node: Node, dim: int) -> Cut:
    """The dims beside the scattered one, where the index (and source) are as long as the value."""
    given = arguments(node)
    inputs = [given[name] for name in ("self", "index", "src") if name in given]
    equal = all(same(shape(each)[dim], shape(node)[dim]) for each in inputs)
    if dim == wrapped(given["dim"], len(shape(node))) or not equal:
        raise _scattered(node, dim)
    return SameCall(node, taken([(each, dim) for each in inputs]))


@rule(
    *[aten.index_add.default, aten.index_copy.default, aten.index_reduce.default],
    *[aten.index_fill.int_Scalar, aten.index_fill.int_Tensor],
)
def index_add(node: Node, dim: int) -> Cut:
    """The dims beside the one that the index is of."""
    given = arguments(node)
    if dim == wrapped(given["dim"], len(shape(node))):
        raise _scattered(node, dim)
    pairs = [(given["self"], dim), (given["index"], None), (given.get("source"), dim)]
    filled = given.get("value")
    if isinstance(filled, Node):
        pairs.append((filled, None))
    return SameCall(node, taken(pairs))


@rule(
    *[aten.nonzero.default, aten.nonzero_static.default, aten.masked_select.default],
    *[aten._unique.default, aten._unique2.default, aten.unique_dim.default],
    *[aten.unique_consecutive.default, aten.repeat_interleave.Tensor, aten.bincount.default],
)
def data_dependent(node: Node, dim: int) -> Cut:
    """Which inputs a place is of depends on the values."""
    raise CannotCut("data-dependent", f"where a range of {named(node)} is depends on the values")


def _scattered(node: Node, dim: int) -> CannotCut:
    return CannotCut("scatter", f"{named(node)} may write anywhere along dim {dim}")
