"""Values that several operations read: which are stored, and that results stay what they were."""

import pytest
import torch
from tests.inductor.code import generated

import torch_piecewise
from torch_piecewise.plan.reuse import choose_store

from .harness import assert_near, compiled


def taps_of(function):
    """A stencil of three taps over a value that takes a function to make."""

    def taps(x):
        a = function(x)
        return 0.5 * a + a.roll(1, 1) - a.roll(-1, 1)

    return taps


def notes(fn, *args, **options):
    shown = torch_piecewise.explain(fn, args, options=options)
    return [note.code for plan in shown.plans for note in plan.notes]


def test_a_slow_function_is_computed_once():
    x = torch.randn(64, 128)
    taps = taps_of(torch.erf)
    assert notes(taps, x) == ["once"]
    # Inductor repeats it for every tap, each in the vector and in the scalar loop
    ours, theirs = generated(taps, x), generated(taps, x, backend="inductor")
    assert ours.count("erf(") < theirs.count("erf(")
    assert_near(compiled(taps)(x), taps(x), "taps")


@pytest.mark.parametrize("function", [torch.relu, torch.neg])
def test_what_is_cheap_is_computed_again(function):
    assert not notes(taps_of(function), torch.randn(64, 128))


def test_splitting_off_leaves_inductors_choice():
    assert not notes(taps_of(torch.erf), torch.randn(64, 128), split="off")


def test_gradients_and_low_precision():
    taps = taps_of(torch.sin)
    for dtype in (torch.float64, torch.bfloat16):
        torch._dynamo.reset()
        x = torch.randn(32, 48, dtype=dtype, requires_grad=True)
        (ours,) = torch.autograd.grad(compiled(taps)(x).float().square().sum(), x)
        (eager,) = torch.autograd.grad(taps(x).float().square().sum(), x)
        assert_near(ours, eager, str(dtype))


def test_dynamic_sizes():
    torch._dynamo.reset()
    taps = taps_of(torch.erf)
    call = compiled(taps, dynamic=True)
    for shape in ((4, 40), (7, 19)):
        x = torch.randn(shape)
        assert_near(call(x), taps(x), str(shape))


def of(*operations, **changes):
    known = {"name": "a", "elements": 1e6, "itemsize": 4, "readers": 2}
    return choose_store(operations=operations, **{**known, **changes})


def test_the_decision():
    assert of("load", "erf").split
    assert not of("load", "mul", "sqrt").split  # fast in vectors
    assert not of("load", "erf", readers=1).split
    assert not of("load", "exp", itemsize=16).split  # 0.6 ns against three times 16 bytes
    assert of("load", "exp", itemsize=16, readers=4).split
    assert not of("load", "erf", "where").split and not of("erf", "masked").split
    assert "erf" not in of("erf").reason.text and "2 readers" in of("erf").reason.text
