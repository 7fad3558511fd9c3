"""Pointwise operators, cut along every dim."""

from __future__ import annotations

import pytest
import torch

from .rules import check

X, Y = torch.randn(7, 6), torch.randn(6)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: x + y,
        lambda x, y: torch.where(x > 0, x, y),
        lambda x, y: x * 2.5,
        lambda x, y: torch.ops.aten.gelu.default(x),
        lambda x, y: x.to(torch.float64),
        lambda x, y: x[:, :1] * x,
        lambda x, y: torch.ops.aten.copy.default(x, y),
        lambda x, y: torch.complex(x, x),
        lambda x, y: torch.polar(x, y + x),
        lambda x, y: torch.ops.aten.clamp.default(x, 0, 1),
    ],
)
def test_pointwise(fn):
    check(fn, X, Y)


def test_what_draws_random_numbers_is_refused():
    check(lambda x: torch.ops.aten.bernoulli.p(x, 0.5), X, refused={0: "random", 1: "random"})
