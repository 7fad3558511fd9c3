"""Concatenations: which are computed by their readers, and that the values stay what they were."""

import pytest
import torch
import torch.nn.functional as F

import torch_piecewise
from torch_piecewise.plan.concat import MOST_INPUTS, Concat, choose_concat

from .harness import assert_near, assert_same, compiled, plain

A, B, C = (24, 40), (24, 17), (24, 1)


def activation(a, b, c):
    return F.gelu(torch.cat((a.sin(), b, c), 1) * 2 + 1)


def two_readers(a, b, c):
    x = torch.cat((a.abs(), b, c), -1)
    return x * 2, (x + 1).sum(0)


def slow_for_two_readers(a, b, c):
    x = torch.cat((a.tanh(), b, c), -1)
    return x * 2, (x + 1).sum(0)


def through_views(a, b, c):
    x = torch.cat((a, b, c), 1)
    return x.t().view(29, 2, 24)[:, 1].relu(), x.t().reshape(24, 58), x.unsqueeze(0).amax(2)


def softmax_over_joins(a, b, c):
    return torch.softmax(torch.cat((a, b, c), 1) * 0.5, 1)


def nested(a, b, c):
    return torch.cat((torch.cat((a, b), 1) * 2, c), 1) + 1


def stored(a, b, c):
    return torch.cat((a, b, c), 1)


def multiplied(a, b, c):
    return torch.cat((a, b, c), 1) @ torch.ones(58, 3, dtype=a.dtype)


def many(a, b, c):
    return torch.cat([a * k for k in range(MOST_INPUTS + 1)], 0).exp()


def mixed_dtypes(a, b, c):
    return torch.cat((a, (b * 10).to(torch.int32), c), 1) + 1


def with_empty(a, b, c):
    return torch.cat((a, b[:, :0], a.new_empty(0), c), 1) * 3


def stacked(a, b, c):
    return torch.stack((a, a.cos(), a * c), 2).mean(2)


def normalised(a, b, c):
    return F.layer_norm(torch.cat((a, b, c), 1), (58,))


def variance_of_a_view(a, b, c):
    return F.group_norm(torch.cat((a, b[:, :16]), 1), 4)


COMPUTED = [
    activation,
    normalised,
    two_readers,
    through_views,
    softmax_over_joins,
    nested,
    with_empty,
    stacked,
]
STORED = [stored, multiplied, many, mixed_dtypes, variance_of_a_view, slow_for_two_readers]


def inputs(dtype=torch.float32):
    return tuple(torch.randn(shape).to(dtype) for shape in (A, B, C))


@pytest.mark.parametrize("split", ["auto", "seams", "off"])
@pytest.mark.parametrize("fn", COMPUTED + STORED, ids=lambda f: f.__name__)
def test_values(fn, split):
    args = inputs()
    torch._dynamo.reset()
    got = compiled(fn, split)(*args)
    assert_same(got, plain(fn)(*args), exact=False, what=f"{fn.__name__} {split}")
    assert_near(got, fn(*args), fn.__name__)


@pytest.mark.parametrize("fn", COMPUTED + STORED, ids=lambda f: f.__name__)
def test_what_is_done_with_it(fn):
    notes = [n for p in torch_piecewise.explain(fn, inputs()).plans for n in p.notes]
    notes = [n for n in notes if n.code != "once"]  # see test_reuse
    assert any(n.code == "computed" for n in notes) == (fn in COMPUTED)
    assert len(set(notes)) == len(notes)
    assert all(n.text.startswith("computed in") or "stored and read" in n.text for n in notes)


def test_splitting_off_leaves_every_concatenation():
    shown = torch_piecewise.explain(activation, inputs(), options={"split": "off"})
    assert not any(p.notes for p in shown.plans)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_gradients(dtype):
    for fn in (activation, through_views, softmax_over_joins):
        args = [x.requires_grad_() for x in inputs(dtype)]
        torch._dynamo.reset()
        results = []
        for call in (compiled(fn, "seams"), plain(fn), fn):
            out = torch.utils._pytree.tree_leaves(call(*args))
            results.append(torch.autograd.grad(sum(o.float().square().sum() for o in out), args))
        assert_same(results[0], results[1], exact=False, what=fn.__name__)
        assert_near(results[0], results[2], fn.__name__)


def test_dynamic_sizes():
    torch._dynamo.reset()
    call = compiled(activation, "seams", dynamic=True)
    for rows, second in ((24, 17), (5, 3), (31, 64)):
        args = torch.randn(rows, 40), torch.randn(rows, second), torch.randn(rows, 1)
        assert_near(call(*args), activation(*args), f"{rows} {second}")


def of(**changes):
    known = {"name": "cat", "elements": 1e6, "itemsize": 4, "inputs": 2, "work": 0.08}
    return choose_concat(Concat(**{"readers": ("pointwise",), **known, **changes}))


def test_the_decision():
    assert of().split
    assert of(readers=("pointwise", "reduction")).split
    assert of(readers=()).reason.code == "needed"
    assert of(readers=("pointwise", "aten.mm.default")).reason.code == "needed"
    assert of(inputs=MOST_INPUTS + 1).reason.code == "many-inputs"
    # once more is less than to store it once and read it, 19 times more is not
    assert of(readers=("pointwise",) * 2).split
    assert of(readers=("pointwise",) * 20).reason.code == "repeated-work"
    assert of(readers=("pointwise",) * 20, work=0.0).split
