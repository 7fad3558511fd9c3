"""Conditions over an index in every disguise: narrow types, floats, wraps, signs, nested choices.

Each sets a bit of its own. Many share one nest, so that it has many seams; cut at the wrong place,
or where the type does not allow it, a bit is wrong and says which condition it was.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import arange, where

from .harness import Runs, compiled, same_as_plain
from .table import groups

N = 300  # above 256: narrow types wrap


def halves(j):
    return j.shape[0] // 2


# fmt: off
CONDITIONS = {
    "less": lambda j: j < 40,
    "not_equal": lambda j: j != 17,
    "equal_last": lambda j: j == j.shape[0] - 1,
    "between": lambda j: (j >= 3) & (j < 90),
    "outside": lambda j: (j < 3) | (j > 90),
    "either": lambda j: (j < 100) ^ (j < 200),
    "not": lambda j: ~(j < 33),
    "never": lambda j: j < 0,
    "always": lambda j: j >= 0,
    "past_the_end": lambda j: j < 1000,
    "negated": lambda j: -j > -50,
    "scaled": lambda j: 3 * j + 1 < 100,
    "scaled_equal": lambda j: 3 * j == 100,
    "abs": lambda j: (j - 48).abs() < 10,
    "square": lambda j: (j - 48) * (j - 48) < 100,
    "clamped": lambda j: j.clamp(5, 60) == 60,
    "minimum": lambda j: torch.minimum(j, 2 * j - 30) < 50,
    "sign": lambda j: torch.sign(j - 70) > 0,
    "floor_divided": lambda j: (j - 50) // 7 < 2,
    "floor_negative": lambda j: (j - 50) // 7 == -1,
    "truncated": lambda j: torch.div(j - 50, 7, rounding_mode="trunc") == 0,
    "remainder": lambda j: (j - 50) % 200 < 30,
    "fmod": lambda j: torch.fmod(j - 50, 200) < 30,
    "shifted_bits": lambda j: j >> 6 == 1,
    "masked_bits": lambda j: (j & 255) < 20,
    "wrapped": lambda j: (j + 7) % j.shape[0] < 20,
    "upper_half": lambda j: j >= halves(j),
    "mirrored": lambda j: torch.minimum(j, j.shape[0] - 1 - j) < 4,
    "uint8": lambda j: j.to(torch.uint8) < 40,
    "int8": lambda j: j.to(torch.int8) < 0,
    "int16": lambda j: j.to(torch.int16) * 300 < 0,
    "int32": lambda j: j.to(torch.int32) * 2**24 < 0,
    "float": lambda j: j * 0.1 < 3.0,
    "float_equal": lambda j: j / 3 == 5,
    "float16": lambda j: j.to(torch.float16) * 300 > 60000,
    "bfloat16": lambda j: j.to(torch.bfloat16) > 257,
    "linspace": lambda j: torch.linspace(0, 1, j.shape[0]) < 0.4,
    "sine": lambda j: torch.sin(j * 0.02) > 0,
    "cumulative": lambda j: (j > 5).cumsum(0) < 20,
    "bool_choice": lambda j: where(j < 20, j > 5, j < 200),
    "int_choice": lambda j: where(j < 20, j, 300 - j) < 15,
    "chosen_index": lambda j: where(j < 100, j + 7, j - 7) < 95,
}
CHEAP = [name for name in CONDITIONS if name not in ("linspace", "sine", "cumulative")]
# fmt: on


def chooser(names):
    def run(x):
        j = arange(x.shape[-1])
        for bit, name in enumerate(names):
            x = x + where(CONDITIONS[name](j), 2**bit, 0)
        return x

    return run


def zeros(n):
    return torch.zeros(4, n, dtype=torch.int64)


OPTIONS = {"max_pieces": 500}  # the nests have many seams at once


@pytest.mark.parametrize("names", groups(CHEAP), ids=lambda names: names[0])
def test_many_in_one_nest(names):
    fn = chooser(names)
    wrong = compiled(fn, "seams", options=OPTIONS)(zeros(N)) ^ fn(zeros(N))
    assert [name for bit, name in enumerate(names) if (wrong & 2**bit).any()] == []


@pytest.mark.long
@pytest.mark.parametrize("name", CONDITIONS)
def test_alone(name):
    same_as_plain(chooser([name]), zeros(N))


@pytest.mark.long
@pytest.mark.parametrize("names", groups(CHEAP, 4), ids="-".join)
def test_symbolic_size(names):
    runs = Runs(chooser(names))
    variants = runs(zeros(N), options=OPTIONS, dynamic=True)
    for n in (299, 101, 40, 7):
        runs.check(variants, (zeros(n),))


def test_two_axes_at_once():
    def fn(x):
        i, j = arange(x.shape[0])[:, None], arange(x.shape[1])
        return (
            where(i < j, x * 2, x + 1),
            where((i < 9) & (j >= 50), x * 2, x + 1),
            where(i + j == x.shape[1] - 1, x * 2, x + 1),
            where((i - 30) * (i - 30) + (j - 40) * (j - 40) < 400, x * 2, x + 1),
            where(i * x.shape[1] + j < 1234, x * 2, x + 1),
        )

    same_as_plain(fn, torch.randn(64, 96), options={"max_pieces": 100})


def test_degenerate_boundaries():
    """Sizes 1, boundaries at or past the ends, whole turns."""

    def fn(x, row, column):
        j = arange(x.shape[1])
        shifts = [torch.roll(x, k, 1) + x for k in (0, 96, 97, -1, 95)]
        pads = [F.pad(t, p, value=3) * 2 for t in (row, column) for p in ((1, 0), (0, 96), (2, 2))]
        edge = where(j < 0, x, where(j < 96, x * 2, x * 3)), F.pad(x, (-95, 1)) + 1
        return shifts, pads, edge, torch.roll(row, 3, 0) + row, F.pad(column, (0, 0, -64, 5)) + 1

    args = torch.randn(64, 96), torch.randn(1, 96), torch.randn(64, 1)
    same_as_plain(fn, *args)


def test_index_that_wraps_below_zero():
    """x[j - 50] means the end of x for a negative index."""

    def fn(x):
        j = arange(x.shape[1])
        return x[:, j - 50] + x, x[:, (j * 2).clamp(max=x.shape[1] - 1)] * 2, x[:, j // 2] + 1

    same_as_plain(fn, torch.randn(4, N))


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), -0.0])
@pytest.mark.long
def test_special_values_in_the_padding(value):
    def fn(x):
        y = F.pad(x, (2, 3), value=value)
        return y * 2, y.amax(1), where(y > 0, y, y + 1), y == value, F.pad(y.relu(), (1, 1))

    same_as_plain(fn, torch.randn(64, 96))
