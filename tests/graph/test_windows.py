"""Convolution, pooling and upsampling, cut along batch, channels and space."""

from __future__ import annotations

import operator

import pytest
import torch
import torch._inductor.inductor_prims  # registers the pools that save memory
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)

from torch_piecewise.graph.axes import CannotCut, Range, cut_along
from torch_piecewise.graph.pieces import build, finished

from .rules import all_values, calls, check, ranges, real, run, traced

aten, prims = torch.ops.aten, torch.ops.prims

PLANES = torch.randn(4, 6, 11, 9)
SPACES = {1: (23,), 2: (11, 9), 3: (8, 7, 6)}


def convolve(space, channels=(6, 5), kernel=3, groups=1, bias=True, size=None, **given):
    """Check a convolution; returns nothing."""
    refused = given.pop("refused", None)
    x = torch.randn(2, channels[0], *(size or SPACES[space]))
    kernels = kernel if isinstance(kernel, tuple) else (kernel,) * space
    transposed = given.get("transposed", False)
    of = (
        (channels[0], channels[1] // groups) if transposed else (channels[1], channels[0] // groups)
    )
    weight = torch.randn(*of, *kernels)
    b = torch.randn(channels[1]) if bias else None
    spread = {
        name: given.get(name, default) if isinstance(given.get(name), list) else
        [given.get(name, default)] * space
        for name, default in (("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0))
    }  # fmt: skip
    settings = [spread["stride"], spread["padding"], spread["dilation"], transposed]
    settings += [spread["output_padding"], groups]
    if bias:
        check(lambda x, w, b: aten.convolution(x, w, b, *settings), x, weight, b, refused=refused)
    else:
        check(lambda x, w: aten.convolution(x, w, None, *settings), x, weight, refused=refused)


@pytest.mark.parametrize("space", [1, 2, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_convolution(space, bias):
    convolve(space, bias=bias)
    convolve(space, bias=bias, padding=1)


@pytest.mark.parametrize(
    "given",
    [
        dict(kernel=1),
        dict(kernel=1, stride=3),  # positions that nothing reads
        dict(kernel=2, stride=4, padding=1),
        dict(kernel=3, stride=2, padding=1),
        dict(kernel=3, stride=2, padding=2),
        dict(kernel=3, dilation=3, padding=3, stride=2),
        dict(kernel=2, dilation=4, padding=5),
        dict(kernel=5, padding=2),
        dict(kernel=4, padding=2),  # more before than after
        dict(kernel=(3, 5), padding=[1, 2], stride=[2, 1], dilation=[1, 2]),
        dict(kernel=(1, 7), padding=[0, 3]),
        dict(kernel=7, padding=7),  # windows with nothing but padding at both ends
        dict(kernel=1, padding=4),
        dict(kernel=2, padding=9, size=(4, 3)),
        dict(kernel=2, padding=5, stride=3, size=(1, 2)),
    ],
)
def test_halo(given):
    convolve(2, **given)


def test_windows_of_padding_only_give_the_bias():
    x, w = torch.full((1, 1, 4, 4), float("inf")), torch.ones(1, 1, 2, 2)
    b = torch.ones(1)
    check(
        lambda x, w, b: aten.convolution(x, w, b, [1, 1], [6, 6], [1, 1], False, [0, 0], 1), x, w, b
    )


def test_one_number_for_all_of_space():
    convolve(2, stride=[2], padding=[1], dilation=[1], kernel=3)


@pytest.mark.parametrize("channels, groups", [((6, 6), 6), ((6, 12), 6), ((6, 8), 2), ((8, 4), 4)])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_groups(channels, groups, transposed, bias):
    refused = {2: "windows", 3: "windows"} if transposed else None
    given = dict(groups=groups, transposed=transposed, bias=bias, refused=refused)
    convolve(2, channels, stride=2, padding=1, **given)


def test_a_range_of_channels_reads_its_groups_only():
    x, w = torch.randn(1, 6, 9), torch.randn(12, 2, 3)  # 3 groups, 2 channels to 4
    gm = traced(lambda x, w: aten.convolution(x, w, None, [1], [0], [1], False, [0], 3), (x, w))
    cut = cut_along(calls(gm)[-1], 1)
    assert [n.range for n in cut.needs(Range(4, 8))] == [Range(2, 4), Range(4, 8)]
    assert [n.range for n in cut.needs(Range(5, 7))] == [Range(2, 4), Range(5, 7)]
    assert [n.range for n in cut.needs(Range(3, 5))] == [Range(0, 4), Range(0, 8)]


@pytest.mark.parametrize("space", [1, 2, 3])
def test_transposed(space):
    refused = dict.fromkeys(range(2, 2 + space), "windows")
    convolve(space, transposed=True, stride=2, output_padding=1, refused=refused)


@pytest.mark.parametrize(
    "range, reads",
    [(Range(0, 3), Range(0, 6)), (Range(2, 4), Range(3, 8)), (Range(4, 6), Range(6, 11))],
)
def test_what_a_range_reads(range, reads):
    x, w = torch.randn(1, 1, 11, 9), torch.randn(1, 1, 3, 3)
    fn = lambda x, w: aten.convolution(x, w, None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1)  # noqa: E731
    need, _ = cut_along(calls(traced(fn, (x, w)))[-1], 2).needs(range)
    assert need.dim == 2 and need.range == reads


def test_convolutions_in_a_row_share_a_piece():
    """The first one computes what the second reads of it, and no more."""

    def fn(x, w):
        y = aten.convolution(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        y = torch.relu(y) + y
        return aten.convolution(y, w, None, [2, 2], [2, 2], [2, 2], False, [0, 0], 1)

    args = torch.randn(2, 3, 12, 10), torch.randn(3, 3, 3, 3)
    gm = traced(fn, args)
    values, last = all_values(gm, args), calls(gm)[-1]
    for dim in (2, 3):
        cuts = {node: (cut_along(node, dim), dim) for node in calls(gm)}
        for each in ranges(values[last].shape[dim]):
            piece, found = build(cuts, {last: each})
            want = values[last].narrow(dim, each.start, each.size)
            torch.testing.assert_close(run(piece, found[last], values), want)


def check_first(fn, x, refused=None):
    """Check what comes before the nodes that take one of several values."""
    check(fn, x, refused=refused, node=0)


POOLS = [
    dict(k=2),
    dict(k=3, s=2),
    dict(k=3, s=2, p=1),
    dict(k=3, s=1, p=1),
    dict(k=5, s=2, p=2),
    dict(k=4, s=1, p=2),
    dict(k=2, s=3),  # positions that nothing reads
    dict(k=2, s=4, p=1),
    dict(k=[3, 2], s=[2, 1], p=[1, 0]),
    dict(k=3, s=2, ceil=True),
    dict(k=2, s=2, p=1, ceil=True),
    dict(k=3, s=2, p=1, ceil=True),
    dict(k=4, s=3, p=2, ceil=True),
]


@pytest.mark.parametrize("sizes", [(4, 3, 11, 9), (4, 3, 12, 10), (2, 8, 13)])
@pytest.mark.parametrize("given", POOLS)
def test_maximum(given, sizes):
    k, s, p = given["k"], given.get("s", []), given.get("p", 0)
    ceil = given.get("ceil", False)
    check_first(lambda x: aten.max_pool2d_with_indices(x, k, s, p, 1, ceil), torch.randn(sizes))
    check_first(lambda x: aten.max_pool2d_with_indices(x, k, s, p, 2, ceil), torch.randn(sizes))


@pytest.mark.parametrize("given", POOLS)
@pytest.mark.parametrize("count", [True, False])
@pytest.mark.parametrize("divisor", [None, 5])
def test_average(given, count, divisor):
    k, s, p = given["k"], given.get("s", []), given.get("p", 0)
    ceil = given.get("ceil", False)
    check(lambda x: aten.avg_pool2d(x, k, s, p, ceil, count, divisor), PLANES)


@pytest.mark.parametrize("p, ceil", [(0, False), (1, False), (1, True)])
def test_pools_of_other_dims(p, ceil):
    line, space = torch.randn(2, 3, 13), torch.randn(2, 2, 9, 8, 7)
    check(lambda x: aten.avg_pool1d(x, [3], [2], [p], ceil), line)
    check(lambda x: aten.avg_pool3d(x, [3], [2], [p], ceil, False), space)
    check_first(lambda x: aten.max_pool3d_with_indices(x, [3, 2, 3], [2], [p], [1], ceil), space)


@pytest.mark.parametrize("value", [float("-inf"), float("nan"), 0.0])
def test_equal_values_have_the_same_indices(value):
    x = torch.full((1, 1, 9, 8), value)
    check_first(lambda x: aten.max_pool2d_with_indices(x, [3, 3], [1, 1], [1, 1]), x)


@pytest.mark.parametrize("s, p, d, ceil", [(2, 1, 1, False), (1, 0, 2, False), (2, 1, 1, True)])
def test_maximum_with_offsets(s, p, d, ceil):
    given = ([3, 3], [s, s], [p, p], [d, d])

    def offsets(x):
        return prims._low_memory_max_pool_with_offsets(x, *given, ceil)

    def indices(x):
        found = offsets(x)[1]
        return prims._low_memory_max_pool_offsets_to_indices(found, [3, 3], [11, 9], *given[1:])

    check_first(offsets, PLANES)
    check(indices, PLANES)


def test_what_a_pool_reads():
    gm = traced(lambda x: aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1]), [PLANES])
    cut = cut_along(calls(gm)[0], 2)
    reads = [cut.needs(each)[0].range for each in (Range(0, 2), Range(2, 4), Range(4, 6))]
    assert reads == [Range(0, 4), Range(3, 8), Range(6, 11)]  # the last one more than its windows


@pytest.mark.parametrize(
    "fn, code",
    [
        (lambda x: aten._adaptive_avg_pool2d(x, [3, 4]), "windows"),
        (lambda x: aten.adaptive_max_pool2d(x, [3, 4]), "windows"),
        (lambda x: aten.upsample_nearest2d(x, [22, 17]), "windows"),
        (lambda x: aten.upsample_nearest2d.vec(x, None, [2.0, 2.0]), "windows"),
        (lambda x: aten.upsample_bilinear2d(x, [22, 17], True), "windows"),
        (lambda x: aten.upsample_bilinear2d.vec(x, [22, 17], False, None), "windows"),
        (lambda x: aten.upsample_bicubic2d(x, [5, 4], False), "windows"),
        (lambda x: aten._upsample_bilinear2d_aa(x, [5, 4], False), "windows"),
    ],
)
def test_planes_only(fn, code):
    check_first(fn, PLANES, refused={2: code, 3: code})


def test_planes_without_a_batch():
    refused = {1: "windows", 2: "windows"}
    check(lambda x: aten._adaptive_avg_pool2d(x, [3, 4]), PLANES[0], refused=refused)
    check(lambda x: aten.upsample_nearest1d(x, [7]), PLANES[0], refused={2: "windows"})


def symbolic_batch(*args):
    """Fake tensors, the first of them with a batch of a size that isn't known; and the guards."""
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    ndim = args[0].ndim
    context = StatelessSymbolicContext(
        dynamic_sizes=[DimDynamic.DYNAMIC] + [DimDynamic.STATIC] * (ndim - 1)
    )
    first = mode.from_tensor(args[0], symbolic_context=context)
    return env, [first, *(mode.from_tensor(a, static_shapes=True) for a in args[1:])]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: aten.convolution(x, w, None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1),
        lambda x, w: aten.convolution(x, w[:, :1], None, [1, 1], [9, 9], [1, 1], False, [0, 0], 6),
        lambda x, w: aten.avg_pool2d(x, [3, 3], [2, 2], [1, 1], True, False),
    ],
)
def test_a_batch_of_unknown_size_stays_unknown(fn):
    env, fakes = symbolic_batch(PLANES, torch.randn(6, 6, 3, 3))
    node = calls(make_fx(fn)(*fakes))[-1]
    before = len(env.guards)
    for dim in (1, 2, 3):
        for each in ranges(node.meta["val"].shape[dim]):
            build({node: (cut_along(node, dim), dim)}, {node: each})
    assert len(env.guards) == before


def test_groups_of_unknown_number_are_refused():
    _, (x, w) = symbolic_batch(torch.randn(6, 2, 9), torch.randn(6, 1, 3))
    gm = make_fx(lambda x, w: aten.convolution(w, x, None, [1], [0], [1], False, [0], 1))(
        torch.randn(6, 2, 3), torch.randn(1, 2, 9)
    )
    node = calls(gm)[-1]
    node.args = (*node.args[:8], 2)
    node.meta["val"] = x.transpose(0, 1)  # with channels of unknown number
    with pytest.raises(CannotCut) as error:
        cut_along(node, 1)
    assert error.value.code == "kernel"


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: aten.convolution(x, w, None, [1, 1], [5, 5], [1, 1], False, [0, 0], 1),
        lambda x, w: aten.convolution(x, w[:, :1], None, [1, 1], [1, 1], [1, 1], False, [0, 0], 6),
        lambda x, w: aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1]),
        lambda x, w: prims._low_memory_max_pool_with_offsets(
            x, [3, 3], [2, 2], [1, 1], [1, 1], False
        ),
    ],
)
def test_pieces_compile(fn):
    """Inductor takes the operators that the pieces are made of, also those with several values."""
    from torch._inductor.compile_fx import compile_fx_inner

    args = (PLANES, torch.randn(6, 6, 3, 3))
    gm = traced(fn, args)
    values, node = all_values(gm, args), calls(gm)[0 if "pool" in str(calls(gm)[0]) else -1]
    whole = values[node] if isinstance(values[node], tuple) else (values[node],)
    for each in (Range(0, 2), Range(3, 5)):
        piece, found = build({node: (cut_along(node, 3), 3)}, {node: each})
        made = found[node]
        several = isinstance(made.meta["val"], tuple)
        results = [piece.call(operator.getitem, made, k) for k in (0, 1)] if several else [made]
        module = finished(piece, results)
        given = [real(i, values).contiguous() for i in piece.inputs]
        for holder, tensor in zip(module.graph.find_nodes(op="placeholder"), given):
            mode = holder.meta["val"].fake_mode
            holder.meta["val"] = mode.from_tensor(tensor)
        fakes = [n.meta["val"] for n in module.graph.find_nodes(op="placeholder")]
        with torch._guards.tracing(torch._guards.TracingContext(fakes[0].fake_mode)):
            compiled = compile_fx_inner(module, fakes)
        for got, all_ in zip(compiled(list(given)), whole, strict=True):
            torch.testing.assert_close(got, all_.narrow(3, each.start, each.size))


def differentiated(fn, x):
    """A function with the backward of `fn`, and its inputs."""

    def backward(grad, x):
        own = x.detach().requires_grad_()
        return torch.autograd.grad(fn(own), own, grad)[0]

    return backward, (torch.randn_like(fn(x)), x)


@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        (lambda x: F.max_pool2d(x, 2, padding=1), (7, 3, 8, 9)),
        (lambda x: F.max_pool3d(x, 2), (7, 3, 4, 5, 4)),
        (lambda x: F.avg_pool2d(x, 3, 2, 1), (7, 3, 8, 9)),
        (lambda x: F.avg_pool3d(x, 2), (7, 3, 4, 5, 4)),
        (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (7, 3, 8, 9)),
        (lambda x: F.adaptive_avg_pool3d(x, (3, 2, 2)), (7, 3, 8, 9, 4)),
        (lambda x: F.adaptive_max_pool2d(x, (3, 2)), (7, 3, 8, 9)),
        (lambda x: F.interpolate(x, scale_factor=2), (7, 3, 5)),
        (lambda x: F.interpolate(x, scale_factor=2), (7, 3, 5, 4)),
        (lambda x: F.interpolate(x, (9, 7), mode="bilinear"), (7, 3, 5, 4)),
        (lambda x: F.interpolate(x, (3, 7), mode="bilinear", antialias=True), (7, 3, 5, 4)),
        (lambda x: F.interpolate(x, (9, 7), mode="bicubic"), (7, 3, 5, 4)),
    ],
)
def test_gradients_of_windows_keep_planes_apart(fn, shape):
    backward, args = differentiated(fn, torch.randn(shape))
    made = calls(traced(backward, args))
    number = next(k for k, n in enumerate(made) if "backward" in str(n.target))
    refused = dict.fromkeys(range(2, len(shape)), "windows")
    check(backward, *args, refused=refused, node=number)
