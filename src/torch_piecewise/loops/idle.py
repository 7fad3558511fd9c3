"""Parts of a reduction that change no accumulator: zeros in a sum, minus infinity in a maximum."""

from __future__ import annotations

import math

import torch

from .ir import Body, LoopNest, Op, Ref

# What each reduction starts from, where a constant can be that. (Zeros of both signs are the same
# here: a sum starts from 0.0, to which -0.0 adds nothing.)
_STARTS = {"sum": 0, "prod": 1, "any": 0, "xor_sum": 0}
_FREE = frozenset(("constant", "reduction", "store_reduction"))


def adds_nothing(part: LoopNest) -> bool:
    """Whether the loops over the reduction axes of a part need not run. The part is folded."""
    reduced = {axis.symbol for axis in part.axes if axis.reduce}
    inside = [b for b in part.bodies if reduced.intersection((*b.iterate, *b.reduce))]
    return bool(reduced) and all(_only_starts(body) for body in inside)


def _only_starts(body: Body) -> bool:
    constants = {op.id: op for op in body.block.ops if op.name == "constant"}
    return all(
        op.name in _FREE and (op.name != "reduction" or _is_start(op, constants))
        for op in body.block.ops
    )


def _is_start(op: Op, constants: dict[int, Op]) -> bool:
    dtype, _, kind, value = op.args
    if not isinstance(value, Ref) or value.id not in constants:
        return False
    number = constants[value.id].args[0]
    if not isinstance(number, (bool, int, float)):
        return False
    if kind in _STARTS:
        return number == _STARTS[str(kind)]
    if kind not in ("max", "min") or not isinstance(dtype, torch.dtype):
        return False
    return dtype.is_floating_point and number == (-math.inf if kind == "max" else math.inf)
