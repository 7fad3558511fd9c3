"""Views, branches and sizes in a graph that is cut: what is shared and what is settled late."""

from __future__ import annotations

import pytest
import torch
from torch.utils._pytree import tree_leaves

import torch_piecewise

X = torch.randn(12, 10)


def compiled(fn, ranges=3, dynamic=False):
    torch._dynamo.reset()
    options = {"ranges": ranges}
    return torch.compile(fn, backend="piecewise", options=options, dynamic=dynamic)


def shared(results):
    """Which results have one memory, and the strides of each."""
    places = [r.untyped_storage().data_ptr() for r in results]
    return [[a == b for a in places] for b in places], [r.stride() for r in results]


def of_one_value(x):
    y = x * 2
    return y.view(-1), y, y[1:], y.split(5, 1), y.t().sin(), x.exp()


def repeated(x):
    return (x[:, :1] + 1).expand(12, 10), x * 2


def in_parts(x):
    y = x.cos()
    a, b, c = y.split(4)
    return a * 2, b.sin(), torch.cat([c, a]), y


@pytest.mark.parametrize("fn", [of_one_value, repeated, in_parts])
def test_results_share_memory_as_in_eager_mode(fn):
    got, want = tree_leaves(compiled(fn)(X)), tree_leaves(fn(X))
    torch.testing.assert_close(got, want)
    assert shared(got) == shared(want)


def test_what_stays_a_view_is_explained():
    (plan,) = torch_piecewise.explain(of_one_value, (X,), options={"ranges": 3}).plans
    assert "alias" in [reason.code for region in plan.regions for reason in region.left]


def branching(x):
    taken = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
    return x.sin(), taken * 2


@pytest.mark.parametrize("split", [compiled, lambda fn: torch_piecewise.cut(_Module(fn), [X], 3)])
def test_a_branch_stays_whole(split):
    step = split(branching)
    for x in (X - 9, X + 9):
        torch.testing.assert_close(step(x), branching(x))


class _Module(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.forward = fn


@pytest.mark.parametrize("ranges", [[0, 4, 8, None], [0.0, 0.3, 1.0]])
def test_sizes_that_a_range_settles(ranges):
    step = compiled(torch.sin, ranges, dynamic=True)
    for n in (12, 9, 5):  # of 9 and 5 a range has one position, which torch makes a constant
        x = torch.randn(n, 10)
        torch.testing.assert_close(step(x), x.sin())
