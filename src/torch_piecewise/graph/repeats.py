"""Blocks that a graph repeats, such as the layers of a transformer: found by what they compute.

A block ends right after a call of a library: nothing is fused across such a place, so that apart
the blocks have the kernels that they have together. Such calls that compute the same, seen some
operators back, are the ends of a chain. What leads from one end to the next, and to no other, is a
block; one of them is the pattern that the graph is matched with, end by end, by structure alone:
neither the order of the nodes nor their names count. What depends on a block, and on no later one,
belongs to it where all have it, as the gradients of weights do.
"""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor
from torch.fx import Graph, Node

from .axes import is_mutating
from .pattern import Match, Pattern
from .signature import Call, calls_library, draws, is_call, random_seed

# Operators that tell one call of a library from others of the same sizes. Those near the begin of
# a chain look different from further on, those of one block the same from nearby.
BACK = (2, 5)


@dataclass(frozen=True)
class Block:
    """Nodes in the pattern's order, and what they take from outside, in the order of first use."""

    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]

    @cached_property
    def inside(self) -> frozenset[Node]:
        return frozenset(self.nodes)

    def used_outside(self) -> Iterator[int]:
        """The positions of nodes that others read."""
        for position, node in enumerate(self.nodes):
            if not self.inside.issuperset(node.users):
                yield position


@dataclass(frozen=True)
class Repeats:
    """Equal blocks in the order of the graph; each gives the values at the positions `returned`."""

    blocks: tuple[Block, ...]
    returned: tuple[int, ...]

    @property
    def pattern(self) -> Block:
        return self.blocks[0]


def find(graph: Graph, least_blocks: int, least_operators: int) -> list[Repeats]:
    """All runs of so many equal blocks of so many operators; the ones that cover most come first.

    Nodes have `meta["val"]`. Nodes that write, that take numbers from a generator, or that hand
    out random seeds are in no block.
    """
    found: list[Repeats] = []
    taken: set[Node] = set()
    search = _Search(graph)
    while True:
        best = search.best(taken, least_blocks, least_operators)
        if best is None:
            return found
        found.append(best)
        taken.update(node for block in best.blocks for node in block.nodes)


def stays_outside(node: Node) -> bool:
    """Whether a node is never in a block: it is no call, or when it runs counts."""
    return not is_call(node) or is_mutating(node) or draws(node) or random_seed(node)


@dataclass
class _Search:
    graph: Graph
    calls: dict[Node, Call] = field(default_factory=dict)
    order: dict[Node, int] = field(default_factory=dict)
    depth: dict[Node, int] = field(default_factory=dict)  # library calls on the way to a node

    def __post_init__(self) -> None:
        for number, node in enumerate(self.graph.nodes):
            self.order[node] = number
            if not stays_outside(node):
                call = self.calls[node] = Call(node)
                before = max((self.depth.get(n, 0) for n in call.operands), default=0)
                self.depth[node] = before + calls_library(node)
        self.texts = _numbered({node: call.text for node, call in self.calls.items()})
        self.ends = self._ends()

    def _ends(self) -> list[list[Node]]:
        """Library calls that look the same from behind, in groups: from further and further."""
        look: Mapping[Node, int] = self.texts
        groups: dict[tuple[Node, ...], None] = {}
        for back in range(1, max(BACK) + 1):
            behind = {
                node: (look[node], *(look.get(n, -1) for n in call.operands))
                for node, call in self.calls.items()
            }
            look = _numbered(behind)
            if back in BACK:
                groups.update(dict.fromkeys(self._grouped(look)))
        return list(map(list, groups))

    def _grouped(self, look: Mapping[Node, int]) -> Iterator[tuple[Node, ...]]:
        groups = defaultdict(list)
        for node in self.calls:
            source = node.args[0] if node.target is operator.getitem else node
            is_tensor = isinstance(node.meta.get("val"), Tensor)
            if is_tensor and isinstance(source, Node) and calls_library(source):
                groups[look[node]].append(node)
        return map(tuple, groups.values())

    def best(self, taken: set[Node], blocks: int, operators: int) -> Repeats | None:
        """The one that covers most; of those close to it, the one whose ends cost least."""
        candidates = []
        for ends in self.ends:
            own = [node for node in ends if node not in taken]
            found = self.along(own, taken, blocks) if len(own) >= blocks else None
            if found is not None and len(found.blocks) >= blocks:
                candidates.append(found)
        enough = [c for c in candidates if len(c.pattern.nodes) >= operators]
        if not enough:
            return None
        most = max(len(c.blocks) * len(c.pattern.nodes) for c in enough)
        close = [c for c in enough if len(c.blocks) * len(c.pattern.nodes) >= 0.9 * most]
        return min(close, key=self.crossing)

    def crossing(self, found: Repeats) -> tuple[int, int]:
        """What an end costs: bytes that would have been fused, bytes that cross it."""
        lost = crossed = 0
        block = found.blocks[len(found.blocks) // 2]
        for position in found.returned:
            node = block.nodes[position]
            crossed += _bytes(node)
            readers = [user for user in node.users if user not in block.inside]
            together = (self.depth.get(r) == self.depth[node] for r in readers)
            if not calls_library(node) and any(together):  # they could be in one kernel
                lost += _bytes(node)
        return lost, crossed

    def along(self, ends: Sequence[Node], taken: set[Node], least: int) -> Repeats | None:
        """The blocks between these ends, matched with the commonest of them."""
        pattern = self.pattern(ends, taken, least)
        if pattern is None:
            return None
        matched = [m for m in (pattern.match(end) for end in ends) if m is not None]
        matched = _apart(matched, taken)
        if len(matched) < least:
            return None
        matched = pattern.with_sides(matched, self.sides(matched, taken))
        blocks = [Block(tuple(m.nodes), tuple(m.inputs)) for m in matched]
        blocks = [block for block in blocks if self.is_closed(block)]
        return _returning(blocks, least)

    def is_closed(self, block: Block) -> bool:
        """Whether nothing that the block takes from outside depends on the block."""
        first = min(self.order[node] for node in block.nodes)
        seen, stack = set(block.inputs), list(block.inputs)
        while stack:
            node = stack.pop()
            if node in block.inside:
                return False
            if self.order[node] > first:
                more = [n for n in node.all_input_nodes if n not in seen]
                seen.update(more)
                stack.extend(more)
        return True

    def pattern(self, ends: Sequence[Node], taken: set[Node], least: int) -> Pattern | None:
        patterns: dict[object, Pattern] = {}
        count: Counter[object] = Counter()
        for end, own in self.slices(ends, taken):
            made = Pattern.of(end, own, self.calls, self.texts)
            patterns.setdefault(made.key, made)
            count[made.key] += 1
        if not count:
            return None
        key, most = count.most_common(1)[0]
        return patterns[key] if most >= least - 1 else None

    def slices(
        self, ends: Sequence[Node], taken: set[Node]
    ) -> Iterator[tuple[Node, frozenset[Node]]]:
        """For each end but the first what leads to it from the one before, and to no other."""
        after = _after(ends[0])
        stop = {*ends, *taken}
        claimed: set[Node] = set()
        visits: Counter[Node] = Counter()
        own: list[tuple[Node, list[Node]]] = []
        for before, end in zip(ends, ends[1:], strict=False):
            seen, stack, linked = {end}, [end], False
            while stack:
                for node in self.calls[stack.pop()].operands:
                    linked |= node is before
                    known = node in seen or node in stop or node in claimed
                    if known or node not in self.calls or visits[node] > 1:
                        continue
                    seen.add(node)
                    stack.append(node)
            visits.update(node for node in seen if node not in after)
            claimed.update(node for node in seen if node in after)
            if linked:
                own.append((end, list(seen)))
        for end, seen_by in own:
            yield end, frozenset(n for n in seen_by if n in after or visits[n] == 1)

    def sides(self, matched: Sequence[Match], taken: set[Node]) -> list[Node]:
        """What depends on a block in the middle, on no later one, and leads to none."""
        home = {node: k for k, match in enumerate(matched) for node in match.nodes}
        middle = len(matched) // 2
        latest: dict[Node, int] = {}
        for node, call in self.calls.items():
            known = (home.get(n, latest.get(n, -1)) for n in call.operands)
            latest[node] = home.get(node, max(known, default=-1))
        needed = {n for match in matched for n in match.inputs}
        for node in reversed(list(self.calls)):
            if node in needed:
                needed.update(self.calls[node].operands)
        return [
            node
            for node, k in latest.items()
            if k == middle and not (node in home or node in taken or node in needed)
        ]


def _numbered(texts: Mapping[Node, object]) -> dict[Node, int]:
    """Numbers for what may be long to compare."""
    known: dict[object, int] = {}
    return {node: known.setdefault(text, len(known)) for node, text in texts.items()}


def _after(first: Node) -> set[Node]:
    """What depends on a node, itself included."""
    found, stack = {first}, [first]
    while stack:
        for user in stack.pop().users:
            if user not in found:
                found.add(user)
                stack.append(user)
    return found


def _apart(matched: Iterable[Match], taken: set[Node]) -> list[Match]:
    """Those that share no node with one before, nor with what is taken."""
    used = set(taken)
    kept = []
    for match in matched:
        if used.isdisjoint(match.nodes):
            used.update(match.nodes)
            kept.append(match)
    return kept


def _returning(blocks: Sequence[Block], least: int) -> Repeats | None:
    """What most blocks return; one of which others read more is no block of these."""
    used = [set(block.used_outside()) for block in blocks]
    count = Counter(position for each in used for position in each)
    returned = {position for position, many in count.items() if 2 * many >= len(blocks)}
    kept = [b for b, each in zip(blocks, used, strict=True) if each <= returned]
    if len(kept) < least or not returned:
        return None
    values = (*(kept[0].nodes[p] for p in returned), *kept[0].inputs)
    if not all(isinstance(node.meta.get("val"), Tensor) for node in values):
        return None
    return Repeats(tuple(kept), tuple(sorted(returned)))


def _bytes(node: Node) -> int:
    """Of a value; a size that is not known counts as what it was when it was traced."""
    value = node.meta["val"]
    count = value.itemsize
    for size in value.shape:
        count *= size if isinstance(size, int) else size.node.hint or 1
    return int(count)
