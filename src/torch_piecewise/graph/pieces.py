"""The graph of one piece: some nodes of a graph, limited to a range of the dim they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_map

from .axes import Bound, Cut, Need, Range, named, shape, value

aten = torch.ops.aten


@dataclass(frozen=True)
class Input:
    """What a piece is handed: a value of the whole graph, or a range of it along a dim."""

    node: Node
    dim: int | None = None
    range: Range | None = None


@dataclass
class PieceGraph:
    """A piece while it is built, and its graph: see `build`."""

    cuts: Mapping[Node, tuple[Cut, int]]  # the nodes that the piece computes, with their dims
    demands: Mapping[Node, Range]  # which range it computes of each
    graph: Graph = field(default_factory=Graph)
    inputs: dict[Input, Node] = field(default_factory=dict)
    made: dict[Node, Node] = field(default_factory=dict)
    last_input: Node | None = None

    def get(self, need: Need) -> Node:
        """See `axes.Builder`."""
        node = need.node
        if node in self.made:
            if need.dim is None or need.range is None:
                return self.made[node]
            return self.narrowed(self.made[node], need.dim, self.demands[node], need.range)
        return self.input(Input(node, need.dim, need.range))

    def input(self, given: Input) -> Node:
        """The placeholder for a value from outside; placeholders come first in the graph."""
        if given.dim is not None and given.range is not None:
            whole = Range(0, shape(given.node)[given.dim])
            if _equal(given.range, whole):
                given = Input(given.node)
        if given not in self.inputs:
            with self.graph.inserting_after(self.last_input) if self.last_input else _start(
                self.graph
            ):
                made = self.graph.placeholder(f"in_{len(self.inputs)}")
            made.meta["val"] = _narrowed_value(given)
            self.inputs[given] = self.last_input = made
        return self.inputs[given]

    def narrowed(self, node: Node, dim: int, has: Range, wants: Range) -> Node:
        if _equal(has, wants):
            return node
        start = wants.start - has.start
        return self.call(aten.slice.Tensor, node, dim, start, start + wants.size)

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """See `axes.Builder`."""
        made = self.graph.call_function(target, args, kwargs)
        given, named_given = tree_map(_value, (args, kwargs), is_leaf=_is_node)
        made.meta["val"] = target(*given, **named_given)
        return made


def build(
    cuts: Mapping[Node, tuple[Cut, int]], outputs: Mapping[Node, Range | None]
) -> tuple[PieceGraph, dict[Node, Node]]:
    """The piece that computes ranges of `outputs`, and the node of it for each of them.

    `cuts` are in the order of the graph. What an output's range takes of other nodes, with the
    neighbours that a convolution reads beyond it, is worked out from the last node to the first.
    """
    demands: dict[Node, Range] = {n: r for n, r in outputs.items() if r is not None}
    for node in reversed(list(cuts)):
        if node not in demands:
            continue
        cut, _ = cuts[node]
        for need in cut.needs(demands[node]):
            if need.node in cuts and need.range is not None:
                demands[need.node] = _hull(demands.get(need.node), need.range)
    piece = PieceGraph(cuts, demands)
    for node, (cut, _) in cuts.items():
        if node in demands:
            piece.made[node] = cut.emit(piece, demands[node])
    found = {}
    for node, wanted in outputs.items():
        assert wanted is not None
        found[node] = piece.narrowed(piece.made[node], cuts[node][1], demands[node], wanted)
    return piece, found


def finished(piece: PieceGraph, results: Sequence[Node]) -> GraphModule:
    """The piece as a module that returns these nodes."""
    output = piece.graph.output(tuple(results))
    output.meta["val"] = tuple(r.meta["val"] for r in results)
    piece.graph.lint()
    return GraphModule(torch.nn.Module(), piece.graph)


def _start(graph: Graph) -> Any:
    first = next(iter(graph.nodes), None)
    return graph.inserting_before(first)


def _hull(a: Range | None, b: Range) -> Range:
    if a is None or _equal(a, b):
        return b
    return Range(min(a.start, b.start), max(a.stop, b.stop))


def _equal(a: Range, b: Range) -> bool:
    return bool(a.start == b.start) and bool(a.stop == b.stop)


def _is_node(arg: Any) -> bool:
    return isinstance(arg, Node)


def _value(arg: Any) -> Any:
    return arg.meta["val"] if isinstance(arg, Node) else arg


def _narrowed_value(given: Input) -> Any:
    whole = given.node.meta["val"]
    if given.dim is None or given.range is None:
        return whole
    tensor = value(given.node)
    return tensor.narrow(given.dim, given.range.start, given.range.size)


__all__ = ["Bound", "Input", "PieceGraph", "build", "finished", "named"]
