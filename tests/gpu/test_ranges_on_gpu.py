"""The user's own ranges on a GPU: pieces compiled apart, the whole equal to eager mode."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.backend.test_ranges import CASES, IMAGE, ROWS, TRAINED, agree, compiled, gradients
from torch import nn

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: torch.cuda.is_available() is False"
)


@pytest.mark.parametrize("stitch", ["global", "streaming"])
@pytest.mark.parametrize("name", CASES)
def test_cut_along_a_dim(name, stitch):
    case, dim = CASES[name]
    agree(case, ROWS.cuda(), ranges=[0, 1, 34, None], dim=dim, stitch=stitch)


@pytest.mark.parametrize("dim", range(4))
def test_convolutions_read_beyond_their_range(dim):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 3, stride=2, padding=1)
    )
    exact = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    with torch.no_grad(), exact:
        agree(model.cuda().eval(), IMAGE.cuda(), ranges=2, dim=dim)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention(dim, dtype):
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True) * 2

    args = [torch.randn(3, 4, 96, 64, device="cuda", dtype=dtype) for _ in range(3)]
    got, want = compiled(attend, ranges=[0, 1, None], dim=dim)(*args), attend(*args)
    near = 1e-4 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(got, want, rtol=near, atol=near)


@pytest.mark.parametrize("name", TRAINED)
def test_training(name):
    args = [ROWS.cuda(), torch.randn(64, 32, device="cuda")]
    got = gradients(compiled(TRAINED[name], ranges=3), args)
    for a, b in zip(got, gradients(TRAINED[name], args), strict=True):
        if b is not None:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_a_size_that_is_not_known():
    def fn(x):
        return torch.softmax(x.relu() * 2 + 1, 1)

    step = compiled(fn, dynamic=True, ranges=[0, 1000, 2000, None])
    for rows in (3000, 1500, 900, 7):
        x = torch.randn(rows, 8, device="cuda")
        torch.testing.assert_close(step(x), fn(x))


def test_a_result_is_never_changed_by_a_later_call():
    step = compiled(lambda x: x.relu() * 3, ranges=3)
    x = torch.randn(512, 512, device="cuda")
    first = step(x)
    kept = first.clone()
    with torch.cuda.stream(torch.cuda.Stream()):
        step(x + 1)
    for k in range(4):
        step(x + k)
    torch.cuda.synchronize()
    assert torch.equal(first, kept)


def test_an_intermediate_of_a_wide_region_is_tile_sized():
    """The memory between operators of one region is that of a piece, not of the whole."""

    def chain(x):
        for _ in range(3):
            x = torch.cumsum(torch.softmax(x, 1), 1)
        return x

    x = torch.randn(8192, 1024, device="cuda")
    step = compiled(chain, ranges=16, stitch="streaming")
    torch.testing.assert_close(step(x), chain(x), rtol=1e-4, atol=1e-4)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(x)
    assert torch.cuda.max_memory_allocated() - before < 1.5 * x.nbytes  # the result, and tiles
