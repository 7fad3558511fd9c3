"""The graph of one piece: some nodes of a graph, limited to a range of the dim they share."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, GraphModule, Node, Proxy
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from .axes import Cut, Need, Partial, Range, shape, value

aten = torch.ops.aten


@dataclass(frozen=True)
class Input:
    """What a piece is handed: a value of the whole graph, or a range of it along a dim."""

    node: Node
    dim: int | None = None
    range: Range | None = None


@dataclass(frozen=True)
class PartOf:
    """What range `number` gives for a reduction over the dim that is cut; of several, one value."""

    node: Node
    number: int
    value: int = 0


@dataclass(frozen=True)
class Into:
    """The slice of a buffer with all of a value, into which a range of it is written."""

    node: Node
    dim: int
    range: Range


@dataclass(frozen=True)
class Size:
    """The number that a symbol in the shapes of the graph's inputs stands for."""

    symbol: str


Handed = Input | PartOf | Into | Size


KEPT = ("stack_trace", "from_node")  # of a node's meta: where in the user's code it is from


@dataclass
class PieceGraph:
    """A graph while it is built: some nodes of another, limited to ranges: see `build`.

    `cuts` are the nodes that it computes, with their dims, `demands` which range of each.
    `inputs` says what its placeholders are, in their order.
    """

    cuts: Mapping[Node, tuple[Cut, int]] = field(default_factory=dict)
    demands: Mapping[Node, Range] = field(default_factory=dict)
    graph: Graph = field(default_factory=Graph)
    symbols: Mapping[Any, torch.SymInt] = field(default_factory=dict)  # sizes of inputs
    inputs: dict[Handed, Node] = field(default_factory=dict)
    made: dict[Node, Node] = field(default_factory=dict)
    root: torch.nn.Module = field(default_factory=torch.nn.Module)  # has the graphs of branches
    origin: Node | None = None  # whose range is written now

    def emit(self, node: Node, cut: Cut | Partial, over: Range) -> Node:
        """The range of a node, or the part of it from a range; its calls have the user's line."""
        self.origin = node
        return cut.emit(self, over)

    def get(self, need: Need) -> Node:
        """See `axes.Builder`."""
        node = need.node
        if node not in self.made:
            return self.outer(node, need.dim, need.range)
        if need.dim is None or need.range is None:
            assert node not in self.demands or node not in self.cuts, f"{node} is made in ranges"
            return self.made[node]
        if node not in self.demands:  # made whole
            whole = Range(0, shape(node)[need.dim])
            return self.narrowed(self.made[node], need.dim, whole, need.range)
        assert need.dim == self.cuts[node][1], f"{node} is cut along another dim"
        return self.narrowed(self.made[node], need.dim, self.demands[node], need.range)

    def outer(self, node: Node, dim: int | None = None, range: Range | None = None) -> Node:
        """A value from outside, or a range of it."""
        if dim is None or range is None or _equal(range, Range(0, shape(node)[dim])):
            return self.input(Input(node), node.meta["val"])
        part = value(node).narrow(dim, range.start, range.size)
        return self.input(Input(node, dim, range), part)

    def input(self, given: Handed, val: Any) -> Node:
        """The placeholder for something that the piece is handed; they come first in the graph."""
        if given not in self.inputs:
            last = next(reversed(self.inputs.values()), None)
            place = _start(self.graph) if last is None else self.graph.inserting_after(last)
            with place:
                made = self.graph.placeholder(f"in_{len(self.inputs)}")
            made.meta["val"] = val
            self.inputs[given] = made
        return self.inputs[given]

    def size(self, symbol: Any) -> Node:
        """The placeholder for a size that is not known."""
        return self.input(Size(str(symbol)), self.symbols[symbol])

    def narrowed(self, node: Node, dim: int, has: Range, wants: Range) -> Node:
        if _equal(has, wants):
            return node
        assert isinstance(node.meta["val"], Tensor), f"{node} has several values"
        start = wants.start - has.start
        return self.call(aten.slice.Tensor, node, dim, start, start + wants.size)

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """See `axes.Builder`."""
        own_args, own_kwargs = tree_map(self.own_size, (args, kwargs), is_leaf=_is_node)
        made = self.graph.call_function(target, own_args, own_kwargs)
        given, named_given = tree_map(_value, (args, kwargs), is_leaf=_is_node)
        with self.tracing():
            made.meta["val"] = target(*given, **named_given)
        if self.origin is not None:
            known = self.origin.meta
            made.meta.update({key: known[key] for key in KEPT if key in known})
        return made

    def own_size(self, arg: Any) -> Any:
        """A size that is not known as a node: computed of the sizes that the piece is handed."""
        if not isinstance(arg, torch.SymInt):
            return arg
        expr = arg.node.expr
        known = {s: Proxy(self.size(s)) for s in expr.free_symbols}
        found = sympy_interp(PythonReferenceAnalysis, known, expr)
        if isinstance(found, Proxy):
            found.node.meta.setdefault("val", arg)
            return found.node
        return found

    def tracing(self) -> Any:
        """The mode in which the values were traced: a call without tensors needs to be told."""
        known = (n.meta.get("val") for n in chain(self.cuts, self.graph.nodes))
        fake = (t for val in known for t in tree_leaves(val) if isinstance(t, FakeTensor))
        found = next(fake, None)
        return nullcontext() if found is None else found.fake_mode

    def copy(self, node: Node) -> None:
        """The same call as in the other graph, on all of its inputs."""

        def own(each: Node) -> Node:
            if each not in self.made and (found := held_graph(each)) is not None:
                assert isinstance(each.target, str)
                self.root.add_module(each.target, found)
                self.made[each] = self.graph.node_copy(each)
            return self.made[each] if each in self.made else self.outer(each)

        self.made[node] = self.graph.node_copy(node, own)

    def write(self, result: Node, into: Into) -> None:
        """Write a range of a value into the buffer that has all of it."""
        whole = buffer_like(into.node)
        slot = self.input(into, whole.narrow(into.dim, into.range.start, into.range.size))
        self.call(aten.copy_.default, slot, result)


def build(
    cuts: Mapping[Node, tuple[Cut, int]],
    outputs: Mapping[Node, Range],
    partials: Mapping[Node, tuple[Partial, Range]] | None = None,
    symbols: Mapping[Any, torch.SymInt] | None = None,
) -> tuple[PieceGraph, dict[Node, Node]]:
    """The piece that computes ranges of `outputs`, and the node of it for each of them.

    `cuts` are in the order of the graph. What an output's range takes of other nodes, with the
    neighbours that a convolution reads beyond it, is worked out from the last node to the first.
    `partials` are reductions over a range of the dim that is cut.
    """
    partials = partials or {}
    demands = dict(outputs)

    def ask(needs: Iterable[Need]) -> None:
        for need in needs:
            if need.node in cuts and need.range is not None:
                demands[need.node] = _hull(demands.get(need.node), need.range)

    for partial, over in partials.values():
        ask(partial.needs(over))
    for node in reversed(list(cuts)):
        if node in demands:
            ask(cuts[node][0].needs(demands[node]))
    for node in cuts:  # what takes one of several values takes as much as there is
        if node.target is operator.getitem and node.args[0] in demands and node in demands:
            demands[node] = demands[node.args[0]]  # type: ignore[index]
    piece = PieceGraph(cuts, demands, symbols=symbols or {})
    for node, (cut, _) in cuts.items():
        if node in demands:
            piece.made[node] = piece.emit(node, cut, demands[node])
    found = {
        node: piece.narrowed(piece.made[node], cuts[node][1], demands[node], wanted)
        for node, wanted in outputs.items()
    }
    found |= {node: piece.emit(node, partial, over) for node, (partial, over) in partials.items()}
    return piece, found


def finished(piece: PieceGraph, results: Sequence[Node]) -> GraphModule:
    """The graph as a module that returns these nodes."""
    output = piece.graph.output(tuple(results))
    output.meta["val"] = tuple(r.meta["val"] for r in results)
    piece.graph.lint()
    return GraphModule(piece.root, piece.graph)


def held_graph(node: Node) -> torch.nn.Module | None:
    """What a node stands for that is a graph inside of the graph: a branch, the body of a loop."""
    module = node.graph.owning_module
    if node.op != "get_attr" or module is None:
        return None
    found = getattr(module, str(node.target), None)
    return found if isinstance(found, torch.nn.Module) else None


def buffer_like(node: Node) -> Tensor:
    """A traced tensor of the form that the buffer with all of a value has.

    It has the value's strides, but where these let elements share memory.
    """
    whole = value(node)
    shared = any(n == 0 for n in whole.stride() if not isinstance(n, torch.SymInt))
    like = torch.empty_like(whole, memory_format=torch.preserve_format) if shared else whole
    return whole.new_empty_strided(tuple(like.shape), tuple(like.stride()))


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
