"""Matrix products whose contracted dim is cut, and the gradients of weights: sums over ranges.

A weight's gradient is a product over the batch: of each range of it a part, and all of them added.
The parts of half precision are float32, as what a kernel adds up inside of it is.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from .axes import (
    Bound,
    Builder,
    CannotCut,
    Need,
    Partial,
    Range,
    arguments,
    named,
    partial_rule,
    same,
    shape,
    together,
    value,
)
from .normal import GRAD_WEIGHT
from .partials import SUM, WIDER, converted, stacked
from .products import call

aten = torch.ops.aten


@dataclass(frozen=True)
class Product:
    """A product without what is added: its operator, and its factors with their contracted dims."""

    target: Any
    left: str
    right: str
    dims: tuple[int, int]
    typed: Any = None  # the operator whose last argument is the type of the value, on GPUs
    added: str | None = None


_PRODUCTS: dict[Any, Product] = {
    aten.mm.default: Product(aten.mm.default, "self", "mat2", (1, 0), aten.mm.dtype),
    aten.mm.dtype: Product(aten.mm.default, "self", "mat2", (1, 0), aten.mm.dtype),
    aten._int_mm.default: Product(aten._int_mm.default, "self", "mat2", (1, 0)),
    aten.bmm.default: Product(aten.bmm.default, "self", "mat2", (2, 1), aten.bmm.dtype),
    aten.bmm.dtype: Product(aten.bmm.default, "self", "mat2", (2, 1), aten.bmm.dtype),
    aten.mv.default: Product(aten.mv.default, "self", "vec", (1, 0)),
    aten.dot.default: Product(aten.dot.default, "self", "tensor", (0, 0)),
    aten.addmm.default: Product(
        aten.mm.default, "mat1", "mat2", (1, 0), aten.mm.dtype, added="self"
    ),
    aten.addmm.dtype: Product(aten.mm.default, "mat1", "mat2", (1, 0), aten.mm.dtype, added="self"),
    aten.baddbmm.default: Product(
        aten.bmm.default, "batch1", "batch2", (2, 1), aten.bmm.dtype, added="self"
    ),
    aten.baddbmm.dtype: Product(
        aten.bmm.default, "batch1", "batch2", (2, 1), aten.bmm.dtype, added="self"
    ),
    aten.addmv.default: Product(aten.mv.default, "mat", "vec", (1, 0), added="self"),
}


@dataclass(frozen=True)
class Contracted:
    """The product of each range of both factors; their sum, and then what is added to it."""

    node: Node
    product: Product

    def _factors(self) -> list[tuple[Node, int]]:
        given = arguments(self.node)
        names = (self.product.left, self.product.right)
        return [(given[name], dim) for name, dim in zip(names, self.product.dims)]

    def _added(self) -> Node | None:
        """None also where it counts nothing, and may be no number."""
        name = self.product.added
        given = arguments(self.node)
        return None if name is None or given["beta"] == 0 else given[name]

    @property
    def inputs(self) -> tuple[tuple[Node, int | None], ...]:
        added = self._added()
        return (*self._factors(), *(() if added is None else ((added, None),)))

    def needs(self, range: Range) -> tuple[Need, ...]:
        return tuple(Need(node, dim, range) for node, dim in self._factors())

    def emit(self, to: Builder, range: Range) -> Node:
        left, right = (to.get(need) for need in self.needs(range))
        dtype, wide = value(left).dtype, self.wide
        if self.product.target is aten._int_mm.default or dtype == wide:
            return to.call(self.product.target, left, right)
        if self.product.typed is not None and value(left).device.type == "cuda":
            return to.call(self.product.typed, left, right, wide)
        factors = (converted(to, each, wide) for each in (left, right))
        return to.call(self.product.target, *factors)

    @property
    def wide(self) -> torch.dtype:
        dtype = value(self.node).dtype
        return WIDER.get(dtype, dtype)

    def combine(self, to: Builder, parts: list[Node], sizes: list[Bound]) -> Node:
        made, added = added_up(to, parts), self._added()
        given = arguments(self.node)
        if self.product.added is not None and given["alpha"] != 1:
            made = to.call(aten.mul.Tensor, made, given["alpha"])
        if added is not None:
            more = converted(to, to.get(Need(added)), self.wide)
            if given["beta"] != 1:
                more = to.call(aten.mul.Tensor, more, given["beta"])
            made = to.call(aten.add.Tensor, made, more)
        return converted(to, made, value(self.node).dtype)


def added_up(to: Builder, parts: list[Node]) -> Node:
    """The sum of the ranges' results, in their own type."""
    dtype = value(parts[0]).dtype
    return to.call(SUM.target, stacked(to, parts), *SUM.rest, dtype=dtype)


@partial_rule(*_PRODUCTS)
def contracted(node: Node, source: Node, dim: int) -> Partial:
    """Both factors are cut along the contracted dim, though but one of them may be so already."""
    product = _PRODUCTS[node.target]
    found = Contracted(node, product)
    if (source, dim) not in found.inputs:
        raise CannotCut("takes-all", f"{named(node)} takes all of dim {dim} of {source.name}")
    if product.target is aten._int_mm.default and value(node).device.type != "cpu":
        raise CannotCut("kernel", f"{named(node)} runs for some sizes only, as multiples of 8")
    return found


@dataclass(frozen=True)
class WeightGradient:
    """The gradient of a convolution's weight: the batch's ranges give parts of it."""

    node: Node

    @property
    def inputs(self) -> tuple[tuple[Node, int | None], ...]:
        given = arguments(self.node)
        return ((given["grad_output"], 0), (given["input"], 0), (given["weight"], None))

    def needs(self, range: Range) -> tuple[Need, ...]:
        return tuple(Need(n) if d is None else Need(n, d, range) for n, d in self.inputs)

    def emit(self, to: Builder, range: Range) -> Node:
        dtype = value(self.node).dtype
        wide = WIDER.get(dtype, dtype)
        names = ("grad_output", "input", "weight")
        parts = [converted(to, to.get(need), wide) for need in self.needs(range)]
        found = call(to, self.node, {**arguments(self.node), **dict(zip(names, parts))})
        return to.call(operator.getitem, found, GRAD_WEIGHT)

    def combine(self, to: Builder, parts: list[Node], sizes: list[Bound]) -> Node:
        made = converted(to, added_up(to, parts), value(self.node).dtype)
        return to.call(together, None, made, None)


@partial_rule(aten.convolution_backward.default)
def weight_gradient(node: Node, source: Node, dim: int) -> Partial:
    """Over the batch; `normal` has written each of the three gradients as a node of its own."""
    given = arguments(node)
    if list(given["output_mask"]) != [False, True, False]:
        raise CannotCut("values", f"{named(node)} makes several gradients, or none of use, in one")
    if (
        dim != 0
        or source is given["weight"]
        or not same(shape(given["input"])[0], shape(source)[0])
    ):
        raise CannotCut("takes-all", f"{named(node)} takes all of dim {dim} of {source.name}")
    return WeightGradient(node)
