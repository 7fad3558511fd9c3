"""Reductions over the dim that is cut, by parts."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from torch_piecewise.graph.axes import PARTIAL_RULES, CannotCut
from torch_piecewise.graph.pieces import PieceGraph, finished

from .rules import all_values, calls, check_partial, ranges, run, traced

aten, prims = torch.ops.aten, torch.ops.prims
X = torch.randn(7, 6, 8)
NAN = torch.where(torch.rand(7, 6, 8) > 0.9, torch.nan, X)
INF = X.clone()
INF[2, :3], INF[4, 1:5], INF[:, 5] = torch.inf, -torch.inf, -torch.inf
TIES = torch.randint(0, 3, (7, 6, 8)).float()
COUNTS = torch.randint(-2, 3, (7, 6, 8))
MASK = torch.rand(7, 6, 8) > 0.5
FLOATS = {"normal": X, "nan": NAN, "inf": INF, "ties": TIES, "double": X.double()}
OVER_ANY = {
    "sum": aten.sum.dim_IntList,
    "mean": aten.mean.dim,
    "amax": aten.amax.default,
    "amin": aten.amin.default,
    "logsumexp": aten.logsumexp.default,
    "any": lambda x, dims, keep: aten.any.dims(x, dims, keep),
    "all": lambda x, dims, keep: aten.all.dims(x, dims, keep),
    "var": lambda x, dims, keep: aten.var.correction(x, dims, keepdim=keep),
    "var0": lambda x, dims, keep: aten.var.correction(x, dims, correction=0, keepdim=keep),
    "var_mean": lambda x, dims, keep: aten.var_mean.correction(x, dims, correction=2, keepdim=keep),
    "std": lambda x, dims, keep: aten.std.correction(x, dims, correction=0.5, keepdim=keep),
    "std_mean": lambda x, dims, keep: aten.std_mean.correction(x, dims, keepdim=keep),
    "norm": lambda x, dims, keep: aten.linalg_vector_norm(x, 2, dims, keep),
    "norm1": lambda x, dims, keep: aten.linalg_vector_norm(x, 1, dims, keep),
    "norm3": lambda x, dims, keep: aten.linalg_vector_norm(x, 3.5, dims, keep),
    "norm0": lambda x, dims, keep: aten.linalg_vector_norm(x, 0, dims, keep),
    "norm_max": lambda x, dims, keep: aten.linalg_vector_norm(x, torch.inf, dims, keep),
    "norm_min": lambda x, dims, keep: aten.linalg_vector_norm(x, -torch.inf, dims, keep),
}
OVER_ONE = {
    "max": aten.max.dim,
    "min": aten.min.dim,
    "argmax": aten.argmax.default,
    "argmin": aten.argmin.default,
    "any": lambda x, dim, keep: aten.any.dim(x, dim, keep),
    "all": lambda x, dim, keep: aten.all.dim(x, dim, keep),
    "prod": lambda x, dim, keep: aten.prod.dim_int(x, dim, keep),
}


def check_first(fn, *args, dim):
    """Of the first reduction of `fn`: what follows takes its values."""
    made = calls(traced(fn, args))
    number = next(k for k, n in enumerate(made) if n.target in PARTIAL_RULES)
    check_partial(fn, *args, dim=dim, node=number)


@pytest.mark.parametrize("reduce", OVER_ANY)
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize(
    ("dims", "keep"), [([0], False), ([-3], True), ([0, 2], False), ([1, -3], True)]
)
def test_over_several_dims(reduce, kind, dims, keep):
    if kind == "inf" and reduce in ("var_mean", "std_mean"):
        pytest.skip("eager's mean is then infinite or not a number, by where the infinity is")
    check_first(lambda x: OVER_ANY[reduce](x, dims, keep), FLOATS[kind], dim=0)


@pytest.mark.parametrize("reduce", OVER_ONE)
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("keep", [False, True])
def test_over_one_dim(reduce, kind, dim, keep):
    check_first(lambda x: OVER_ONE[reduce](x, dim, keep), FLOATS[kind], dim=dim % 3)


@pytest.mark.parametrize("x", [COUNTS, COUNTS.to(torch.int32), COUNTS.to(torch.uint8), MASK])
@pytest.mark.parametrize("dim", [0, 2])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, d: aten.sum.dim_IntList(x, [d]),
        lambda x, d: aten.sum.dim_IntList(x, [0, 2], True),
        lambda x, d: aten.sum.dim_IntList(x, [d], dtype=torch.int32),
        lambda x, d: aten.sum.dim_IntList(x, [d], dtype=torch.float32),
        lambda x, d: aten.mean.dim(x, [d], dtype=torch.float32),
        lambda x, d: aten.prod.dim_int(x, d),
        lambda x, d: aten.prod.dim_int(x, d, True, dtype=torch.float64),
        lambda x, d: aten.logsumexp(x, [d]),
        lambda x, d: aten.amax(x, [d]),
        lambda x, d: aten.amin(x, [d], True),
        lambda x, d: aten.max.dim(x, d),
        lambda x, d: aten.min.dim(x, d, True),
        lambda x, d: aten.any.dim(x, d),
        lambda x, d: aten.all.dim(x, d, True),
        lambda x, d: aten.any.dims(x, [0, 2]),
        lambda x, d: aten.all.default(x),
    ],
)
def test_whole_numbers_and_truth_values(fn, x, dim):
    check_first(lambda x: fn(x, dim), x, dim=dim)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize(
    "fn",
    [
        aten.sum.default,
        aten.mean.default,
        aten.prod.default,
        aten.max.default,
        aten.min.default,
        aten.any.default,
        aten.all.default,
        lambda x: aten.amax(x, []),
        lambda x: aten.sum.dim_IntList(x, None, True),
        lambda x: aten.var.correction(x, None, correction=1),
        lambda x: aten.linalg_vector_norm(x),
        lambda x: prims.sum(x, [0, 1, 2]),
        lambda x: prims.prod(x, [0, 1, 2]),
        lambda x: prims.amax(x, [0, 1, 2]),
        lambda x: prims.amin(x, [0, 1, 2]),
        lambda x: prims.var(x, [0, 1, 2], 1.0),
        lambda x: prims.var(x, [0, 1, 2], 0.0),
    ],
)
def test_over_all(fn, dim):
    check_partial(fn, X, dim=dim)


@pytest.mark.parametrize("arg", [aten.argmax.default, aten.argmin.default])
def test_places_in_all_of_a_vector(arg):
    check_partial(lambda x: arg(x), TIES[:, 0, 0].contiguous(), dim=0)
    check_partial(lambda x: arg(x, None, True), TIES[:, 0, 0].contiguous(), dim=0)


def test_the_first_of_equal_ones_is_found():
    """In one range, and in several."""
    x = torch.tensor([[0.0, 2, 2, 1, 2, 2, 2], [1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 3, 3, 3]])
    for reduce in (aten.max.dim, aten.min.dim, aten.argmax.default, aten.argmin.default):
        check_first(partial(reduce, dim=1), x, dim=1)
        check_first(partial(reduce, dim=0), x.t().contiguous(), dim=0)


def test_one_position():
    """The variance of one value is not a number."""
    x = torch.randn(1, 4)
    check_partial(lambda x: aten.var.correction(x, [0]), x, dim=0)
    check_partial(lambda x: aten.var.correction(x, [0], correction=5), torch.randn(3, 2), dim=0)


def test_variance_far_from_zero():
    x = 1e4 + torch.randn(700, 3)
    check_first(lambda x: aten.var_mean.correction(x, [0], correction=1), x, dim=0)
    uneven = torch.cat([torch.randn(3, 4) + 100, torch.randn(200, 4)])
    check_first(lambda x: aten.var_mean.correction(x, [0], correction=1), uneven, dim=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("reduce", OVER_ANY)
@pytest.mark.parametrize("keep", [False, True])
def test_half_precision(reduce, dtype, keep):
    """Within one rounding of the exact result, like eager."""
    x = torch.randn(300, 8).to(dtype)
    check_close(lambda x: OVER_ANY[reduce](x, [0], keep), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("reduce", OVER_ONE)
def test_half_precision_over_one_dim(reduce, dtype):
    check_close(lambda x: OVER_ONE[reduce](x, 0, True), (torch.rand(40, 8) + 0.5).to(dtype))


@pytest.mark.parametrize("fn", [lambda x: prims.sum(x, [0]), lambda x: prims.prod(x, [0])])
def test_half_precision_of_prims(fn):
    check_close(fn, (torch.rand(40, 8) + 0.5).bfloat16())


def check_close(fn, x):
    """The combined result equals the exact one, rounded, but for one step of the dtype."""
    exact = fn(x.double())
    got = combined(fn, x)
    got, exact = (list(t) if isinstance(t, (tuple, list)) else [t] for t in (got, exact))
    step = torch.finfo(x.dtype).eps / 2
    for a, b in zip(got, exact, strict=True):
        assert a.shape == b.shape
        if a.dtype == x.dtype:
            torch.testing.assert_close(a.double(), b.double(), rtol=step * 1.01, atol=1e-6)
        else:
            assert torch.equal(a, b)


def combined(fn, x, dim=0):
    """What the rule makes of ranges of x."""
    gm = traced(fn, [x])
    call = next(n for n in calls(gm) if n.target in PARTIAL_RULES)
    values = all_values(gm, [x])
    rule = PARTIAL_RULES[call.target](call, call.args[0], dim)
    parts, sizes = [], []
    for each in ranges(x.shape[dim]):
        piece = PieceGraph()
        parts.append(run(piece, rule.emit(piece, each), values))
        sizes.append(each.size)
    whole = PieceGraph()
    holders = [whole.graph.placeholder(f"part_{k}") for k in range(len(parts))]
    for holder, part in zip(holders, parts):
        holder.meta["val"] = part
    (got,) = finished(whole, [rule.combine(whole, holders, sizes)])(*parts)
    return got


def test_a_long_sum_in_half_precision():
    """Parts in bfloat16 would be off by more than one step here."""
    x = (torch.rand(20000, 2) + 1).bfloat16()
    for fn in (lambda x: x.sum(0), lambda x: x.mean(0), lambda x: x.sum((0, 1))):
        check_close(fn, x)


def refusal(fn, *args, dim):
    gm = traced(fn, args)
    call = next(n for n in calls(gm) if n.target in PARTIAL_RULES)
    with pytest.raises(CannotCut) as raised:
        PARTIAL_RULES[call.target](call, call.args[0], dim)
    return raised.value.code


@pytest.mark.parametrize("reduce", OVER_ANY)
def test_a_dim_that_stays_is_refused(reduce):
    assert refusal(lambda x: OVER_ANY[reduce](x, [0, -1], False), X, dim=1) == "reduced"


@pytest.mark.parametrize("reduce", OVER_ONE)
def test_a_dim_that_stays_is_refused_over_one_dim(reduce):
    assert refusal(lambda x: OVER_ONE[reduce](x, -1, True), X, dim=0) == "reduced"


def test_other_refusals():
    assert refusal(lambda x: aten.argmax(x), X, dim=0) == "parts"
    numbers = torch.randn(4, 3, dtype=torch.complex64)
    assert refusal(lambda x: aten.linalg_vector_norm(x), numbers, dim=0) == "parts"
    assert refusal(lambda x: aten.var.correction(x, [0]), numbers, dim=0) == "parts"
    assert refusal(lambda x: aten.any.dims(x, []), X, dim=0) == "reduced"


def test_sums_of_complex_numbers():
    check_partial(lambda x: x.sum(0), torch.randn(7, 3, dtype=torch.complex64), dim=0)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("dim", [0, 2])
def test_smallest_and_largest(kind, dim):
    check_first(lambda x: aten.aminmax(x, dim=dim), FLOATS[kind], dim=dim)
    check_first(lambda x: aten.aminmax(x, dim=dim, keepdim=True), FLOATS[kind], dim=dim)
    check_first(lambda x: aten.aminmax(x), FLOATS[kind], dim=dim)


def test_counts_and_sums_of_what_is_a_number():
    check_partial(lambda x: aten.nansum(x, [0, 1]), NAN, dim=0)
    check_partial(lambda x: aten.nansum(x, None, True), NAN, dim=1)
    check_partial(lambda x: aten.nansum(x, [2]), NAN.bfloat16(), dim=2)
    check_partial(lambda x: aten.count_nonzero(x, 1), COUNTS, dim=1)
    check_partial(lambda x: aten.count_nonzero.dim_IntList(x, [0, 1]), COUNTS, dim=1)
    check_partial(lambda x: aten.count_nonzero(x), MASK, dim=0)
