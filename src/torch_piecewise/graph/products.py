"""Matrix products: rows, columns and batch; the dim that is summed over is never the value's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from .axes import CannotCut, Cut, Need, Range, arguments, is_tensor, named, rule, same, shape, value

aten = torch.ops.aten


@dataclass(frozen=True)
class ByArgument:
    """The same operator, its inputs cut by the name of the argument.

    One node may stand in two arguments, as in mm(x, x), and be cut in one of them only. `dims`
    gives the dim of every argument that is cut; all others are taken whole. `changed` gives the
    arguments that hold the size of the range.
    """

    node: Node
    dims: Mapping[str, int]
    changed: Callable[[Range], Mapping[str, Any]] = field(default=lambda range: {})

    @property
    def inputs(self) -> tuple[tuple[Node, int | None], ...]:
        return tuple((arg, self.dims.get(name)) for name, arg in self._tensors())

    def needs(self, range: Range) -> tuple[Need, ...]:
        return tuple(self._need(name, arg, range) for name, arg in self._tensors())

    def emit(self, to: Any, range: Range) -> Node:
        given = {
            name: to.get(self._need(name, arg, range)) if isinstance(arg, Node) else _own(to, arg)
            for name, arg in arguments(self.node).items()
        }
        return call(to, self.node, {**given, **self.changed(range)})

    def _tensors(self) -> list[tuple[str, Node]]:
        found = arguments(self.node).items()
        return [(name, arg) for name, arg in found if isinstance(arg, Node) and is_tensor(arg)]

    def _need(self, name: str, arg: Node, range: Range) -> Need:
        return Need(arg, self.dims[name], range) if name in self.dims else Need(arg)


def call(to: Any, node: Node, given: Mapping[str, Any]) -> Node:
    """Call a node's operator in the piece; what is equal to its default is left out at the end."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    by_place = [a for a in schema if not a.kwarg_only]
    while by_place and _is_default(by_place[-1], given):
        by_place.pop()
    by_name = [a for a in schema if a.kwarg_only and not _is_default(a, given)]
    kwargs = {a.name: given[a.name] for a in by_name}
    made: Node = to.call(node.target, *(given[a.name] for a in by_place), **kwargs)
    return made


def _is_default(argument: Any, given: Mapping[str, Any]) -> bool:
    one = given[argument.name]
    return bool(
        argument.has_default_value()
        and type(one) is type(argument.default_value)
        and one == argument.default_value
    )


def _own(to: Any, arg: Any) -> Any:
    """Sizes inside a list of numbers, as nodes of the piece."""
    return torch.fx.map_arg(arg, lambda node: to.get(Need(node)))


# For every dim of the value: the arguments that are cut, and along which of their dims.
_ROWS_COLUMNS = ({"self": 0}, {"mat2": 1})
_BATCHED = ({"self": 0, "mat2": 0}, {"self": 1}, {"mat2": 2})
_PRODUCTS: dict[Any, tuple[dict[str, int], ...]] = {
    aten.mm.default: _ROWS_COLUMNS,
    aten.mm.dtype: _ROWS_COLUMNS,
    aten._int_mm.default: _ROWS_COLUMNS,
    aten.bmm.default: _BATCHED,
    aten.bmm.dtype: _BATCHED,
    aten.mv.default: ({"self": 0},),
}
# These add `self`, which spreads over the product.
_ADDED_ROWS_COLUMNS = ({"mat1": 0}, {"mat2": 1})
_ADDED_BATCHED = ({"batch1": 0, "batch2": 0}, {"batch1": 1}, {"batch2": 2})
_ADDED: dict[Any, tuple[dict[str, int], ...]] = {
    aten.addmm.default: _ADDED_ROWS_COLUMNS,
    aten.addmm.dtype: _ADDED_ROWS_COLUMNS,
    aten.baddbmm.default: _ADDED_BATCHED,
    aten.baddbmm.dtype: _ADDED_BATCHED,
    aten.addbmm.default: ({"batch1": 1}, {"batch2": 2}),
    aten.addmv.default: ({"mat": 0},),
    aten.addr.default: ({"vec1": 0}, {"vec2": 0}),
}


@rule(*_PRODUCTS)
def product(node: Node, dim: int) -> Cut:
    """A row of the value needs that row of the left matrix, a column that of the right one."""
    if node.target is aten._int_mm.default and value(node).device.type != "cpu":
        raise CannotCut("kernel", f"{named(node)} runs for some sizes only, as 17 rows up")
    return ByArgument(node, _PRODUCTS[node.target][dim])


@rule(*_ADDED)
def added_product(node: Node, dim: int) -> Cut:
    """As the product; what is added is cut along the same dim, counted from the last."""
    dims = dict(_ADDED[node.target][dim])
    own = spread_dim(arguments(node)["self"], node, dim)
    if own is not None:
        dims["self"] = own
    return ByArgument(node, dims)


def spread_dim(added: Node, node: Node, dim: int) -> int | None:
    """The dim of an input that spreads over a node's value, None where it has one position."""
    own = dim - len(shape(node)) + len(shape(added))
    return own if own >= 0 and same(shape(added)[own], shape(node)[dim]) else None
