"""Drop the operations of a block whose value nothing needs any more."""

from __future__ import annotations

from dataclasses import replace

import sympy

from .ir import Block, Op, Ref, operands
from .ops import OPS


def without_dead(block: Block) -> Block:
    """The block with only its effects, and what they and its result depend on.

    Loads go when unused; stores, checks, indirect indices that are checked and divisions of
    integers stay: dropping one would hide an error that the whole loop reports.
    """
    return _sweep(block, set(), set())


def _sweep(block: Block, values: set[int], symbols: set[sympy.Basic]) -> Block:
    """Walk backwards; `values` and `symbols` hold what is needed by what comes after."""
    _need(block.result, values, symbols)
    kept: list[Op] = []
    for op in reversed(block.ops):
        if op.name == "masked":
            inner = op.args[1]
            assert isinstance(inner, Block)
            if op.id not in values and not _has_effect(inner):
                continue
            op = replace(op, args=(op.args[0], _sweep(inner, values, symbols), *op.args[2:]))
        elif op.id not in values and not _effect(op) and not _defines(op, symbols):
            continue
        for arg in operands(op):
            _need(arg, values, symbols)
        kept.append(op)
    return Block(tuple(reversed(kept)), block.result)


def _defines(op: Op, symbols: set[sympy.Basic]) -> bool:
    """Whether an operation gives an index symbol that is needed."""
    return op.name == "indirect_indexing" and op.args[0] in symbols


def _need(arg: object, values: set[int], symbols: set[sympy.Basic]) -> None:
    if isinstance(arg, Ref):
        values.add(arg.id)
    elif isinstance(arg, sympy.Basic) and not isinstance(arg, sympy.Symbol):
        symbols |= arg.free_symbols
    elif isinstance(arg, sympy.Symbol):
        symbols.add(arg)


def _effect(op: Op) -> bool:
    if op.name == "indirect_indexing":
        return bool(op.args[3])
    if op.name in ("floordiv", "mod", "remainder"):  # of integers: raises where it divides by 0
        return op.dtype is None or not op.dtype.is_floating_point
    return OPS[op.name].side_effect


def _has_effect(block: Block) -> bool:
    return any(
        _has_effect(op.args[1])  # type: ignore[arg-type]
        if op.name == "masked"
        else _effect(op)
        for op in block.ops
    )
