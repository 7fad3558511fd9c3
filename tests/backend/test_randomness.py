"""Random numbers and autocast: a seed gives what it gives under plain Inductor."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from .harness import same_as_plain

X = (64, 96)


def noisy(x):
    y = F.dropout(F.pad(x, (1, 2)), 0.3, training=True) * 2
    return y, torch.roll(torch.rand_like(x), 3, 1) + x, F.pad(torch.randn(X), (1, 1)) + 1


@pytest.mark.parametrize("fallback", [False, pytest.param(True, marks=pytest.mark.long)])
def test_same_seed_same_numbers(fallback):
    options = {"fallback_random": fallback}
    same_as_plain(noisy, torch.randn(X), options=options, eager=fallback)


def test_randint_bernoulli_and_permutation():
    def fn(x):
        at = torch.randint(0, 96, (96,))
        drawn = torch.bernoulli(F.pad(x, (1, 1), value=0.5))
        return x[:, at] + torch.roll(x, 1, 0), drawn, torch.randint(0, 9, X).roll(1, 0) + 1

    same_as_plain(fn, torch.rand(X), eager=False)


@pytest.mark.parametrize("inside", [True, pytest.param(False, marks=pytest.mark.long)])
def test_autocast(inside):
    def fn(x, w):
        return torch.roll(x @ w, 3, 1) * 2 + F.pad(x, (1, -1))[:, :64], F.pad(x @ w, (1, 1))

    def entered(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            return fn(x, w)

    args = torch.randn(64, 96), torch.randn(96, 64)
    if inside:
        same_as_plain(entered, *args, exact=False, eager=False)
    else:
        context = partial(torch.autocast, "cpu", torch.bfloat16)
        same_as_plain(fn, *args, exact=False, eager=False, context=context)


@pytest.mark.long
def test_default_dtype():
    def fn(x):
        return F.pad(torch.ones(X), (1, 2)) + torch.roll(torch.zeros(64, 99) + x, 1, 1) * 0.1

    torch.set_default_dtype(torch.float64)
    try:
        same_as_plain(fn, torch.randn(64, 99, dtype=torch.float32))
    finally:
        torch.set_default_dtype(torch.float32)
