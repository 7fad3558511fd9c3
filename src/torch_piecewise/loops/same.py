"""Which operations of a nest compute the same value."""

from __future__ import annotations

from collections.abc import Sequence

from .ir import Arg, LoopNest, Ref, walk
from .ops import OPS


def same_reductions(nest: LoopNest, bodies: Sequence[str]) -> list[int]:
    """For each reduction of these bodies, in order, the number of the first that is the same."""
    first: dict[object, int] = {}
    same: dict[int, int] = {}

    def canonical(arg: Arg) -> object:
        if isinstance(arg, tuple):
            return tuple(map(canonical, arg))
        if isinstance(arg, Ref):
            return Ref, same.get(arg.id, arg.id)
        return type(arg), arg  # True, 1 and 1.0 are equal, and not the same

    found: list[int] = []
    by_name = {body.name: body for body in nest.bodies}
    for name in bodies:
        for op in walk(by_name[name].block):
            kwargs = tuple((name, canonical(value)) for name, value in op.kwargs)
            key: object = (op.name, canonical(op.args), kwargs)
            if op.name == "masked" or OPS[op.name].side_effect:
                key = op.id
            same[op.id] = first.setdefault(key, op.id)
            if op.name == "reduction":
                found.append(same[op.id])
    return [found.index(operation) for operation in found]
