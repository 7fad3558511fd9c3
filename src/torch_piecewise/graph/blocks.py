"""The parts of a graph that repeats blocks: what comes before, the blocks, and what is left.

Blocks that are equal have one module, each with inputs of its own. What no block needs comes last;
what some need and others make, between them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from .axes import is_mutating
from .parts import Part, symbols_of
from .pieces import Handed, Input, PieceGraph, Size, finished
from .repeats import Block, Repeats
from .signature import draws, is_call, is_size

LAST = 1 << 30  # where what no block needs runs


class CannotRepeat(Exception):
    """Blocks of a graph can't be called one by one: a stable `code`, and the reason in words."""

    def __init__(self, code: str, text: str):
        super().__init__(text)
        self.code = code


def refuse(graph: Graph) -> None:
    """Raise CannotRepeat for what would not be the same in parts, whatever the blocks are."""
    written = False
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if node.op == "get_attr" and isinstance(node.meta.get("val"), Tensor):
            continue
        if node.op != "call_function" or not _is_plain(node):
            raise CannotRepeat("higher-order", f"{node.name} calls what is no operator")
        if draws(node):
            raise CannotRepeat("random", f"{node.name} draws random numbers, in one order for all")
        if free_unbacked_symbols(node.meta.get("val")):
            raise CannotRepeat("data-dependent", f"the size of {node.name} depends on values")
        if written and not is_mutating(node):
            raise CannotRepeat("mutation", f"{node.name} comes after a write to an argument")
        written |= is_mutating(node)
        if is_mutating(node) and node.target is not torch.ops.aten.copy_.default:
            raise CannotRepeat("mutation", f"{node.name} writes to its argument")


def _is_plain(node: Node) -> bool:
    """An operator whose calls can be told apart by tensors and constants alone."""
    if isinstance(node.target, OpOverload):
        return not node.target.namespace.startswith("_c10d") and "val" in node.meta
    return node.target is operator.getitem or is_size(node)


def parts(gm: GraphModule, found: Sequence[Repeats]) -> list[Part]:
    """The graphs in the order in which they run; raises CannotRepeat where there is none."""
    refuse(gm.graph)
    return list(_Parts(gm.graph, found).all())


@dataclass(frozen=True)
class _Parts:
    graph: Graph
    found: Sequence[Repeats]

    @cached_property
    def blocks(self) -> list[tuple[int, Block]]:
        """All blocks in an order that works, each with the number of its kind."""
        order = {node: number for number, node in enumerate(self.graph.nodes)}
        all_of = [(k, block) for k, each in enumerate(self.found) for block in each.blocks]
        return sorted(all_of, key=lambda pair: max(order[n] for n in pair[1].inputs))

    @cached_property
    def home(self) -> dict[Node, int]:
        return {node: k for k, (_, block) in enumerate(self.blocks) for node in block.nodes}

    @cached_property
    def ready(self) -> dict[Node, int]:
        """How many blocks have to run before a value is there."""
        ready: dict[Node, int] = {}
        for node in self.graph.nodes:
            own = self.home.get(node)
            behind = max((ready[n] for n in node.all_input_nodes), default=0)
            ready[node] = behind if own is None else own + 1
        for k, (_, block) in enumerate(self.blocks):
            if any(ready[node] > k for node in block.inputs):
                raise CannotRepeat("order", "blocks need values of each other")
        return ready

    @cached_property
    def stage(self) -> dict[Node, int]:
        """After how many blocks each of the other calls runs; LAST where no block needs it."""
        needed: set[Node] = {node for _, block in self.blocks for node in block.inputs}
        for node in reversed(list(self.graph.nodes)):
            if node in needed and node not in self.home:
                needed.update(node.all_input_nodes)
        stage: dict[Node, int] = {}
        for node in self.graph.nodes:
            if is_call(node) and node not in self.home:
                stage[node] = self.ready[node] if node in needed else LAST
                if node.target is operator.getitem:  # one of several values is taken at once
                    stage[node] = stage.get(node.args[0], stage[node])  # type: ignore[call-overload]
        return stage

    def all(self) -> Iterator[Part]:
        modules = [self.block(k, found) for k, found in enumerate(self.found)]
        for k, (kind, block) in enumerate(self.blocks):
            yield from self.rest(k)
            given: list[Handed] = [*map(Input, block.inputs), *map(Size, map(str, self.symbols))]
            results = tuple(block.nodes[p] for p in self.found[kind].returned)
            name = f"block_{kind}_{k}"
            yield Part(name, modules[kind], tuple(given), results, k, as_traced=True)
        yield from self.rest(LAST)

    def block(self, kind: int, found: Repeats) -> GraphModule:
        piece = self.begun()
        for node in found.pattern.inputs:
            piece.outer(node)
        for symbol in self.symbols:
            piece.size(symbol)
        order = {node: number for number, node in enumerate(self.graph.nodes)}
        for node in sorted(found.pattern.nodes, key=order.__getitem__):
            self.copy(piece, node)
        return finished(piece, [piece.made[found.pattern.nodes[p]] for p in found.returned])

    def rest(self, stage: int) -> Iterator[Part]:
        """What runs after so many blocks, if anything: one part."""
        nodes = [node for node, own in self.stage.items() if own == stage]
        sizes = self.sizes_returned if stage == LAST else []
        if not nodes and not sizes:
            return
        piece, inside = self.begun(), set(nodes)
        for node in nodes:
            self.copy(piece, node)
        for symbol in self.symbols:
            piece.size(symbol)
        results = [n for n in nodes if not inside.issuperset(n.users)]
        for node in sizes:
            piece.made[node] = piece.own_size(node.meta["val"])
        self.refuse_shared(piece, nodes)
        if any(not isinstance(n.meta["val"], Tensor) for n in results):
            raise CannotRepeat("order", "several values of one operator would have to be handed on")
        module = finished(piece, [piece.made[n] for n in (*results, *sizes)])
        name = "rest" if stage == LAST else f"before_{stage}"
        given = tuple(piece.inputs)
        yield Part(name, module, given, (*results, *sizes), stage, as_traced=True)

    def begun(self) -> PieceGraph:
        return PieceGraph(symbols=self.symbols)

    @cached_property
    def symbols(self) -> dict[Any, torch.SymInt]:
        return symbols_of(self.graph)

    @cached_property
    def sizes_returned(self) -> list[Node]:
        """Sizes that the graph computes and returns."""
        results = self.graph.output_node().all_input_nodes
        return [n for n in results if n.op == "call_function" and is_size(n)]

    def copy(self, piece: PieceGraph, node: Node) -> None:
        """The same call; sizes are computed of those that the piece is handed."""
        for each in node.all_input_nodes:
            if is_size(each):
                piece.made[each] = piece.own_size(each.meta["val"])
        piece.copy(node)

    def refuse_shared(self, piece: PieceGraph, nodes: Sequence[Node]) -> None:
        """What is written to must have one name in the part that writes."""
        written = {node.args[0] for node in nodes if is_mutating(node)}
        places = {_memory(n): n for n in written if isinstance(n, Node)}
        for given in piece.inputs:
            node = given.node if isinstance(given, Input) else None
            if node is not None and places.get(_memory(node), node) is not node:
                text = f"{node.name} shares memory with an argument that is written to"
                raise CannotRepeat("mutation", text)


def _memory(node: Node) -> object:
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, Tensor) else node
