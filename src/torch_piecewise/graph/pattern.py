"""A block as structure, and what matches it: neither the order of nodes nor their names count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch.fx import Node

from .signature import Call, form


@dataclass
class Match:
    """The nodes that stand for the pattern's, None where there is none yet."""

    nodes: list[Node]
    inputs: list[Node]


@dataclass
class Pattern:
    """A block as structure. A reference is (True, position of a node) or (False, of an input)."""

    nodes: list[Node]
    inputs: list[Node]
    references: list[tuple[tuple[bool, int], ...]]
    calls: Mapping[Node, Call]
    texts: Mapping[Node, int]

    @staticmethod
    def of(
        end: Node, own: frozenset[Node], calls: Mapping[Node, Call], texts: Mapping[Node, int]
    ) -> Pattern:
        """The nodes in the order of a walk from the end, operands first."""
        made = Pattern([], [], [], calls, texts)
        places: dict[Node, int] = {}
        inputs: dict[Node, int] = {}
        stack: list[tuple[Node, bool]] = [(end, False)]
        while stack:
            node, walked = stack.pop()
            if node in places:
                continue
            if walked:
                places[node] = len(made.nodes)
                made.nodes.append(node)
                made.references.append(tuple(made.refer(calls[node], places, inputs)))
                continue
            stack.append((node, True))
            behind = (n for n in calls[node].operands if n in own and n not in places)
            stack.extend((n, False) for n in reversed(list(behind)))
        made.inputs = list(inputs)
        return made

    @staticmethod
    def refer(
        call: Call, places: Mapping[Node, int], inputs: dict[Node, int]
    ) -> Iterator[tuple[bool, int]]:
        for node in call.operands:
            if node in places:
                yield True, places[node]
            else:
                yield False, inputs.setdefault(node, len(inputs))

    @cached_property
    def key(self) -> object:
        own = tuple(self.texts[node] for node in self.nodes)
        return own, tuple(self.references), tuple(map(_form, self.inputs))

    def match(self, end: Node) -> Match | None:
        """The same structure behind another end."""
        nodes: list[Node | None] = [None] * len(self.nodes)
        inputs: list[Node | None] = [None] * len(self.inputs)
        nodes[-1] = end
        for position in reversed(range(len(nodes))):  # readers before what they read
            if not self.fits(position, nodes[position], nodes, inputs):
                return None
        found = [n for n in nodes if n is not None]
        given = [n for n in inputs if n is not None]
        assert len(found) == len(nodes) and len(given) == len(inputs)
        if len(set(found)) < len(found) or not set(found).isdisjoint(given):
            return None
        same = all(_form(a) == _form(b) for a, b in zip(given, self.inputs, strict=True))
        return Match(found, given) if same else None

    def fits(
        self,
        position: int,
        node: Node | None,
        nodes: list[Node | None],
        inputs: list[Node | None],
    ) -> bool:
        """Whether a node can stand for that of a position; notes what stands for its operands."""
        if node is None or self.texts.get(node) != self.texts[self.nodes[position]]:
            return False
        operands = self.calls[node].operands
        for (is_node, place), operand in zip(self.references[position], operands, strict=True):
            known = nodes if is_node else inputs
            if known[place] is None:
                known[place] = operand
            elif known[place] is not operand:
                return False
        return True

    def with_sides(self, matched: list[Match], sides: Iterable[Node]) -> list[Match]:
        """The pattern and its matches with further nodes, where most matches have them too."""
        middle = matched[len(matched) // 2]
        self.nodes, self.inputs = list(middle.nodes), list(middle.inputs)
        places = {node: k for k, node in enumerate(self.nodes)}
        inputs = {node: k for k, node in enumerate(self.inputs)}
        for side in sides:
            more = dict(inputs)
            references = tuple(self.refer(self.calls[side], places, more))
            if not any(is_node for is_node, _ in references):
                continue  # it hangs on one that was left out
            new = list(more)[len(inputs) :]
            extended = [self.extended(m, side, references, new) for m in matched]
            having = [m for m in extended if m is not None]
            if len(having) < 0.75 * len(matched):
                continue
            matched, inputs = having, more
            places[side] = len(self.nodes)
            self.nodes.append(side)
            self.inputs.extend(new)
        return matched

    def extended(
        self,
        match: Match,
        side: Node,
        references: tuple[tuple[bool, int], ...],
        new: Sequence[Node],
    ) -> Match | None:
        """A match with the node that reads in it what `side` reads in the pattern."""
        first = next(place for is_node, place in references if is_node)
        for user in match.nodes[first].users:
            if self.texts.get(user) != self.texts[side] or user in match.nodes:
                continue
            given: list[Node | None] = [*match.inputs, *(None for _ in new)]
            for (is_node, place), operand in zip(
                references, self.calls[user].operands, strict=True
            ):
                if not is_node and given[place] is None and operand not in match.nodes:
                    given[place] = operand
                if (match.nodes if is_node else given)[place] is not operand:
                    break
            else:
                inputs = [n for n in given if n is not None]
                pairs = zip(inputs[len(match.inputs) :], new, strict=True)
                if all(_form(a) == _form(b) for a, b in pairs):
                    return Match([*match.nodes, user], inputs)
        return None


def _form(node: Node) -> str:
    return form(node.meta.get("val"))
