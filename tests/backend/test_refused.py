"""What must not be cut: refused with the right reason, through torch.compile and by `cut`."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_piecewise
from torch_piecewise.errors import RangeError
from torch_piecewise.graph.axes import CODES, CannotCut

X = torch.randn(12, 6)
PLACES = torch.randint(0, 12, (12,))
captured = torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)


class Calls(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x)


def through_compile(fn, x):
    torch._dynamo.reset()
    compiled = torch.compile(fn, backend="piecewise", options={"ranges": 3})
    with captured, pytest.raises(Exception, match="RangeError") as caught:
        compiled(x)
    return str(caught.value)


def by_cut(fn, x):
    with pytest.raises(RangeError) as caught:
        torch_piecewise.cut(Calls(fn), [x], 3)
    assert f"[{caught.value.code}]" in str(caught.value)
    return str(caught.value)


def write_over_itself(x):
    y = x * 1
    y[1:] = y[:-1].clone()
    return y * 2


# name: the function, the code, the operator that is named
REFUSED = {
    "cumsum": (lambda x: x.cumsum(0) * 2, "scan", "cumsum"),
    "cumprod": (lambda x: x.cumprod(0) * 2, "scan", "cumprod"),
    "cummax": (lambda x: x.cummax(0)[0], "scan", "cummax"),
    "logcumsumexp": (lambda x: x.logcumsumexp(0) + 1, "scan", "logcumsumexp"),
    "sort": (lambda x: x.sort(0)[0] + 1, "sort", "sort"),
    "argsort": (lambda x: x.argsort(0) + 1, "sort", "sort"),
    "topk": (lambda x: x.topk(4, 0)[0] + 1, "sort", "topk"),
    "rand_like": (lambda x: torch.rand_like(x) + x, "random", "rand"),
    "randn": (lambda x: x + torch.randn(12, 6), "random", "rand"),
    "randint": (lambda x: x + torch.randint(0, 9, (12, 6)), "random", "rand"),
    "multinomial": (lambda x: x.sigmoid().t().multinomial(6).t() + 1, "random", "multinomial"),
    "scatter_add": (
        lambda x: x.scatter_add(0, PLACES[:, None].expand(12, 6), x),
        "scatter",
        "scatter",
    ),
    "index_put": (lambda x: x.index_put((PLACES,), x, accumulate=True), "scatter", "index_put"),
    "index_add": (lambda x: x.index_add(0, PLACES, x), "scatter", "index_"),
    "nonzero": (lambda x: x.nonzero() * 2, "data-dependent", "depends on data"),
    "masked_select": (lambda x: x.masked_select(x > 0) * 2, "data-dependent", "depends on data"),
    "a mask": (lambda x: x[x[:, 0] > 0].sin(), "data-dependent", "depends on data"),
    "unique": (lambda x: x.unique() * 2, "data-dependent", "depends on data"),
    "as_strided": (lambda x: (x * 2).as_strided((10, 8), (6, 1)) + 1, "address", "as_strided"),
}


@pytest.mark.parametrize("how", [through_compile, by_cut])
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, how):
    fn, code, named = REFUSED[name]
    said = how(fn, X.clone())
    assert f"[{code}]" in said and named in said


def test_dropout():
    """Compiled, it is random numbers; as traced, it writes in place what they are made of."""
    assert "[random]" in through_compile(lambda x: F.dropout(x, 0.5, True) * 2, X)
    assert "[mutation]" in by_cut(lambda x: F.dropout(x, 0.5, True) * 2, X)


def overlapping(x):
    x[1:] = x[:-1]
    return x * 2


@pytest.mark.parametrize(
    ("fn", "named"),
    [
        (overlapping, "copy_"),
        (write_over_itself, "copy_"),
        (lambda x: x.mul_(2) + 1, "mul_"),
        (nn.BatchNorm1d(6), "native_batch_norm"),
        (lambda x: (x + 1, x.add_(1))[0], None),  # nothing reads what was written to
    ],
)
def test_what_writes_in_place_is_not_cut_as_traced(fn, named):
    if named is None:
        mine, theirs = X.clone(), X.clone()
        assert torch.equal(torch_piecewise.cut(Calls(fn), [X], 3)(mine), fn(theirs))
        assert torch.equal(mine, theirs)
    else:
        said = by_cut(fn, X.clone())
        assert "[mutation]" in said and named in said


def written(x):
    x[1:] = x[:-1].clone()
    return x * 2


NORM = nn.BatchNorm1d(6)


@pytest.mark.parametrize("fn", [written, overlapping, lambda x: x.mul_(2) + 1, NORM])
def test_what_is_written_in_place_stays_whole_in_a_compiled_graph(fn):
    """AOTAutograd writes when all has been read; ranges are of what is written."""
    reference = written if fn is overlapping else fn  # eager mode refuses to write over itself
    mine, theirs = X.clone(), X.clone()
    want, state = reference(theirs), {k: v.clone() for k, v in NORM.state_dict().items()}
    NORM.reset_running_stats()
    got = torch.compile(fn, backend="piecewise", options={"ranges": 3})(mine)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(mine, theirs)
    if fn is NORM:
        for name, each in NORM.state_dict().items():
            torch.testing.assert_close(each, state[name])
        NORM.reset_running_stats()
    found = torch_piecewise.explain(fn, (X.clone(),), options={"ranges": 3})
    regions = [region for plan in found.plans for region in plan.regions]
    assert any(region.cut for region in regions)
    assert "mutation" in {reason.code for region in regions for reason in region.left}


def test_normalising_over_the_batch_as_one_operator():
    """Undecomposed, as `cut` may be handed it: its statistics are of the whole batch."""
    legit = torch.ops.aten._native_batch_norm_legit.no_stats
    said = by_cut(lambda x: legit(x, None, None, True, 0.1, 1e-5)[0], X)
    assert "[statistics]" in said


def test_every_code_is_declared():
    with pytest.raises(AssertionError):
        CannotCut("scans", "no such code")
    assert all(re.fullmatch(r"[a-z-]+", code) for code in CODES)
