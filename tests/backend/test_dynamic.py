"""Symbolic sizes: one compile serves several sizes, seams at symbolic places included."""

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounterWithBackend

from .harness import BACKEND, Runs, compiled, plain
from .table import CASES, groups, joined

FAST = ["pad", "roll_two", "nested", "border"]
SIZED = [case.name for case in CASES.values() if case.sizes]


def check_sizes(names, dtype=torch.float32, splits=("seams",)):
    cases = [CASES[name] for name in names]
    exact = all(case.exact_in(dtype) for case in cases)
    runs = Runs(joined(cases), exact=exact, splits=splits)

    def args(grow):
        return [a for i, case in enumerate(cases) for a in case.args(dtype, grow, seed=i)]

    torch._dynamo.reset()
    variants = {"plain": plain(runs.fn, dynamic=True)}
    variants |= {split: compiled(runs.fn, split, dynamic=True) for split in splits}
    for grow in (0, 1, 12, 64):
        runs.check(variants, args(grow))


@pytest.mark.parametrize("names", groups(FAST, 5), ids="-".join)
def test_fast(names):
    check_sizes(names)


@pytest.mark.long
@pytest.mark.parametrize("names", groups(SIZED, 4), ids="-".join)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_wide(names, dtype):
    if names := [name for name in names if CASES[name].takes(dtype)]:
        check_sizes(names, dtype, splits=("auto", "seams"))


def shifted(x):
    y = torch.roll(x, 3, 1) + F.pad(x, (1, -1))
    return torch.cat([y, y * 2], 1) * 2, x.shape[1] * 2


def test_marked_sizes_compile_once():
    counter = CompileCounterWithBackend(BACKEND)
    call = torch.compile(shifted, backend=counter)
    first = torch.randn(64, 96)
    torch._dynamo.mark_dynamic(first, 1, min=2, max=400)
    for x in (first, torch.randn(64, 30), torch.randn(64, 17), torch.randn(64, 333)):
        got, size = call(x)
        torch.testing.assert_close(got, shifted(x)[0])
        assert size == 2 * x.shape[1]
    assert counter.frame_count == 1


def test_same_number_of_compiles_as_plain():
    """Guards: whatever sizes come, the backend compiles as often as plain Inductor."""
    counts = {}
    for backend in ("inductor", BACKEND):
        torch._dynamo.reset()
        counter = CompileCounterWithBackend(backend)
        call = torch.compile(shifted, backend=counter)
        for n in (96, 50, 200):
            x = torch.randn(64, n)
            torch.testing.assert_close(call(x)[0], shifted(x)[0])
        counts[backend] = counter.frame_count
    assert len(set(counts.values())) == 1, counts


def test_size_dependent_mask_and_small_sizes():
    """Boundaries that meet or cross when the size gets small."""

    def fn(x):
        j = torch.arange(x.shape[1])
        inner = (j >= 5) & (j < x.shape[1] - 5)
        return torch.where(inner, x * 2, x + 1), F.pad(x, (4, 4)) * torch.roll(
            F.pad(x, (8, 0)), 6, 1
        )

    runs = Runs(fn)
    variants = {"plain": plain(fn, dynamic=True), "seams": compiled(fn, "seams", dynamic=True)}
    for n in (96, 11, 5, 0):
        runs.check(variants, (torch.randn(64, n),))


def test_data_dependent_sizes():
    def fn(x):
        at = x.nonzero().squeeze(1)
        kept = x[at]
        return F.pad(kept, (1, 2)) * 2, torch.cat([kept, x]) + 1

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        runs = Runs(fn)
        variants = {"plain": plain(fn), "seams": compiled(fn, "seams")}
        for k in (2, 3):
            x = torch.arange(90.0) % k
            runs.check(variants, (x,))


def test_dynamic_training():
    from .test_training import gradients

    def fn(x):
        return torch.roll(x * x, 2, 1) + F.pad(x, (1, -1)) * torch.cat([x[:, 5:], x[:, :5]], 1)

    torch._dynamo.reset()
    calls = {"plain": plain(fn, dynamic=True), "seams": compiled(fn, "seams", dynamic=True)}
    for shape in ((64, 96), (30, 70), (9, 17)):
        args = [torch.randn(shape)]
        expected = gradients(fn, args)
        for name, call in calls.items():
            torch.testing.assert_close(gradients(call, args), expected, msg=lambda m, n=name: n + m)


def test_seam_at_a_size_from_data():
    """The boundary's place is read from a tensor."""

    def fn(x, where):
        n = where.item()
        torch._check(n >= 0)
        torch._check(n < 60)
        y = F.pad(x, (n, 1)) * 2
        return y, torch.where(torch.arange(96) < n, x, x + 1), torch.roll(x, n, 1) * 2 + x

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        runs = Runs(fn)
        variants = {"plain": plain(fn), "seams": compiled(fn, "seams")}
        for n in (0, 1, 7, 59):
            runs.check(variants, (torch.randn(64, 96), torch.tensor(n)))
