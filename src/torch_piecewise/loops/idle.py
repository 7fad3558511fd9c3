"""Parts of a reduction that change no accumulator: zeros in a sum, minus infinity in a maximum."""

from __future__ import annotations

import math

import torch

from .ir import Body, LoopNest, Op, Ref

# What each reduction starts from, where a constant can be that. (Zeros of both signs are the same
# here: a sum starts from 0.0, to which -0.0 adds nothing.)
_STARTS = {"sum": 0, "prod": 1, "any": 0, "xor_sum": 0}
_FREE = frozenset(("constant", "to_dtype", "getitem", "reduction", "store_reduction"))


def adds_nothing(part: LoopNest) -> bool:
    """Whether the loops over the reduction axes of a part need not run. The part is folded."""
    reduced = {axis.symbol for axis in part.axes if axis.reduce}
    inside = [b for b in part.bodies if reduced.intersection((*b.iterate, *b.reduce))]
    return bool(reduced) and all(_only_starts(body) for body in inside)


def _only_starts(body: Body) -> bool:
    constants: dict[int, float] = {}
    for op in body.block.ops:
        value = _constant(op, constants)
        if value is not None:
            constants[op.id] = value
        elif op.name not in _FREE or (op.name == "reduction" and not _is_start(op, constants)):
            return False
    return True


def _constant(op: Op, constants: dict[int, float]) -> float | None:
    """The value of an operation that is 0, 1 or infinite, which every dtype of floats has."""
    value: object = None
    if op.name == "constant":
        value = op.args[0]
    elif op.name == "to_dtype" and isinstance(op.args[0], Ref):
        value = constants.get(op.args[0].id)
    if not isinstance(value, (bool, int, float)) or isinstance(value, complex):
        return None
    return float(value) if value in (0, 1) or math.isinf(value) else None


def _is_start(op: Op, constants: dict[int, float]) -> bool:
    dtype, _, kind, value = op.args
    number = constants.get(value.id) if isinstance(value, Ref) else None
    if number is None:
        return False
    if kind in _STARTS:
        return number == _STARTS[str(kind)]
    if kind not in ("max", "min", "online_softmax_reduce") or not isinstance(dtype, torch.dtype):
        return False
    return dtype.is_floating_point and number == (math.inf if kind == "min" else -math.inf)
