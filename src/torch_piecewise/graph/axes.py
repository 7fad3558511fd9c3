"""How the value of one graph node is cut along a dim: what a range of it takes of the inputs.

A rule answers for one ATen operator and one dim of its value with a `Cut`, or raises CannotCut:

    @rule(aten.mm.default)
    def mm(node: Node, dim: int) -> Cut:
        left, right = node.args
        return SameCall(node, {left: 0, right: None} if dim == 0 else {left: None, right: 1})

The rules stand in the modules beside this one. Pointwise operators are found by their tag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.fx import Node

Bound = Any  # int or torch.SymInt


@dataclass(frozen=True, eq=False)
class Range:
    """The positions `[start, stop)` of a dim. Equal where the bounds are the same expressions."""

    start: Bound
    stop: Bound

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Range) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def size(self) -> Bound:
        return self.stop - self.start

    def moved(self, by: Bound) -> Range:
        return Range(self.start + by, self.stop + by)

    def __str__(self) -> str:
        return f"[{self.start}, {self.stop})"


@dataclass(frozen=True)
class Need:
    """What a range of a value takes of one input: a range of its `dim`, or all of it (None)."""

    node: Node
    dim: int | None = None
    range: Range | None = None


# Why a node can't be cut along a dim.
CODES: Mapping[str, str] = {
    "random": "it draws random numbers, in one order for all",
    "mutation": "it writes to an argument",
    "scan": "it goes on from position to position",
    "sort": "it puts the positions in another order",
    "scatter": "it may write anywhere, and several times to one place",
    "data-dependent": "sizes or places depend on the values",
    "statistics": "it normalises by what it computes over the dim",
    "reduced": "it works over the dim, whole",
    "parts": "what it gives for ranges does not make up what it gives for all",
    "windows": "what it reads for a position depends on the size of the whole",
    "view": "the dim is no dim of the input, nor an even share of one",
    "unaligned": "a bound lies inside of what can't be divided",
    "address": "it reads memory by address",
    "places": "its values depend on several dims, or on a fraction, by their place",
    "repeated": "it reads one input along two dims",
    "shared": "an input's positions serve several of the value's, in groups",
    "kernel": "the kernel behind it can't be told of a range",
    "values": "it has several values, not all with that dim",
    "empty": "there are no positions",
    "alias": "its value is a view, of memory that others have too",
    "takes-all": "it takes all of what is cut",
    "no-dim": "there is no output with that dim",
    "input": "it is an input of the graph",
    "no-rule": "there is no rule for it",
    "no-loop": "no loop of Inductor's computes it (ranges inside the kernels)",
    "ranges-left": "the loop nest that computes it is left whole (likewise)",
}


class CannotCut(Exception):
    """A node can't be cut along a dim: a stable `code`, one of `CODES`, and the reason in words.

    `node` is the one in the way, where it is not the one that was asked for.
    """

    def __init__(self, code: str, text: str, node: Node | None = None):
        super().__init__(text)
        assert code in CODES, code
        self.node = node
        self.code = code


class Builder(Protocol):
    """The graph of a piece while it is built."""

    def get(self, need: Need) -> Node:
        """The node of the piece with that part of an input."""
        ...

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """A new call in the piece, its value traced; nodes among the arguments are the piece's."""
        ...


class Cut(Protocol):
    """One node, cut along one dim of its value (of each of its values, where it has several)."""

    @property
    def inputs(self) -> tuple[tuple[Node, int | None], ...]:
        """Every tensor input with the dim of it that a range is taken of, None for all of it."""
        ...

    def needs(self, range: Range) -> tuple[Need, ...]:
        """What a range of the value takes of the inputs; empty ranges may be left out."""
        ...

    def emit(self, to: Builder, range: Range) -> Node:
        """Write what computes a range of the value; it asks `to` for what `needs` named."""
        ...


@dataclass(frozen=True)
class SameCall:
    """The same operator on the same range of the inputs.

    `dims` gives for each tensor input the dim of it that is the value's. `changed` gives the
    arguments that hold the size of the range, by number or name, for a range.
    """

    node: Node
    dims: Mapping[Node, int | None]
    changed: Callable[[Range], Mapping[int | str, Any]] = field(default=lambda range: {})

    @property
    def inputs(self) -> tuple[tuple[Node, int | None], ...]:
        return tuple(self.dims.items())

    def needs(self, range: Range) -> tuple[Need, ...]:
        return tuple(
            Need(node) if dim is None else Need(node, dim, range) for node, dim in self.dims.items()
        )

    def emit(self, to: Builder, range: Range) -> Node:
        needs = {need.node: need for need in self.needs(range)}

        def own(node: Node) -> Node:
            return to.get(needs[node] if node in needs else Need(node))

        args = list(torch.fx.map_arg(self.node.args, own))
        kwargs = dict(torch.fx.map_arg(self.node.kwargs, own))
        for place, value in self.changed(range).items():
            if isinstance(place, int):
                args[place] = value
            else:
                kwargs[place] = value
        return to.call(self.node.target, *args, **kwargs)


class Partial(Protocol):
    """A reduction over the dim that is cut: one result a range, and how these are combined."""

    @property
    def inputs(self) -> tuple[tuple[Node, int | None], ...]: ...

    def needs(self, range: Range) -> tuple[Need, ...]: ...

    def emit(self, to: Builder, range: Range) -> Node:
        """Write what computes the result of one range: a tensor, or a tuple of them."""
        ...

    def combine(self, to: Builder, parts: list[Node], sizes: list[Bound]) -> Node:
        """Write what makes the node's value of the results of all ranges, of the given sizes."""
        ...


Rule = Callable[[Node, int], Cut]
PartialRule = Callable[[Node, Node, int], Partial]  # the node, its input that is cut, the dim
RULES: dict[Any, Rule] = {}
PARTIAL_RULES: dict[Any, PartialRule] = {}


def rule(*targets: Any) -> Callable[[Rule], Rule]:
    """Register a rule for operators: overloads, or names of those that come with Inductor."""

    def register(found: Rule) -> Rule:
        for target in targets:
            assert target not in RULES, f"{target} has two rules"
            RULES[target] = found
        return found

    return register


def partial_rule(*targets: Any) -> Callable[[PartialRule], PartialRule]:
    """Register how operators reduce over the dim that is cut."""

    def register(found: PartialRule) -> PartialRule:
        for target in targets:
            assert target not in PARTIAL_RULES, f"{target} has two rules"
            PARTIAL_RULES[target] = found
        return found

    return register


def find_rule(node: Node) -> Rule | None:
    """The rule for a node's operator, None where there is none."""
    found = RULES.get(node.target) or RULES.get(str(node.target))
    if found is None and torch.Tag.pointwise in getattr(node.target, "tags", ()):
        from .pointwise import pointwise

        return pointwise
    return found


def cut_along(node: Node, dim: int) -> Cut:
    """How a node is cut along a dim of its value (0 or more); raises CannotCut."""
    refuse_effects(node)
    found = find_rule(node)
    if found is None:
        raise CannotCut("no-rule", f"there is no rule for {named(node)}")
    return found(node, dim)


def refuse_effects(node: Node) -> None:
    """Raise for what draws random numbers, unless its rule knows, or writes to an argument."""
    tags = getattr(node.target, "tags", ())
    if torch.Tag.nondeterministic_seeded in tags and node.target not in RULES:
        raise CannotCut("random", f"{named(node)} draws random numbers, in one order for all")
    if is_mutating(node):
        raise CannotCut("mutation", f"{named(node)} writes to its argument")


def is_mutating(node: Node) -> bool:
    """Whether a call writes to one of its arguments."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def named(node: Node) -> str:
    """A node's operator and name, for messages: "aten.cumsum.default (cumsum_1)"."""
    target = getattr(node.target, "__name__", None) or str(node.target)
    return f"{node.target if hasattr(node.target, 'overloadpacket') else target} ({node.name})"


def value(node: Node) -> Tensor:
    """A node's traced value; of one with several values the first tensor."""
    found = node.meta["val"]
    if isinstance(found, (tuple, list)):
        found = next(v for v in found if isinstance(v, Tensor))
    assert isinstance(found, Tensor), node
    return found


def shape(node: Node) -> tuple[Bound, ...]:
    return tuple(value(node).shape)


def is_tensor(node: Node) -> bool:
    """Whether a node's value is a tensor, or has one."""
    found = node.meta.get("val")
    if isinstance(found, (tuple, list)):
        return any(isinstance(v, Tensor) for v in found)
    return isinstance(found, Tensor)


def tensor_inputs(node: Node) -> Iterator[Node]:
    """The inputs of a node that are tensors, each once."""
    return (each for each in node.all_input_nodes if is_tensor(each))


def same(a: Bound, b: Bound) -> bool:
    """Whether two sizes are known to be equal, without a new guard where they are symbolic."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return bool(statically_known_true(a == b))


def together(*values: Any) -> tuple[Any, ...]:
    """A node with several values, of several nodes: no operator does just that."""
    return values


# Inductor, where it meets the node in a graph, calls this with what it has for the values
together._inductor_lowering_function = True  # type: ignore[attr-defined]


def arguments(node: Node) -> dict[str, Any]:
    """The arguments of a call of an operator by name, with the defaults of those left out."""
    found: dict[str, Any] = {}
    for k, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if k < len(node.args):
            found[argument.name] = node.args[k]
        elif argument.name in node.kwargs:
            found[argument.name] = node.kwargs[argument.name]
        else:
            found[argument.name] = argument.default_value
    return found


def wrapped(dim: int, ndim: int) -> int:
    """A dim counted from the front."""
    return dim + ndim if dim < 0 else dim
