"""What torch.compile, and everything built on it, expects of a backend."""

from __future__ import annotations

import copy
import warnings

import torch
from torch import nn

from .close import assert_same


def test_01_backend_is_listed(backend):
    """pytorch#131360: an installed backend shows up in the list of backends."""
    assert backend in torch.compiler.list_backends(None)


def test_02_options_are_taken(compiled, backend):
    """pytorch#98486, #98663: options={...} reaches the backend."""
    options = {"fallback_random": True} if backend == "inductor" else {}
    double = compiled(lambda x: x + 1, options=options)
    assert_same(double(torch.ones(3)), torch.full((3,), 2.0))


def test_03_mode_is_taken(compiled):
    """pytorch#149209: mode= works with a backend that is not "inductor"."""
    sine = compiled(lambda x: x.sin(), mode="max-autotune-no-cudagraphs")
    assert_same(sine(torch.ones(3)), torch.ones(3).sin())


def test_05_no_warning_about_boxed_arguments(compiled):
    """pytorch/xla#5454, pytorch#168277: training does not warn of a function that is not boxed."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    x = torch.randn(2, 4, requires_grad=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled(model)(x).sum().backward()
    assert not [each for each in caught if "boxed" in str(each.message)]


def test_06_gradients_of_parameters(compiled):
    """pytorch#114189, #86373: a training step gives eager mode's gradients."""
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    reference = copy.deepcopy(model)
    x = torch.randn(3, 4)
    compiled(model)(x).pow(2).sum().backward()
    reference(x).pow(2).sum().backward()
    for got, want in zip(model.parameters(), reference.parameters()):
        assert_same(got.grad, want.grad)


def test_07_constants(compiled):
    """pytorch#112506, #105485, #127374: literal and closed-over tensors are part of the graph."""
    constant = torch.arange(4.0)

    def add(x):
        return x + torch.tensor([1.0, 2.0, 3.0, 4.0]) + constant

    assert_same(compiled(add)(torch.ones(4)), add(torch.ones(4)))


def test_08_buffers_and_changed_weights(compiled):
    """pytorch#105188, torch-mlir#4658: buffers are updated; later weight changes are seen."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    reference = copy.deepcopy(model)
    step = compiled(model)
    for _ in range(3):
        x = torch.randn(6, 4)
        assert_same(step(x), reference(x))
    for got, want in zip(model.buffers(), reference.buffers()):
        assert_same(got, want)
    for each in (model, reference):
        each[0].weight.data.mul_(2)
        each.eval()
    assert_same(step(x), reference(x))
