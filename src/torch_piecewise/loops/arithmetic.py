"""How the scalar operations of the loop IR compute on torch tensors, where torch alone differs.

Operands are tensors or Python numbers. Tensors have at least one dimension, so that torch promotes
them by dtype alone. Integer division by zero, which torch raises for, gives 0 here: the points
where it happens may be masked off, and elsewhere it is undefined anyway.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

Value = Any  # a tensor or a Python number


def identity(x: Value) -> Value:
    return x


def tensor(x: Value) -> torch.Tensor:
    """A Python number as a tensor of one element; tensors as they are."""
    return x if isinstance(x, torch.Tensor) else torch.tensor([x])


def sub(x: Value, y: Value) -> Value:
    """Subtraction; torch refuses it for bool, where C++ would compute in int."""
    x = tensor(x)
    both_bool = x.dtype == torch.bool and tensor(y).dtype == torch.bool
    return torch.logical_xor(x, tensor(y)) if both_bool else torch.sub(x, y)


def maximum(x: Value, y: Value) -> torch.Tensor:
    """As Inductor's C++ has it: of 0.0 and -0.0 the second one, which torch leaves open."""
    x = tensor(x)
    return torch.where((x > y) | x.isnan(), x, y)


def minimum(x: Value, y: Value) -> torch.Tensor:
    x = tensor(x)
    return torch.where((x < y) | x.isnan(), x, y)


def relu(x: Value) -> torch.Tensor:
    x = tensor(x)
    return torch.where(x < 0, torch.zeros_like(x), x)


def in_float(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with integers converted to the float dtype of the result first."""

    def run(*operands: Value) -> Any:
        tensors = [tensor(x) for x in operands]
        dtype = functools.reduce(torch.promote_types, (x.dtype for x in tensors))
        if not (dtype.is_floating_point or dtype.is_complex):
            dtype = torch.get_default_dtype()
        return function(*(x.to(dtype) for x in tensors))

    return run


def as_bool(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: function(x, y).to(torch.bool)


def to_dtype(
    x: Value, dtype: torch.dtype, src_dtype: Any = None, use_compute_types: Any = True
) -> torch.Tensor:
    return tensor(x).to(dtype)


def bitcast(x: Value, dtype: torch.dtype, src_dtype: torch.dtype) -> torch.Tensor:
    return tensor(x).to(src_dtype).contiguous().view(dtype)


def round_to(
    function: Callable[[torch.Tensor], torch.Tensor],
    x: Value,
    dtype: torch.dtype,
    src_dtype: Any = None,
    use_compute_types: Any = True,
) -> torch.Tensor:
    return function(tensor(x)).to(dtype)


def where(condition: Value, x: Value, y: Value) -> torch.Tensor:
    return torch.where(tensor(condition).to(torch.bool), x, y)


def fma(x: Value, y: Value, z: Value) -> torch.Tensor:
    """x * y + z, rounded once where f64 is wide enough to tell; f64 itself is rounded twice."""
    x = tensor(x)
    dtype = torch.result_type(x * y, z)
    if not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    wide: torch.Tensor = x.to(torch.float64) * y + z
    return wide.to(dtype)


def _integer_division(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def run(x: Value, y: Value) -> torch.Tensor:
        x, y = tensor(x), tensor(y)
        if x.dtype.is_floating_point or y.dtype.is_floating_point:
            return function(x, y)
        zero = y == 0
        return torch.where(zero, 0, function(x, torch.where(zero, 1, y)))

    return run


fmod = _integer_division(torch.fmod)
remainder = _integer_division(torch.remainder)
floordiv = _integer_division(lambda x, y: torch.div(x, y, rounding_mode="floor"))
truncdiv = _integer_division(lambda x, y: torch.div(x, y, rounding_mode="trunc"))


def polygamma(n: Value, x: Value) -> torch.Tensor:
    """polygamma with an order per point; torch takes one order for all."""
    n, x = torch.broadcast_tensors(tensor(n), tensor(x))
    x = x if x.dtype.is_floating_point else x.to(torch.get_default_dtype())
    result = torch.full_like(x, torch.nan)
    for order in n.unique().tolist():
        result = torch.where(n == order, torch.special.polygamma(int(order), x), result)
    return result
