"""Reductions of the interpreter: one element after another, in the order of the loops.

The order is fixed, so a range of the iteration axes gives the same bits as the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from . import arithmetic as arith

Values = Sequence[torch.Tensor]


def reduce(kind: str, dtype: torch.dtype, values: Values) -> tuple[torch.Tensor, ...]:
    """Reduces dimension 0 of every tensor of `values`; gives as many values as `kind` has.

    `values` holds one tensor, but three for welford_combine (mean, m2, weight), and two for an
    argmax or argmin that returns the second one's value where the first is extreme. Over nothing,
    the result is what the reduction starts from.
    """
    return _KINDS[kind](dtype, values)


Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Start = Callable[[torch.dtype], float | int | bool]


def _lowest(dtype: torch.dtype) -> float | int | bool:
    if dtype == torch.bool:
        return False
    return -torch.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _highest(dtype: torch.dtype) -> float | int | bool:
    if dtype == torch.bool:
        return True
    return torch.inf if dtype.is_floating_point else torch.iinfo(dtype).max


def _fold(
    step: Step, start: Start, cast: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> Callable[[torch.dtype, Values], tuple[torch.Tensor, ...]]:
    def run(dtype: torch.dtype, values: Values) -> tuple[torch.Tensor, ...]:
        elements = (cast(values[0]) if cast else values[0]).to(dtype)
        result = torch.full(elements.shape[1:], start(dtype), dtype=dtype)
        for element in elements:
            result = step(result, element)
        return (result,)

    return run


def _arg(
    better: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[torch.dtype, Values], tuple[torch.Tensor, ...]]:
    """The least index of the extreme element; a NaN is more extreme than any number.

    The least, and not that of the element met first: parts of a reduction over several axes meet
    their elements in another order than the whole.
    """

    def run(dtype: torch.dtype, values: Values) -> tuple[torch.Tensor, ...]:
        elements = values[0]
        result = torch.zeros(elements.shape[1:], dtype=dtype)
        best = None
        for place, element in enumerate(elements):
            index = values[1][place] if len(values) > 1 else torch.tensor(place)
            if best is None:
                best, result = element, index.to(dtype).expand_as(result)
                continue
            index = index.to(dtype)
            wins = better(element, best) | (element.isnan() & ~best.isnan())
            ties = (element == best) | (element.isnan() & best.isnan())
            wins |= ties & (index < result)
            best = torch.where(wins, element, best)
            result = torch.where(wins, index, result)
        return (result,)

    return run


def _welford_reduce(dtype: torch.dtype, values: Values) -> tuple[torch.Tensor, ...]:
    elements = values[0].to(dtype)
    mean = torch.zeros(elements.shape[1:], dtype=dtype)
    m2 = torch.zeros_like(mean)
    for count, element in enumerate(elements, start=1):
        delta = element - mean
        mean = mean + delta / count
        m2 = m2 + delta * (element - mean)
    return mean, m2, torch.full_like(mean, len(elements))


def _welford_combine(dtype: torch.dtype, values: Values) -> tuple[torch.Tensor, ...]:
    means, m2s, weights = (v.to(dtype) for v in values)
    mean = torch.zeros(means.shape[1:], dtype=dtype)
    m2, weight = torch.zeros_like(mean), torch.zeros_like(mean)
    for other_mean, other_m2, other_weight in zip(means, m2s, weights, strict=True):
        total = weight + other_weight
        share = torch.where(total == 0, 0, other_weight / total)
        delta = other_mean - mean
        mean = mean + delta * share
        m2 = m2 + other_m2 + delta * delta * weight * share
        weight = total
    return mean, m2, weight


def _online_softmax(dtype: torch.dtype, values: Values) -> tuple[torch.Tensor, ...]:
    (highest,) = _KINDS["max"](dtype, values)
    (total,) = _KINDS["sum"](dtype, [torch.exp(values[0].to(dtype) - highest)])
    return highest, total


def _nonzero(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.bool)


_KINDS: dict[str, Callable[[torch.dtype, Values], tuple[torch.Tensor, ...]]] = {
    "sum": _fold(torch.add, lambda dtype: 0),
    "prod": _fold(torch.mul, lambda dtype: 1),
    "max": _fold(arith.maximum, _lowest),
    "min": _fold(arith.minimum, _highest),
    "fmax": _fold(torch.fmax, _lowest),
    "any": _fold(torch.logical_or, lambda dtype: False, _nonzero),
    "xor_sum": _fold(torch.bitwise_xor, lambda dtype: 0),
    "argmax": _arg(torch.gt),
    "argmin": _arg(torch.lt),
    "welford_reduce": _welford_reduce,
    "welford_combine": _welford_combine,
    "online_softmax_reduce": _online_softmax,
}
