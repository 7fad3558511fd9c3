"""The dtype rules of the loop IR's operations: what dtype a value has, given its operands.

They follow Inductor's `dtype_propagation.py`. A rule gives None where the dtype is not known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from .ir import Arg, Block, Dtype, Ref


@dataclass(frozen=True)
class Scope:
    """Where the dtypes of an operation's operands are looked up."""

    dtype_of: Callable[[Ref], Dtype]
    buffer_dtype: Callable[[str], Dtype]


Bound = dict[str, Arg]
DtypeRule = Callable[[Bound, Scope], Dtype]


def _arg_dtype(arg: Arg, scope: Scope) -> Arg:
    """The dtype of a value, or the Python number itself: numbers don't widen within a category."""
    return scope.dtype_of(arg) if isinstance(arg, Ref) else arg


def promote(parts: Iterable[Arg]) -> Dtype:
    """The common dtype of dtypes and Python numbers, as torch promotes; None if one is unknown."""
    parts = list(parts)
    if any(p is None for p in parts):
        return None
    dtypes = [p for p in parts if isinstance(p, torch.dtype)]
    dtype = functools.reduce(torch.promote_types, dtypes, torch.bool)
    for number in parts:
        if isinstance(number, float):
            wide = dtype.is_floating_point or dtype.is_complex
            dtype = dtype if wide else torch.get_default_dtype()
        elif isinstance(number, int) and not isinstance(number, bool):
            dtype = torch.int64 if dtype == torch.bool else dtype
    return dtype


def promoted(*names: str, to_float: bool = False) -> DtypeRule:
    def rule(bound: Bound, scope: Scope) -> Dtype:
        dtype = promote(_arg_dtype(bound[n], scope) for n in names)
        if to_float and dtype and not (dtype.is_floating_point or dtype.is_complex):
            return torch.get_default_dtype()
        return dtype

    return rule


def given(name: str) -> DtypeRule:
    def rule(bound: Bound, scope: Scope) -> Dtype:
        dtype = bound[name]
        return dtype if isinstance(dtype, torch.dtype) else None

    return rule


def always(dtype: Dtype) -> DtypeRule:
    return lambda bound, scope: dtype


def of_buffer(bound: Bound, scope: Scope) -> Dtype:
    return scope.buffer_dtype(str(bound["name"]))


def of_block(bound: Bound, scope: Scope) -> Dtype:
    """The block's dtype, which `other` is converted to; `other` decides where it's not known."""
    block = bound["body"]
    inner = _arg_dtype(block.result, scope) if isinstance(block, Block) else None
    return promote([_arg_dtype(bound["other"], scope) if inner is None else inner])


def of_operand(bound: Bound, scope: Scope) -> Dtype:
    ref = bound["value"]
    return scope.dtype_of(ref) if isinstance(ref, Ref) else None
