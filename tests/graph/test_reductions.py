"""Reductions, scans, sorts and norms, cut along the dims that they do not reduce."""

from __future__ import annotations

import pytest
import torch

from torch_piecewise.graph.axes import CannotCut, cut_along
from torch_piecewise.graph.pieces import build

from .rules import all_values, calls, check, compare, ranges, run, traced

aten, prims = torch.ops.aten, torch.ops.prims
X = torch.randn(7, 6, 8)
COUNTS = torch.randint(-2, 3, (7, 6, 8))
MASK = torch.rand(7, 6, 8) > 0.6
OVER_ANY = [
    aten.sum.dim_IntList,
    aten.mean.dim,
    aten.amax.default,
    aten.amin.default,
    aten.logsumexp.default,
    aten.nansum.default,
    lambda x, dims, keep: aten.var.correction(x, dims, correction=0, keepdim=keep),
    lambda x, dims, keep: aten.std.correction(x, dims, keepdim=keep),
    lambda x, dims, keep: aten.linalg_vector_norm(x, 3, dims, keep),
    lambda x, dims, keep: aten.norm.ScalarOpt_dim(x, 2, dims, keep),
    lambda x, dims, keep: aten.norm.ScalarOpt_dim_dtype(x, 2, dims, keep, dtype=torch.float64),
    lambda x, dims, keep: aten.any.dims(x > 1, dims, keep),
    lambda x, dims, keep: aten.all.dims(x > -1, dims, keep),
    lambda x, dims, keep: aten.var_mean.correction(x, dims, correction=1, keepdim=keep)[0],
    lambda x, dims, keep: aten.std_mean.correction(x, dims, correction=1, keepdim=keep)[0],
]
OVER_ONE = [
    aten.max.dim,
    aten.min.dim,
    aten.median.dim,
    aten.nanmedian.dim,
    aten.mode.default,
    aten.argmax.default,
    aten.argmin.default,
    lambda x, dim, keep: aten.kthvalue(x, 2, dim, keep),
    lambda x, dim, keep: aten.prod.dim_int(x, dim, keep),
    lambda x, dim, keep: aten.any.dim(x, dim, keep),
    lambda x, dim, keep: aten.all.dim(x, dim, keep),
    lambda x, dim, keep: aten.aminmax(x, dim=dim, keepdim=keep),
]


def last_reduction(fn, *args):
    """The number of the last call that is no `getitem`."""
    made = calls(traced(fn, args))
    return max(k for k, n in enumerate(made) if "getitem" not in n.name)


def check_call(fn, *args, refused=None):
    check(fn, *args, refused=refused, node=last_reduction(fn, *args))


@pytest.mark.parametrize("reduce", OVER_ANY)
@pytest.mark.parametrize("dims", [[1], [-1], [0, 2], [-3, 1]])
@pytest.mark.parametrize("keep", [False, True])
def test_dims_that_stay_are_cut(reduce, dims, keep):
    kept = {d % 3: "reduced" for d in dims} if keep else {}
    check_call(lambda x: reduce(x, dims, keep), X, refused=kept)


@pytest.mark.parametrize("reduce", OVER_ONE)
@pytest.mark.parametrize("x", [X, COUNTS])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("keep", [False, True])
def test_operators_over_one_dim(reduce, x, dim, keep):
    check_call(lambda x: reduce(x, dim, keep), x, refused={dim % 3: "reduced"} if keep else {})


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: aten.sum.dim_IntList(x, []),
        lambda x: aten.sum.dim_IntList(x, None, True),
        lambda x: aten.amax(x, [], True),
        lambda x: aten.var.correction(x, None, keepdim=True),
        lambda x: aten.argmax(x, None, True),
        lambda x: aten.sum.default(x),
        lambda x: aten.max.default(x),
    ],
)
def test_without_dims_all_are_reduced(fn):
    check_call(fn, X, refused={0: "reduced", 1: "reduced", 2: "reduced"})


def test_an_empty_list_of_dims_is_none_for_any_and_all():
    check(lambda x: aten.any.dims(x, []), MASK)
    check(lambda x: aten.all.dims(x, [], True), MASK)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: prims.sum(x, [1]),
        lambda x: prims.prod(x, [0]),
        lambda x: prims.amax(x, [0, 2]),
        lambda x: prims.amin(x, [2]),
        lambda x: prims.var(x, [0], 1.0),
        lambda x: aten.count_nonzero.default(x, 1),
        lambda x: aten.count_nonzero.dim_IntList(x, [0, -1]),
    ],
)
def test_without_keepdim(fn):
    check(fn, X)


@pytest.mark.parametrize("x", [COUNTS, MASK])
def test_whole_numbers_and_truth_values(x):
    check(lambda x: x.sum(1), x)
    check(lambda x: x.sum(1, dtype=torch.float32), x)
    check(lambda x: x.amax((0, 2)), x)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize(
    ("fn", "code"),
    [
        (lambda x, d: aten._softmax(x, d, False), "reduced"),
        (lambda x, d: aten._log_softmax(x, d, False), "reduced"),
        (lambda x, d: aten._safe_softmax(x, d), "reduced"),
        (lambda x, d: aten._softmax_backward_data(x, x * 2, d, x.dtype), "reduced"),
        (lambda x, d: aten._log_softmax_backward_data(x, x, d, x.dtype), "reduced"),
        (lambda x, d: aten.cumsum(x, d), "scan"),
        (lambda x, d: aten.cumprod(x, d), "scan"),
        (lambda x, d: aten.cummax(x, d), "scan"),
        (lambda x, d: aten.cummin(x, d), "scan"),
        (lambda x, d: aten.logcumsumexp(x, d), "scan"),
        (lambda x, d: aten.sort(x, d), "sort"),
        (lambda x, d: aten.sort.stable(x, stable=True, dim=d, descending=True), "sort"),
        (lambda x, d: aten.topk(x, 6, d), "sort"),
    ],
)
def test_operators_along_a_dim(fn, code, dim):
    check_call(lambda x: fn(x, dim), X, refused={dim % 3: code})


def test_a_sort_along_the_default_dim():
    check_call(lambda x: aten.sort.default(x), X, refused={2: "sort"})


W, B, C, D = torch.randn(6), torch.randn(6), torch.randn(6), torch.rand(6) + 0.5


@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(affine):
    w, b = torch.randn(6, 8), torch.randn(6, 8)

    def both(x, w, b):
        return aten.native_layer_norm(x, [6, 8], w if affine else None, b if affine else None, 1e-5)

    check_call(both, X, w, b, refused={1: "reduced", 2: "reduced"})
    check_call(lambda x: aten.native_layer_norm(x, [8], None, None, 0.1), X, refused={2: "reduced"})


@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(affine):
    def norm(x, w, b):
        w, b = (w, b) if affine else (None, None)
        return aten.native_group_norm(x, w, b, 7, 6, 8, 3, 1e-5)

    check_call(norm, X, W, B, refused={1: "reduced", 2: "reduced"})


def check_batch_norm(fn, *args, refused=None, further=True):
    """Like `check`: the further values have the channels' dim alone, as dim 0."""
    refused = refused or {}
    gm = traced(fn, args)
    call = next(n for n in calls(gm) if "getitem" not in n.name)
    values = all_values(gm, args)
    whole = [t for t in values[call] if t is not None]
    for dim in range(whole[0].ndim):
        if dim in refused:
            with pytest.raises(CannotCut) as raised:
                cut_along(call, dim)
            assert raised.value.code == refused[dim]
            continue
        cut = cut_along(call, dim)
        for each in ranges(whole[0].shape[dim]):
            piece, found = build({call: (cut, dim)}, {call: each})
            got, *others = run(piece, found[call], values)
            torch.testing.assert_close(got, whole[0].narrow(dim, each.start, each.size))
            for a, b in zip(others, whole[1:], strict=True):
                narrow = dim == 1 and b.numel() and b.ndim == 1
                torch.testing.assert_close(a, b.narrow(0, each.start, each.size) if narrow else b)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w, b, m, v: aten.native_batch_norm(x, w, b, m, v, False, 0.1, 1e-5),
        lambda x, w, b, m, v: aten.native_batch_norm(x, None, None, m, v, False, 0.1, 1e-5),
        lambda x, w, b, m, v: aten._native_batch_norm_legit_no_training(x, w, b, m, v, 0.1, 1e-5),
        lambda x, w, b, m, v: aten._batch_norm_no_update(x, w, b, m, v, 0.1, 1e-5),
        lambda x, w, b, m, v: aten._native_batch_norm_legit_functional(
            x, w, b, m, v, False, 0.1, 1e-5
        ),
    ],
)
def test_batch_norm_of_given_statistics(fn):
    check_batch_norm(fn, X, W, B, C, D)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w, b, m, v: aten.native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5),
        lambda x, w, b, m, v: aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5),
        lambda x, w, b, m, v: aten._native_batch_norm_legit_functional(
            x, w, b, m, v, True, 0.1, 1e-5
        ),
        lambda x, w, b, m, v: aten._batch_norm_with_update_functional(x, w, b, m, v, 0.1, 1e-5),
    ],
)
def test_batch_norm_that_computes_its_statistics(fn):
    check_batch_norm(fn, X, W, B, C, D, refused={0: "statistics", 2: "statistics"})


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w, b, m, v: aten.native_batch_norm(x, w, b, m, v, True, 0.1, 1e-5),
        lambda x, w, b, m, v: aten._native_batch_norm_legit(x, w, b, m, v, True, 0.1, 1e-5),
    ],
)
def test_batch_norm_that_writes_its_statistics(fn):
    check_batch_norm(fn, X, W, B, C, D, refused=dict.fromkeys(range(3), "mutation"))


def by_hand(target, *args):
    """A call in a graph of its own, for operators that tracing decomposes or that lack kernels."""
    graph, values = torch.fx.Graph(), {}

    def given(arg):
        if not isinstance(arg, torch.Tensor):
            return arg
        made = graph.placeholder(f"p{len(values)}")
        made.meta["val"] = values[made] = arg
        return made

    return graph.call_function(target, tuple(map(given, args))), values


@pytest.mark.parametrize("weight", [None, torch.randn(8)])
def test_rms_norm(weight):
    call, values = by_hand(aten._fused_rms_norm.default, X, [8], weight, 0.1)
    call.meta["val"] = whole = aten._fused_rms_norm(X, [8], weight, 0.1)
    for dim in (0, 1):
        for each in ranges(X.shape[dim]):
            piece, found = build({call: (cut_along(call, dim), dim)}, {call: each})
            compare(run(piece, found[call], values), whole, dim, each)
    with pytest.raises(CannotCut, match="normalizes over dim 2"):
        cut_along(call, 2)


@pytest.mark.parametrize("target", [aten.cudnn_batch_norm, aten.miopen_batch_norm])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_of_cudnn(target, training):
    """It has no kernel here: its rule alone."""
    call, values = by_hand(target.default, X, W, B, C, D, training, 0.1, 1e-5)
    call.meta["val"] = (X, W, W, W)
    if training:
        with pytest.raises(CannotCut, match="writes to the running statistics"):
            cut_along(call, 1)
        return
    assert dict(cut_along(call, 1).inputs) == dict(zip(values, (1, 0, 0, 0, 0)))
    assert dict(cut_along(call, 2).inputs) == dict(zip(values, (2, None, None, None, None)))


@pytest.mark.parametrize("fn", [torch.fft.fft, torch.fft.rfft, torch.fft.ifft])
@pytest.mark.parametrize("dim", [0, -1])
def test_transforms(fn, dim):
    args = (torch.randn(7, 8),)
    number = next(
        k
        for k, n in enumerate(calls(traced(lambda x: fn(x, dim=dim), args)))
        if "fft" in str(n.target)
    )
    check(lambda x: fn(x, dim=dim), *args, refused={dim % 2: "reduced"}, node=number)
