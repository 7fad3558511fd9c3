"""The table of cases: same values, dtypes and strides as plain Inductor, and near eager."""

import pytest
import torch

from .harness import FLOATS, INTS, SPLITS, Runs, same_as_plain
from .table import CASES, FAST, groups, joined, tensor

OTHERS = [d for d in FLOATS + INTS if d != torch.float32]


def takers(dtype, names=tuple(CASES)):
    return [name for name in names if CASES[name].takes(dtype)]


def sweep(names, dtype, splits=SPLITS, **kwargs):
    """All at once where possible; alone, to name the culprit, where that fails."""
    cases = [CASES[name] for name in names]
    args = [a for i, case in enumerate(cases) for a in case.args(dtype, seed=i)]
    exact = all(case.exact_in(dtype) for case in cases)
    try:
        same_as_plain(joined(cases), *args, exact=exact, splits=splits, **kwargs)
    except Exception as error:
        if len(names) == 1:
            raise AssertionError(f"case {names[0]!r}, {dtype}") from error
        for name in names:
            sweep([name], dtype, splits, **kwargs)
        raise


def by_exactness(names):
    """Groups in which the bits are all compared, or none."""
    exact = [name for name in names if CASES[name].exact]
    return groups(exact) + groups([name for name in names if name not in exact])


@pytest.mark.parametrize("names", by_exactness(FAST), ids="-".join)
def test_fast(names):
    sweep(names, torch.float32)


@pytest.mark.parametrize("dtype", OTHERS, ids=str)
def test_dtypes(dtype):
    sweep(["pad"], dtype, splits=("seams",))


@pytest.mark.long
@pytest.mark.parametrize("names", by_exactness(CASES), ids="-".join)
@pytest.mark.parametrize("dtype", FLOATS + INTS, ids=str)
def test_wide(names, dtype):
    if names := takers(dtype, names):
        sweep(names, dtype)


@pytest.mark.long
def test_complex_is_left_as_plain():
    def fn(x):
        return torch.roll(x, 3, 1) * 2 + torch.nn.functional.pad(x, (1, -1))

    same_as_plain(fn, tensor((64, 96), torch.complex64), exact=False)


def test_empty_and_scalar():
    def fn(empty, zero, scalar, number):
        padded = torch.nn.functional.pad(empty, (1, 2)) + number
        whole = torch.nn.functional.pad(empty.t(), (3, 4), value=2) * scalar
        return padded, whole, torch.cat([empty, empty]), zero + number, scalar * 2, number + 1

    args = (torch.randn(0, 96), torch.randn(64, 0), torch.tensor(2.5), 3)
    same_as_plain(fn, *args)


def test_float_scalars_in_and_out():
    def fn(x, factor, shift):
        return torch.roll(x, shift, 0) * factor, factor * 2, shift, None, "text"

    runs = Runs(fn)
    variants = runs(torch.randn(64, 96), 2.5, 3)
    runs.check(variants, (torch.randn(64, 96), 1.5, -7))
