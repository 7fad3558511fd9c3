"""Seams on reduction axes: parts of a reduction that add to the same accumulators."""

import pytest
import torch
import torch.nn.functional as F
from torch import arange, cat, roll, where

import torch_piecewise

from .harness import FLOATS, INTS, Runs, same_as_plain
from .table import columns, rows, tensor

A, B = (20, 150), (37, 53)

# what is reduced: a boundary on the last axis, on the first, on both
SEAMS = {
    "pad": lambda x: F.pad(x, (3, 2), value=1),
    "pad_both": lambda x: F.pad(x, (3, 2, 1, 4), value=1),
    "mask": lambda x: where(columns(x) < 41, x, x * 2 + 1),
    "masked_out": lambda x: where(columns(x) < 41, x, 0),
    "row_mask": lambda x: where(rows(x) < 11, x, x * 2 + 1),
    "roll": lambda x: roll(x, (5, -3), (0, 1)) + x,
    "cat": lambda x: cat([x * 2, x[:, :5] + 1, x], 1),
    "cat_rows": lambda x: cat([x, x[:5] * 3 + 1], 0),
}
# exact reductions give the bits of plain Inductor; the others add in another order
EXACT = {
    "max": lambda x, d: x.amax(d),
    "min": lambda x, d: x.amin(d),
    "any": lambda x, d: (x > 1).any(d),
    "all": lambda x, d: (x < 3).all(d),
    "argmax": lambda x, d: x.argmax(d),
    "argmin": lambda x, d: x.argmin(d),
    "max_and_index": lambda x, d: x.max(d),
    "count": lambda x, d: (x > 0).sum(d),
}
NEAR = {
    "sum": lambda x, d: x.sum(d),
    "mean": lambda x, d: x.float().mean(d) * 2 + 1,
    "prod": lambda x, d: (x * 0.01 + 1).prod(d),
    "var": lambda x, d: x.float().var(d),
    "var_mean": lambda x, d: torch.var_mean(x.float(), d),
    "norm": lambda x, d: x.float().square().sum(d).sqrt(),
    "two": lambda x, d: (x.sum(d), (x * 2 + 1).amax(d)),
}


def over(kinds, seams, dims=(0, 1)):
    """One function of all of them: kernels build side by side."""

    def run(x):
        return [kind(seam(x), d) for kind in kinds for seam in seams for d in dims]

    return run


@pytest.mark.parametrize("shape", [A, B], ids=str)
@pytest.mark.parametrize("kind", EXACT)
def test_exact(kind, shape):
    same_as_plain(over([EXACT[kind]], SEAMS.values()), tensor(shape))


@pytest.mark.parametrize("shape", [A, B], ids=str)
@pytest.mark.parametrize("kind", NEAR)
def test_near(kind, shape):
    same_as_plain(over([NEAR[kind]], SEAMS.values()), tensor(shape), exact=False)
