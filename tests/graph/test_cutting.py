"""`cut`, the splitter alone: a module of modules that computes the same."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd

import torch_piecewise
from torch_piecewise import RangeError, cut

X = torch.randn(10, 8)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 6), nn.Linear(6, 4)
        self.register_buffer("shift", torch.randn(4))

    def forward(self, x):
        return torch.softmax(self.second(F.gelu(self.first(x))) + self.shift, 0)


@pytest.mark.parametrize("ranges", [3, [0, 1, 7, None], [0.0, 0.5, 1.0]])
def test_a_module_becomes_pieces_that_give_the_same(ranges):
    model = Model().eval()
    found = cut(model, [X], ranges)
    torch.testing.assert_close(found(X), model(X))
    pieces = [name for name, _ in found.named_children() if name.startswith("piece_")]
    assert len(pieces) % (3 if ranges != [0.0, 0.5, 1.0] else 2) == 0 and pieces


def test_pieces_have_the_shapes_of_their_ranges():
    found = cut(nn.Sequential(nn.Linear(8, 4), nn.ReLU()), [X], [0, 3, 10])
    first = dict(found.named_children())["piece_1_0"]
    sizes = [tuple(n.meta["val"].shape) for n in first.graph.nodes if n.op == "placeholder"]
    assert (3, 8) in sizes


def test_several_results_stay_several():
    class Two(nn.Module):
        def forward(self, x):
            return x.relu(), x.sum()

    for got, want in zip(cut(Two(), [X], 2)(X), Two()(X), strict=True):
        torch.testing.assert_close(got, want)


def test_other_backends_compile_the_pieces():
    model = Model().eval()
    compiled = torch.compile(cut(model, [X], 2), backend="aot_eager")
    torch.testing.assert_close(compiled(X), model(X))


def relu_twice(x):
    return torch.relu(x) * 2


@pytest.mark.parametrize("returns", [lambda y: y, lambda y: (y,), lambda y: [y, y.sum(), None]])
def test_in_a_backend_for_dynamo(returns):
    def backend(gm, inputs):
        return cut(gm, inputs, 3).forward

    compiled = torch.compile(lambda x: returns(relu_twice(x)), backend=backend)
    got, want = compiled(X), returns(relu_twice(X))
    assert type(got) is type(want)
    torch.testing.assert_close(got, want)


def test_in_a_compiler_for_aot_autograd():
    pieces = []

    def compiler(gm, inputs):
        found = cut(gm, inputs, 2)
        pieces.append([name for name, _ in found.named_children() if name.startswith("piece_")])
        return make_boxed_func(found.forward)

    x, w = X.clone().requires_grad_(), torch.randn(8, 4, requires_grad=True)
    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=compiler, bw_compiler=lambda gm, _: make_boxed_func(gm))
    compiled = torch.compile(lambda x, w: relu_twice(x @ w), backend=backend)
    compiled(x, w).sum().backward()
    grads = x.grad, w.grad
    x.grad = w.grad = None
    relu_twice(x @ w).sum().backward()
    torch.testing.assert_close(grads, (x.grad, w.grad))
    assert len(pieces) == 1 and len(pieces[0]) == 2


def test_results_keep_their_names():
    class Named(nn.Module):
        def forward(self, x):
            return {"first": x.relu(), "rest": (x.sum(), 3)}

    torch.testing.assert_close(cut(Named(), [X], 2)(X), Named()(X))


def test_another_size_is_said():
    found = cut(nn.ReLU(), [X], 2)
    with pytest.raises(
        torch_piecewise.ArgumentError, match=r"\(12, 8\), and was cut for \(10, 8\)"
    ):
        found(torch.randn(12, 8))


def test_what_is_wrong_is_said():
    with pytest.raises(torch_piecewise.ArgumentError, match="example_inputs is a Tensor, not a"):
        cut(nn.ReLU(), X, 2)
    with pytest.raises(RangeError, match="return what has the dim before it"):
        cut(_Loss(), [X], 2)
    with pytest.raises(RangeError, match="is in the way"):
        cut(_Scan(), [X], 2)
    with pytest.raises(RangeError, match="not bounds"):
        cut(Model(), [X], "all")
    with pytest.raises(torch_piecewise.ArgumentError, match="gm is a function"):
        cut(lambda x: x, [X], 2)


class _Loss(nn.Module):
    def forward(self, x):
        return x.relu().sum()


class _Scan(nn.Module):
    def forward(self, x):
        return x.cumsum(0)
