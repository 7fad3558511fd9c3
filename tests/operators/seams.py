"""Seams for any operator: its input made anew by padding, or by joining parts, in the same shape.

`padded` and `joined` change the values, each part by arithmetic of its own, so that a piece that
takes the wrong part, or the wrong place in it, gives a wrong result. They stay within the range of
the input's own values. Where that still leaves what the operator is defined for (a matrix that has
to be positive definite), `padded_zeros` and `joined_zeros` add a seam that changes no value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

LOW_PRECISION = (torch.bfloat16, torch.float16)
LEAST = 3  # elements along an axis that can be cut


@dataclass(frozen=True)
class Facts:
    """What a seam needs to know of an input, as constants of the traced program."""

    pad_dim: int
    cat_dim: int
    low: float | int | bool
    high: float | int | bool
    exact: bool  # steps that round nothing, also when the program runs on a wider copy

    @staticmethod
    def of(x: Tensor) -> Facts:
        """Padding goes along the last axis that is long enough, joining along another if any is."""
        long = [d for d in range(x.dim()) if x.shape[d] >= LEAST]
        known = x.detach()
        if known.is_floating_point():
            known = known.nan_to_num()
        low, high = known.flatten()[0].item(), known.flatten()[-1].item()
        if x.dtype != torch.bool:
            low, high = known.min().item(), known.max().item()
        return Facts(long[-1], long[0], low, high, x.dtype in LOW_PRECISION)


Seam = Callable[[Tensor, Facts], Tensor]


def can_be_cut(x: Tensor) -> bool:
    return x.layout == torch.strided and any(n >= LEAST for n in x.shape) and x.numel() > 0


def padded(x: Tensor, facts: Facts) -> Tensor:
    """The front third is the largest value of the input, the rest what was there, halved."""
    dim, cut = facts.pad_dim, max(1, x.shape[facts.pad_dim] // 3)
    return _pad(_changed(x.narrow(dim, cut, x.shape[dim] - cut), facts), dim, cut, facts.high)


def joined(x: Tensor, facts: Facts) -> Tensor:
    """The two parts change places, and one of them its values."""
    dim, cut = facts.cat_dim, x.shape[facts.cat_dim] // 2 + 1
    front, back = x.narrow(dim, 0, cut), x.narrow(dim, cut, x.shape[dim] - cut)
    return torch.cat([_kept(back, facts), _changed(front, facts)], dim)


def padded_zeros(x: Tensor, facts: Facts) -> Tensor:
    dim, cut = facts.pad_dim, max(1, x.shape[facts.pad_dim] // 3)
    return _plus(x, _pad(_zeros(x.narrow(dim, cut, x.shape[dim] - cut)), dim, cut, 0))


def joined_zeros(x: Tensor, facts: Facts) -> Tensor:
    dim, cut = facts.cat_dim, x.shape[facts.cat_dim] // 2 + 1
    front, back = x.narrow(dim, 0, cut), x.narrow(dim, cut, x.shape[dim] - cut)
    return _plus(x, torch.cat([_zeros(front), -_zeros(back) if _signed(x) else _zeros(back)], dim))


def _pad(x: Tensor, dim: int, front: int, value: float | int | bool) -> Tensor:
    return F.pad(x, [0, 0] * (x.dim() - 1 - dim) + [front, 0], value=value)


def _changed(x: Tensor, facts: Facts) -> Tensor:
    """Other values, between the extremes of the input.

    Those of a low precision come from steps that are exact: eager mode would round after each, a
    compiled loop after the last, and an operator that looks for equal values would see others.
    """
    if x.dtype == torch.bool:
        return ~x
    if facts.exact:
        return (x * 0.5).clamp(facts.low, facts.high)
    if x.is_floating_point():
        return (x + facts.high) * 0.5
    return facts.low + (facts.high - x)


def _kept(x: Tensor, facts: Facts) -> Tensor:
    """The same values, which no compiler knows to be the same."""
    if x.dtype == torch.bool:
        return x & x.logical_or(x)
    return x.clamp(facts.low, facts.high)


def _zeros(x: Tensor) -> Tensor:
    return x & ~x if x.dtype == torch.bool else x * 0


def _plus(x: Tensor, zeros: Tensor) -> Tensor:
    return x ^ zeros if x.dtype == torch.bool else x + zeros


def _signed(x: Tensor) -> bool:
    return x.dtype not in (torch.bool, torch.uint8)


def both(x: Tensor, facts: Facts) -> Tensor:
    return joined(padded(x, facts), facts)


def both_zeros(x: Tensor, facts: Facts) -> Tensor:
    return joined_zeros(padded_zeros(x, facts), facts)


# strong ones first: the next is for where these leave what an operator is defined for
SEAMS: dict[str, tuple[Seam, Seam]] = {
    "pad": (padded, padded_zeros),
    "cat": (joined, joined_zeros),
    "both": (both, both_zeros),
}
