"""The graphs that the stages of a graph become: one for a whole stage, one a range for a cut one.

They are handed values of the graph, or ranges of them. A range of a value that others read is
written into a slice of a buffer with all of it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from .axes import Bound, Partial, Range, same, shape, together
from .pieces import Handed, Into, PartOf, PieceGraph, build, finished
from .regions import Regions, Stage, scaled


def values(piece: PieceGraph, node: Node) -> list[tuple[int, Node]]:
    """A node of the piece, or each of its values, numbered."""
    found = node.meta["val"]
    if isinstance(found, Tensor):
        return [(0, node)]
    return [(i, piece.call(operator.getitem, node, i)) for i, _ in enumerate(found)]


def is_empty(range: Range) -> bool:
    """As one of a dim can be that is shorter than the one that the ranges are of."""
    return same(range.start, range.stop)


@dataclass(frozen=True)
class Part:
    """One graph of its own: its inputs in order, and what it returns.

    `range` is that of the target's dim that it is for, None where it is whole. `as_traced` is True
    where its operators are the graph's own, none written by a rule.
    """

    name: str
    module: GraphModule
    inputs: tuple[Handed, ...]
    results: tuple[Node | PartOf, ...]
    stage: int
    range: Range | None = None
    as_traced: bool = False

    @property
    def written(self) -> tuple[Into, ...]:
        return tuple(each for each in self.inputs if isinstance(each, Into))


@dataclass(frozen=True)
class Cutter:
    """Makes the parts of a graph; `size` is that of the dim that the ranges are of.

    `results` are the nodes that the graph returns.
    """

    graph: Graph
    regions: Regions
    ranges: Sequence[Range]
    size: Bound
    results: Sequence[Node]

    def parts(self) -> Iterator[Part]:
        for number, stage in enumerate(self.regions.stages):
            if stage.is_cut:
                yield from self.cut(number, stage)
            else:
                yield self.whole(number, stage)

    def cut(self, number: int, stage: Stage) -> Iterator[Part]:
        outputs = self.regions.outside(stage, self.results)
        for k, each in enumerate(self.ranges):
            wanted = {n: self.range_of(n, stage.cuts[n][1], each) for n in outputs}
            wanted = {n: r for n, r in wanted.items() if not is_empty(r)}
            partials = {n: (p, self.over(p, each)) for n, p in stage.partials.items()}
            partials = {n: (p, r) for n, (p, r) in partials.items() if not is_empty(r)}
            if not wanted and not partials:
                continue
            piece, found = build(stage.cuts, wanted, partials, self.symbols)
            for node, part in wanted.items():
                piece.write(found[node], Into(node, stage.cuts[node][1], part))
            self.hand_sizes(piece)
            made = {PartOf(n, k, i): v for n in partials for i, v in values(piece, found[n])}
            module = finished(piece, list(made.values()))
            name = f"piece_{number}_{k}"
            yield Part(name, module, tuple(piece.inputs), tuple(made), number, each)

    def range_of(self, node: Node, dim: int, each: Range) -> Range:
        return scaled(each, self.size, shape(node)[dim])

    def over(self, partial: Partial, each: Range) -> Range:
        node, dim = next((n, d) for n, d in partial.inputs if d is not None)
        return self.range_of(node, dim, each)

    def whole(self, number: int, stage: Stage) -> Part:
        piece = PieceGraph(symbols=self.symbols)
        for node, partial in stage.combines.items():
            over = {k: self.over(partial, each) for k, each in enumerate(self.ranges)}
            over = {k: each for k, each in over.items() if not is_empty(each)}
            holders = [self.held(piece, PartOf(node, k), partial, r) for k, r in over.items()]
            sizes = [each.size for each in over.values()]
            piece.origin = node
            piece.made[node] = partial.combine(piece, holders, sizes)
        for node in stage.nodes:
            piece.copy(node)
        self.hand_sizes(piece)
        results = self.regions.outside(stage, self.results)
        module = finished(piece, [piece.made[n] for n in results])
        return Part(f"whole_{number}", module, tuple(piece.inputs), results, number)

    def held(self, piece: PieceGraph, part: PartOf, partial: Partial, over: Range) -> Node:
        """The node for what one range gave: one value, or several together."""
        given = partial.emit(PieceGraph(symbols=self.symbols), over).meta["val"]
        if isinstance(given, Tensor):
            return piece.input(part, given)
        each = (piece.input(PartOf(part.node, part.number, i), v) for i, v in enumerate(given))
        return piece.call(together, *each)

    @cached_property
    def symbols(self) -> dict[Any, torch.SymInt]:
        return symbols_of(self.graph)

    def hand_sizes(self, piece: PieceGraph) -> None:
        for symbol in self.symbols:
            piece.size(symbol)


def symbols_of(graph: Graph) -> dict[Any, torch.SymInt]:
    """The sizes that the inputs are, or have: the shapes of a piece are made of them."""
    found: dict[Any, torch.SymInt] = {}
    for node in graph.nodes:
        given = node.meta.get("val") if node.op == "placeholder" else None
        for size in given.shape if isinstance(given, Tensor) else [given]:
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                # the input's own may still be under a name that another size replaced
                env, symbol = size.node.shape_env, size.node.expr
                own = env.create_symintnode(symbol, hint=size.node.hint)
                found.setdefault(symbol, own)
    return found
