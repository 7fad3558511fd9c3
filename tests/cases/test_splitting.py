"""Graphs that whoever cuts them into parts tends to get wrong."""

from __future__ import annotations

import torch
from torch import nn

from .close import assert_same


def test_09_input_as_output(compiled):
    """pytorch#140014: an input that is returned is the same object."""
    x = torch.randn(3)
    assert compiled(lambda x: x)(x) is x
    assert_same(compiled(lambda x, y: (y, x))(x, x + 1)[0], x + 1)


def test_11_operators_with_several_results(compiled):
    """vllm#24915, vllm PR 28533: sort and split, whose results are used apart."""

    def sort_and_split(x):
        values, order = torch.sort(x)
        low, high = torch.split(values, 2)
        return low.sin(), high.cos(), order

    x = torch.randn(4)
    assert_same(compiled(sort_and_split)(x), sort_and_split(x))


def test_12_single_tensor_stays_single(compiled):
    """torchdynamo#1507: one output is a tensor, not a tuple of one."""

    def total(x):
        product = x @ x
        return product.relu().sum()

    x = torch.randn(4, 4)
    got = compiled(total)(x)
    assert isinstance(got, torch.Tensor)
    assert_same(got, total(x))


def test_14_independent_outputs(compiled):
    """pytorch#86108, #81531, pytorch PR 184904: outputs that share nothing but the input."""

    def three(x):
        return x.sin(), x.cos(), x.exp()

    x = torch.randn(4)
    assert_same(compiled(three)(x), three(x))


class TiedWithBranch(nn.Module):
    """Embedding and head share one weight, and the data chooses between two branches."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 4)
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens, choice):
        x = self.embed(tokens)
        x = torch.cond(choice.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x,))
        return self.head(x)


def test_15_tied_weights_and_cond(compiled):
    """vllm#38958, pytorch#179519, #162898: tied weights next to a higher-order operator."""
    model = TiedWithBranch()
    tokens = torch.tensor([1, 2])
    with torch.no_grad():
        run = compiled(model)
        for choice in (torch.ones(1), -torch.ones(1)):
            assert_same(run(tokens, choice), model(tokens, choice))


def test_17_no_grad_inside(compiled):
    """thunder#1219, pytorch#114338: what ran under no_grad gives no gradient."""

    def partly(x):
        with torch.no_grad():
            constant = x * 3
        return constant + x

    x = torch.randn(3, requires_grad=True)
    compiled(partly)(x).sum().backward()
    assert_same(x.grad, torch.ones(3))


def test_18_keyword_arguments(compiled):
    """pytorch PR 74736: keywords, defaults, **kwargs and a dict as the result."""

    def scaled(x, *, scale=2.0, bias=None, **rest):
        return {"y": x * scale + rest["z"], "b": bias}

    x = torch.ones(3)
    got = compiled(scaled)(x, z=x)
    assert_same(got["y"], 3 * x)
    assert got["b"] is None


def test_20_static_part_of_a_dynamic_graph(compiled):
    """vllm#39395: a part with no symbolic size in a graph that has some."""
    weight = nn.Parameter(torch.randn(4, 4))

    def project(x):
        return x @ (weight * weight).softmax(-1)

    run = compiled(project, dynamic=True)
    for rows in (1, 2, 9):
        x = torch.randn(rows, 4)
        assert_same(run(x), project(x))


def test_21_size_as_output(compiled):
    """pytorch/xla#7735, pytorch#182275: a result computed from a symbolic size."""
    run = compiled(lambda x: (x.sin(), x.shape[0] * 2), dynamic=True)
    for rows in (3, 6):
        assert int(run(torch.randn(rows, 2))[1]) == 2 * rows


def test_22_float_argument_that_changes(compiled):
    """pytorch#119778: a Python float that becomes symbolic."""
    divide = compiled(lambda x, v: x / v)
    x = torch.ones(3)
    for value in (2.0, 4.0, 5.0, 8.0):
        assert_same(divide(x, value), x / value)
