"""Backwards in the user's ranges: weights' gradients are sums over ranges; all of it is cut."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_piecewise


class Attention(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.causal, self.project = causal, nn.Linear(16, 48)

    def forward(self, x):
        batch, rows, _ = x.shape
        q, k, v = self.project(x).view(batch, rows, 3, 4, 4).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return out.transpose(1, 2).reshape(x.shape)


def layers():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def planes():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 4, 3, groups=2),
        nn.AvgPool2d(2),
        nn.Upsample(scale_factor=2),
    )


# the model, its input, and the dtype of all of it
MODELS = {
    "linear": (layers, (7, 5, 8), torch.float32),
    "linear in half precision": (layers, (12, 8), torch.bfloat16),
    "convolutions": (planes, (6, 3, 12, 12), torch.float32),
    "attention": (lambda: Attention(True), (5, 10, 16), torch.float32),
}
LONG = {
    "attention to all": (lambda: Attention(False), (5, 10, 16), torch.float32),
    "normalised": (lambda: nn.Sequential(*layers(), nn.LayerNorm(4)), (12, 8), torch.float32),
    "batch norm": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU()),
        (6, 3, 9, 9),
        torch.float32,
    ),
}
WHOLE = (
    "permute",
    "view",
    "t.default",
    "clone",
    "reshape",
    "transpose",
    "unsqueeze",
    "full.default",
)


def trained(model, x):
    x = x.clone().requires_grad_()
    out = model(x)
    entering = torch.linspace(-1, 1, out.numel()).view(out.shape).to(out.dtype)
    out.backward(entering)
    return [out.detach(), x.grad, *(p.grad for p in model.parameters())]


def check(build, shape, dtype):
    model = build().to(dtype)
    x = torch.randn(shape).to(dtype)
    reference, shown = copy.deepcopy(model), copy.deepcopy(model)
    got = trained(torch.compile(model, backend="piecewise", options={"ranges": 3}), x)
    within = 1e-4 if dtype == torch.float32 else 2e-2
    for a, b in zip(got, trained(reference, x), strict=True):
        torch.testing.assert_close(a, b, rtol=within, atol=within)
    given = x.clone().requires_grad_()
    found = torch_piecewise.explain(shown, (given,), options={"ranges": 3})
    return found.plans[1].regions


@pytest.mark.parametrize("name", MODELS)
def test_all_of_a_backward_is_cut(name):
    first, cut, last = check(*MODELS[name])
    assert cut.cut and not first.left and not last.left
    assert not [o for o in first.operators if not any(w in o for w in WHOLE)]
    assert last.reason.code == "combined"
    heavy = [o for o in cut.operators if "mm" in o or "backward" in o]
    assert len(heavy) >= 2


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_further_backwards(name):
    regions = check(*LONG[name])
    assert any(region.cut for region in regions)
    assert not [reason for region in regions for reason in region.left]
