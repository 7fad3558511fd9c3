"""More of what is cut, end to end: equal to eager mode, strides as plain Inductor's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

pytestmark = pytest.mark.long

Q, K, V = (torch.randn(4, 3, 10, 8) for _ in range(3))
X, W = torch.randn(12, 10), torch.randn(10, 4)
IMAGE = torch.randn(4, 6, 12, 10)
FILTERS = torch.randn(6, 6, 3, 3)
LAST = {"memory_format": torch.channels_last}
HELD = torch.randn(12, 10)


def run(fn, args, trained):
    own = [a.detach().requires_grad_() if trained and a.is_floating_point() else a for a in args]
    found = tree_leaves(fn(*own))
    if not trained:
        return found
    ends = [o for o in found if isinstance(o, torch.Tensor) and o.requires_grad]
    entering = [torch.linspace(-1, 1, o.numel()).view(o.shape).to(o.dtype) for o in ends]
    torch.autograd.backward(ends, entering)
    return [*found, *(a.grad for a in own)]


def check(fn, *args, dim=0, ranges=3, trained=False, dynamic=None):
    """Of tensors; also that an argument that is returned is the same object, and of any size."""
    want, plain = run(fn, args, trained), run(torch.compile(fn, dynamic=dynamic), args, trained)
    torch._dynamo.reset()
    options = {"ranges": ranges, "dim": dim}
    compiled = torch.compile(fn, backend="piecewise", options=options, dynamic=dynamic)
    for got, eager, other in zip(run(compiled, args, trained), want, plain, strict=True):
        half = isinstance(eager, torch.Tensor) and eager.dtype in (torch.half, torch.bfloat16)
        within = 2e-2 if half else 1e-4
        torch.testing.assert_close(got, eager, rtol=within, atol=within)
        if isinstance(got, torch.Tensor):
            assert got.stride() == other.stride() and got.dtype == other.dtype
            assert not [a for a in args if (got is a) != (eager is a)] or trained


MASKS = {
    "of truth values": torch.rand(10, 10) > 0.3,
    "of the batch": torch.randn(4, 1, 10, 10),
    "of heads": torch.randn(1, 3, 10, 10),
    "of all": torch.rand(4, 3, 10, 10) > 0.3,
    "of columns": torch.rand(4, 1, 1, 10) > 0.2,
    "of rows": torch.randn(10, 1).expand(10, 10),
}


@pytest.mark.parametrize("dim", range(3))
@pytest.mark.parametrize("name", MASKS)
def test_masks_of_attention(name, dim):
    mask = MASKS[name].clone()
    if mask.dtype == torch.bool:
        mask[..., 0] = True
    attend = F.scaled_dot_product_attention
    check(lambda q, k, v, m: attend(q, k, v, attn_mask=m) * 2, Q, K, V, mask, dim=dim)


@pytest.mark.parametrize("dim", range(4))
def test_channels_last(dim):
    image, filters = IMAGE.to(**LAST), FILTERS.to(**LAST)
    check(lambda x, w: F.relu(F.conv2d(x, w, padding=1)) + 1, image, filters, dim=dim)
    check(lambda x: (x.relu() + 1).sin(), image, dim=dim)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "nearest-exact"])
def test_upsampling(mode):
    for dim in (1, 2):
        check(lambda x: F.interpolate(x, scale_factor=2, mode=mode) + 1, IMAGE, dim=dim)


def in_half_precision(x, w):
    with torch.autocast("cpu", torch.bfloat16):
        return (x @ w).relu()


FURTHER = {
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=2, stride=2), IMAGE[0], torch.randn(5, 12, 5)),
    "conv3d": (lambda x, w: F.conv3d(x, w), IMAGE[None], torch.randn(5, 4, 3, 3, 3)),
    "transposed": (lambda x, w: F.conv_transpose2d(x, w, stride=2), IMAGE, FILTERS),
    "autocast": (in_half_precision, X, W),
    "views": (lambda x: ((y := x.sin()).t(), y, y[2:], x.t(), x.view(-1)), X),
    "inputs and again": (lambda x, y: (z := x + 1, x, y, z), X, HELD),
    "several regions": (lambda x: ((y := x.softmax(0)) + x, y.sum(0), y @ y.t(), y.amax(1)), X),
    "a tensor of the graph": (lambda x: (x + HELD).sin() @ HELD.t(), X),
    "one position": (lambda x: x.sin() + x[:1], X[:1]),
    "nothing": (lambda x: (torch.cat([x, x[:0]]).sin(), x[:, :0] + 1), X),
    "complex numbers": (lambda x: torch.view_as_real(torch.complex(x, x) * (1 + 2j)), X),
    "a transform": (lambda x: torch.fft.fft(x, dim=1).abs(), X),
    "truth values, whole numbers": (lambda x: (x > 0, x.argmax(1), x.to(torch.int32)), X),
    "not contiguous": (lambda x: x.sin() + 1, torch.randn(24, 20)[::2, ::2]),
    "spread": (lambda x: x.sin() + 1, X[:1].expand(12, 10)),
    "reflected": (lambda x: F.pad(x, (2, 2, 1, 1), mode="reflect") + 1, IMAGE),
}


@pytest.mark.parametrize("name", FURTHER)
def test_further(name):
    check(*FURTHER[name])


TRAINED = {
    "product": (lambda x, w: (x @ w).relu(), X, W),
    "normalised": (lambda x, w: F.layer_norm(x, (10,)) @ w, X, W),
    "softmax over what is cut": (lambda x, w: x.softmax(0) @ w, X, W),
    "convolution": (lambda x, w: F.conv2d(x, w, padding=1), IMAGE, FILTERS),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), Q),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", TRAINED)
def test_trained(name, dynamic):
    check(*TRAINED[name], trained=True, dynamic=dynamic)


def test_sizes_as_inputs_and_outputs():
    check(lambda x: (x.sin(), x.shape[0] * 2, x.shape[0]), X, dynamic=True)
    torch._dynamo.reset()
    step = torch.compile(
        lambda x, n: (x * n + n, n + 1), backend="piecewise", options={"ranges": 3}, dynamic=True
    )
    for n in (7, 9):
        got = step(X, n)
        torch.testing.assert_close(got[0], X * n + n)
        assert got[1] == n + 1
