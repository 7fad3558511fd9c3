"""Operators that compute every element from those at the same place of the inputs."""

from __future__ import annotations

import torch
from torch.fx import Node

from .axes import Cut, SameCall, rule, same, shape, tensor_inputs

aten, prims = torch.ops.aten, torch.ops.prims


# pointwise too, though without the tag
@rule(aten._to_copy.default, prims.convert_element_type.default, aten.clone.default)
@rule(aten.complex.default, aten.polar.default)
@rule(aten.copy.default)  # of the first input but the form
def pointwise(node: Node, dim: int) -> Cut:
    """An input is cut along the dim that it has in common, counted from the last."""
    ndim, size = len(shape(node)), shape(node)[dim]
    dims: dict[Node, int | None] = {}
    for each in tensor_inputs(node):
        own = dim - ndim + len(shape(each))
        spread = own < 0 or not same(shape(each)[own], size)  # read by every position
        dims[each] = None if spread else own
    return SameCall(node, dims)
