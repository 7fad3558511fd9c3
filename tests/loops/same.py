"""Equality as the loop IR's tests need it: nests by structure, tensors by bits."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch


def alike(a: Any, b: Any) -> bool:
    """Structural equality that tells 1 from True and 1.0, and takes NaN for itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    if dataclasses.is_dataclass(a):
        fields = dataclasses.fields(a)
        return all(alike(getattr(a, f.name), getattr(b, f.name)) for f in fields)
    if isinstance(a, float):
        return repr(a) == repr(b)
    return bool(a == b)


def differing(
    expected: dict[str, torch.Tensor], got: dict[str, torch.Tensor], exact: bool = True
) -> list[str]:
    """The names of the buffers that differ: in a bit, or beyond rounding where not `exact`."""
    return [name for name in expected if not _equal(expected[name], got[name], exact)]


def _equal(a: torch.Tensor, b: torch.Tensor, exact: bool) -> bool:
    if not a.dtype.is_floating_point:
        return torch.equal(a, b)
    if not exact:
        return torch.allclose(a, b, rtol=1e-9, atol=1e-9, equal_nan=True)
    zeros = torch.signbit(a) == torch.signbit(b)
    return bool((((a == b) & zeros) | (a.isnan() & b.isnan())).all())
