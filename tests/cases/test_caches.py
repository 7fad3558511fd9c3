"""Caches and packages: the half of these reports that needs no call of this package's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from .close import assert_same


def test_34_different_code_of_one_shape(compiled):
    """vllm#14953, #26299, #28759, vllm PR 26956: equal shapes, another operator: a cache miss."""
    x = torch.randn(4)
    assert_same(compiled(lambda x: x.sin() + 1)(x), x.sin() + 1)
    assert_same(compiled(lambda x: x.cos() + 1)(x), x.cos() + 1)


class TriplingBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


def test_36_custom_autograd_function(compiled):
    """MagiCompiler#16, pytorch#191106: the user's own backward is what runs."""
    x = torch.randn(3, requires_grad=True)
    compiled(lambda x: TriplingBackward.apply(x).sum())(x).backward()
    assert_same(x.grad, torch.full((3,), 3.0))


def test_37_state_dict_keeps_its_names(compiled):
    """TensorRT#3525, pytorch#101107, #152021: weights can be saved from a compiled module."""
    model = compiled(nn.Linear(4, 2))
    model(torch.randn(3, 4))
    names = {name.replace("_orig_mod.", "") for name in model.state_dict()}
    assert names == {"weight", "bias"}


def test_38_wrong_shape_is_an_error(compiled):
    """pytorch#141115, #150364: compiled code does not take a shape that the model can't."""
    model = nn.Linear(2, 1)
    run = compiled(model)
    run(torch.randn(1, 2))
    x = torch.randn(3, 2)
    assert_same(run(x), model(x))
    with pytest.raises(Exception, match="(?i)shape|size|mat"):
        run(torch.randn(3, 5))
