"""Which nodes of a graph are cut together, and in what order: its stages.

From the dim of one output the rules lead back to the inputs, and from these on to every other node
that has the same loop. Such nodes are in one region, where each range of one takes only ranges of
the others. What takes all of a value, or another dim of it, comes a stage later, when the ranges
are stitched; what can't be cut, between the stages.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor
from torch.fx import Graph, Node

from .axes import (
    PARTIAL_RULES,
    Bound,
    CannotCut,
    Cut,
    Partial,
    Range,
    cut_along,
    is_mutating,
    is_tensor,
    named,
    same,
    shape,
    value,
)


@dataclass(frozen=True)
class Refused:
    """A node that stays whole, and why; `dim` is the one on the way back from the target."""

    node: Node
    dim: int | None
    code: str
    text: str


@dataclass(frozen=True)
class Stage:
    """Nodes that run together, in the order of the graph: cut, each along its dim, or whole.

    `partials` are reductions over the dim that is cut: a range of the stage makes a part of each,
    and the next stage begins with combining those that it `combines`.
    """

    nodes: tuple[Node, ...]
    cuts: Mapping[Node, tuple[Cut, int]] = field(default_factory=dict)
    partials: Mapping[Node, Partial] = field(default_factory=dict)
    combines: Mapping[Node, Partial] = field(default_factory=dict)

    @property
    def is_cut(self) -> bool:
        return bool(self.cuts or self.partials)


@dataclass(frozen=True)
class Regions:
    """The stages of a graph in order, whole and cut ones, and why nodes stay whole.

    `readers` are the calls that read a value, of those that are in a stage: a cut may read other
    values than the call did.
    """

    stages: tuple[Stage, ...]
    refused: tuple[Refused, ...]
    readers: Mapping[Node, set[Node]]

    def outside(self, stage: Stage, results: Sequence[Node]) -> tuple[Node, ...]:
        """The nodes whose values a stage leaves: other stages read them, or they are returned."""
        returned, inside = set(results), {*stage.nodes, *stage.combines}
        made = (*stage.combines, *(n for n in stage.nodes if n not in stage.partials))
        return tuple(n for n in made if n in returned or not self.readers[n] <= inside)


def find(graph: Graph, target: Node, dim: int) -> Regions:
    """The stages when `dim` of the value of `target`, a call, is cut.

    Raises CannotCut where `target` itself can't be; what is behind it ends the region, and is in
    `refused`.
    """
    _refuse_writes(graph)
    search = _Search(graph)
    search.backward(target, dim)
    if target not in search.cuts:
        refused = search.refused[target]
        raise CannotCut(refused.code, refused.text)
    return search.found()


def find_from(graph: Graph, given: Mapping[Node, int]) -> Regions:
    """The stages when inputs of the graph are cut along these dims, as far as that goes."""
    _refuse_writes(graph)
    search = _Search(graph)
    search.given.update(given)
    return search.found()


def scaled(range: Range, of: Bound, to: Bound) -> Range:
    """A range of a dim of size `of` as one of a dim of size `to`, where they differ.

    Neighbouring ranges stay neighbours, and all together are all of it.
    """
    if same(of, to):
        return range
    return Range(range.start * to // of, range.stop * to // of)


@dataclass
class _Search:
    graph: Graph
    cuts: dict[Node, tuple[Cut, int]] = field(default_factory=dict)
    partials: dict[Node, Partial] = field(default_factory=dict)
    given: dict[Node, int] = field(default_factory=dict)  # inputs of the graph with their dim
    refused: dict[Node, Refused] = field(default_factory=dict)

    def found(self) -> Regions:
        self.forward()
        self.pull()
        self.leave_views()
        while self.leave_split_values():
            pass
        return Regions(tuple(self.stages()), tuple(self.refused.values()), self.readers())

    def backward(self, target: Node, dim: int) -> None:
        """From the target to what it is computed from, by the dims that the rules name."""
        wanted: dict[Node, int] = {target: dim}
        for node in reversed(self.graph.nodes):
            if node not in wanted:
                continue
            if node.op != "call_function":
                self.given[node] = wanted[node]
                continue
            cut = self.try_cut(node, wanted[node], on_the_way=True)
            if cut is None:
                continue
            for each, own in cut.inputs:
                if own is not None and not same(shape(each)[own], 0):
                    wanted.setdefault(each, own)

    def try_cut(self, node: Node, dim: int, on_the_way: bool = False) -> Cut | None:
        try:
            cut = cut_along(node, dim)
            _check_values(node, dim)
        except CannotCut as error:
            refused = Refused(node, dim if on_the_way else None, error.code, str(error))
            self.refused.setdefault(node, refused)
            return None
        self.cuts[node] = cut, dim
        self.refused.pop(node, None)
        return cut

    def forward(self) -> None:
        """From the inputs on to every node that reads them along their dims."""
        for node in self.graph.nodes:
            if node.op != "call_function" or node in self.cuts or not is_tensor(node):
                continue
            dims = {n: self.dim_of(n) for n in node.all_input_nodes if is_tensor(n)}
            known = {n: d for n, d in dims.items() if d is not None}
            if is_mutating(node):
                text = f"{named(node)} writes to its argument, when all has been read"
                self.refused[node] = Refused(node, None, "mutation", text)
                continue
            if not known or self.cut_like(node, known) or self.reduced(node, known):
                continue
            text = f"{named(node)} takes all of what is cut"
            self.refused.setdefault(node, Refused(node, None, "takes-all", text))

    def dim_of(self, node: Node) -> int | None:
        return self.cuts[node][1] if node in self.cuts else self.given.get(node)

    def cut_like(self, node: Node, known: Mapping[Node, int]) -> bool:
        """Cut the node along the dim for which its inputs are cut as they are already."""
        if node in self.refused:
            return False
        if node.target is operator.getitem:  # a value of several goes with the others
            return self.try_cut(node, next(iter(known.values()))) is not None
        for dim, _ in enumerate(shape(node)):
            try:
                cut = cut_along(node, dim)
            except CannotCut:
                continue
            if all({own for n, own in cut.inputs if n is each} == {d} for each, d in known.items()):
                return self.try_cut(node, dim) is not None
        return False

    def pull(self) -> None:
        """Cut what is read along one dim by nodes that are cut, and by nothing else."""
        for node in reversed(self.graph.nodes):
            if node.op != "call_function" or node in self.cuts or node in self.partials:
                continue
            users = [self.found_for(user) for user in node.users]
            if not is_tensor(node) or not users or None in users:
                continue
            dims = {d for found in users if found for n, d in found.inputs if n is node}
            dim = next(iter(dims)) if len(dims) == 1 else None
            if dim is not None and node not in self.refused:
                self.try_cut(node, dim)

    def found_for(self, node: Node) -> Cut | Partial | None:
        return self.cuts[node][0] if node in self.cuts else self.partials.get(node)

    def leave_views(self) -> None:
        """Results that are views of inputs or of what others are views of too stay that.

        A range of them would be a copy. So do views that repeat memory: a buffer for them can't.
        """
        results = [n for n in self.graph.output_node().all_input_nodes if is_tensor(n)]
        sharing = Counter(map(_owner, results))
        for node in results:
            owner = _owner(node)
            if owner.op == "call_function" and sharing[owner] == 1 and not repeats(node):
                continue
            while node is not owner:
                if self.cuts.pop(node, None) is not None:
                    text = f"{named(node)} is a view, of memory that others have too"
                    self.refused[node] = Refused(node, None, "alias", text)
                node = next(n for n in node.all_input_nodes if is_tensor(n))

    def leave_split_values(self) -> bool:
        """A call with several values and the nodes that take one of them go together.

        Says whether something was left whole for that.
        """
        for node in self.graph.nodes:
            takes = node.target is operator.getitem and node in self.cuts
            source = node.args[0] if takes else None
            if takes and any(n is source for n, _ in self.cuts[node][0].inputs):
                if source not in self.cuts:
                    del self.cuts[node]
                    return True
            if node in self.cuts and not isinstance(node.meta["val"], Tensor):
                if not all(user in self.cuts for user in node.users):
                    del self.cuts[node]
                    return True
        return False

    def needed(self) -> set[Node]:
        """The calls that something reads: a cut may read other values than the call did."""
        found = {n for n in self.graph.nodes if n.op == "output" or is_mutating(n)}
        for node in reversed(self.graph.nodes):
            if node not in found:
                continue
            found.update(self.read(node))
        return found

    def readers(self) -> dict[Node, set[Node]]:
        found: dict[Node, set[Node]] = {n: set() for n in self.graph.nodes}
        for node in self.needed():
            for each in self.read(node) if node.op == "call_function" else ():
                found[each].add(node)
        return found

    def read(self, node: Node) -> list[Node]:
        found = self.found_for(node)
        if found is None:
            return node.all_input_nodes
        sizes = [n for n in node.all_input_nodes if not is_tensor(n)]
        return [*sizes, *(n for n, _ in found.inputs)]

    def reduced(self, node: Node, known: Mapping[Node, int]) -> bool:
        """Reduce range by range, over the first of the dims for which a rule says how."""
        rule = PARTIAL_RULES.get(node.target)
        if rule is None or node in self.refused:
            return False
        for each, dim in known.items():
            try:
                self.partials[node] = rule(node, each, dim)
            except CannotCut as error:
                self.refused.setdefault(node, Refused(node, None, error.code, str(error)))
            else:
                self.refused.pop(node, None)
                return True
        return False

    def stages(self) -> Iterator[Stage]:
        """Nodes by level: even ones whole, odd ones cut."""
        levels = self.levels()
        before: dict[Node, Partial] = {}
        for level in range(max(levels.values(), default=0) + 2):
            nodes = tuple(n for n, own in levels.items() if own == level)
            cuts = {n: self.cuts[n] for n in nodes if n in self.cuts}
            partials = {n: self.partials[n] for n in nodes if n in self.partials}
            if nodes or before:
                yield Stage(nodes, cuts, partials, before)
            before = partials

    def levels(self) -> dict[Node, int]:
        levels: dict[Node, int] = {}
        needed = self.needed()
        for node in self.graph.nodes:
            if node.op == "call_function" and node in needed:
                is_cut = node in self.cuts or node in self.partials
                least = [self.after(n, node, is_cut, levels) for n in self.read(node)]
                levels[node] = max([int(is_cut), *least])
        last = max(levels.values(), default=0)
        for node in levels:  # inputs are written to when all has been read
            if is_mutating(node):
                levels[node] = last + last % 2
        return levels

    def after(self, node: Node, user: Node, is_cut: bool, levels: Mapping[Node, int]) -> int:
        """The first level at which what a user takes of a node is there."""
        if node not in levels:  # an input of the graph
            return int(is_cut)
        own = levels[node]
        if node in self.partials:  # combined a level later
            return own + 2 if is_cut else own + 1
        if node not in self.cuts:
            return own + 1 if is_cut else own
        if not is_cut:
            return own + 1
        found = self.found_for(user)
        assert found is not None
        local = all(d == self.cuts[node][1] for n, d in found.inputs if n is node)
        return own if local else own + 2


def is_view(node: Node) -> bool:
    """Whether a call's value shares the memory of its input."""
    if node.target is operator.getitem:
        source = node.args[0]
        return isinstance(source, Node) and is_view(source)
    schema = getattr(node.target, "_schema", None)
    returns = list(schema.returns) if schema is not None else []
    return len(returns) == 1 and returns[0].alias_info is not None and not is_mutating(node)


def repeats(node: Node) -> bool:
    """Whether positions of a value share one place in memory."""
    whole = value(node)
    return any(
        same(stride, 0) and not same(size, 1)
        for stride, size in zip(whole.stride(), whole.shape, strict=True)
    )


def _refuse_writes(graph: Graph) -> None:
    """Raise for what writes to memory that is read later: stages change the order of reads.

    A graph of AOTAutograd writes to its inputs alone, and at its end.
    """
    read: set[Node] = set()  # tensors that own their memory
    for node in reversed(graph.nodes):
        sources = [n for n in node.all_input_nodes if node.op != "output" and is_tensor(n)]
        if is_mutating(node):
            owner = _owner(sources[0])
            if owner.op == "call_function" or owner in read:
                text = f"{named(node)} writes to what is read after it"
                raise CannotCut("mutation", text, node)
            sources = sources[1:]
        read.update(map(_owner, sources))


def _owner(node: Node) -> Node:
    """The tensor that owns the memory of a view, or of what was written to."""
    while node.op == "call_function" and (is_view(node) or is_mutating(node)):
        node = next(n for n in node.all_input_nodes if is_tensor(n))
    return node


def _check_values(node: Node, dim: int) -> None:
    """There must be positions; of several values, those that are used must all have the dim."""
    if same(shape(node)[dim], 0):
        raise CannotCut("empty", f"dim {dim} of {named(node)} has no positions")
    values = node.meta["val"]
    if isinstance(values, Tensor):
        return
    for user in node.users:
        if user.target is operator.getitem:
            one = values[user.args[1]]
            if isinstance(one, Tensor) and one.ndim <= dim:
                raise CannotCut("values", f"value {user.args[1]} of {named(node)} has no dim {dim}")
