"""Which operations of a nest compute the same value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .ir import LoopNest, Op, Ref, walk

APART = frozenset(("masked", "store", "store_reduction"))


@dataclass
class Numbers:
    """Numbers operations, seen in order, by the first that computes the same."""

    _first: dict[object, int] = field(default_factory=dict)
    _same: dict[int, int] = field(default_factory=dict)

    def first(self, op: Op, *where: object) -> int:
        """The id of the first operation like this one in the same place, its own where it is new.

        A store is never the same, nor is a block under a mask.
        """
        key: object = (op.name, self._canonical((op.args, op.kwargs)), where)
        if op.name in APART:
            key = op.id
        return self._same.setdefault(op.id, self._first.setdefault(key, op.id))

    def _canonical(self, arg: object) -> object:
        if isinstance(arg, tuple):
            return tuple(map(self._canonical, arg))
        if isinstance(arg, Ref):
            return Ref, self._same.get(arg.id, arg.id)
        return type(arg), arg  # True, 1 and 1.0 are equal, and not the same


def same_reductions(nest: LoopNest, bodies: Sequence[str]) -> list[int]:
    """For each reduction of these bodies, in order, the number of the first that is the same."""
    numbers, found = Numbers(), []
    by_name = {body.name: body for body in nest.bodies}
    for name in bodies:
        for op in walk(by_name[name].block):
            first = numbers.first(op)
            if op.name == "reduction":
                found.append(first)
    return [found.index(operation) for operation in found]
