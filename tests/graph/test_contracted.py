"""Products over the dim that is cut, and what the gradients of weights are made of."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torch_piecewise.graph.axes import PARTIAL_RULES, CannotCut, Range
from torch_piecewise.graph.normal import normalise
from torch_piecewise.graph.pieces import PieceGraph, finished

from .rules import all_values, calls, check, check_partial, ranges, run, traced

aten = torch.ops.aten
A, B = torch.randn(4, 7), torch.randn(7, 5)
BA, BB = torch.randn(3, 4, 7), torch.randn(3, 7, 5)


@pytest.mark.parametrize("source", [0, 1])
@pytest.mark.parametrize(
    ("fn", "args", "dims"),
    [
        (aten.mm, (A, B), (1, 0)),
        (aten.bmm, (BA, BB), (2, 1)),
        (aten.mv, (A, B[:, 0]), (1, 0)),
        (aten.dot, (A[0], B[:, 0]), (0, 0)),
        (lambda a, b: aten._int_mm(a, b), (A.to(torch.int8), B.to(torch.int8)), (1, 0)),
        (aten.mm, ((A * 5).long(), (B * 5).long()), (1, 0)),
        (aten.mm, (A.to(torch.complex64), B.to(torch.complex64)), (1, 0)),
        (lambda a, b: torch.einsum("bik,bkj->bij", a, b), (BA, BB), (2, 1)),
    ],
)
def test_products(fn, args, dims, source):
    gm = traced(fn, args)
    node = next(k for k, n in enumerate(calls(gm)) if n.target in PARTIAL_RULES)
    check_partial(fn, *args, dim=dims[source], node=node, source=source)


@pytest.mark.parametrize("source", [1, 2])
@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0.5, 1), (1, 2), (0.5, 3)])
@pytest.mark.parametrize("added", [(5,), (4, 1), (4, 5), (1, 1), ()])
def test_what_is_added_is_added_once(added, beta, alpha, source):
    def matrices(s, a, b):
        return aten.addmm(s, a, b, beta=beta, alpha=alpha)

    def batched(s, a, b):
        return aten.baddbmm(s, a, b, beta=beta, alpha=alpha)

    check_partial(matrices, torch.randn(added), A, B, dim=2 - source, source=source)
    check_partial(batched, torch.randn(added), BA, BB, dim=3 - source, source=source)


def test_vectors_are_added_too():
    fn = lambda s, a, v: aten.addmv(s, a, v, beta=2, alpha=3)  # noqa: E731
    check_partial(fn, torch.randn(4), A, B[:, 0], dim=0, source=2)


def test_what_counts_nothing_may_be_no_number():
    fn = lambda s, a, b: aten.addmm(s, a, b, beta=0)  # noqa: E731
    check_partial(fn, torch.full((5,), torch.nan), A, B, dim=1, source=1)


def combined(fn, args, source, dim):
    gm = traced(fn, args)
    call = next(n for n in calls(gm) if n.target in PARTIAL_RULES)
    values = all_values(gm, args)
    rule = PARTIAL_RULES[call.target](call, call.all_input_nodes[source], dim)
    parts = []
    for each in ranges(args[source].shape[dim]):
        piece = PieceGraph()
        parts.append(run(piece, rule.emit(piece, each), values))
    whole = PieceGraph()
    holders = [whole.graph.placeholder(f"part_{k}") for k in range(len(parts))]
    for holder, part in zip(holders, parts):
        holder.meta["val"] = part
    return parts, finished(whole, [rule.combine(whole, holders, [])])(*parts)[0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_parts_of_half_precision_are_float32(dtype):
    """A part of 1000 in half precision would lose the ones of the others."""
    left, right = torch.ones(2, 600).to(dtype), torch.ones(600, 3).to(dtype)
    left[:, :3] = 4 * 512
    parts, got = combined(aten.mm, (left, right), 0, 1)
    assert {p.dtype for p in parts} == {torch.float32}
    exact = (left.double() @ right.double()).to(dtype)
    assert got.dtype == dtype and torch.equal(got, exact)


def test_on_a_gpu_the_kernel_gives_float32():
    with FakeTensorMode():
        a, b = (torch.empty(32, 32, dtype=torch.half, device="cuda") for _ in range(2))
    gm = make_fx(aten.mm.default)(a, b)
    node = calls(gm)[-1]
    piece = PieceGraph()
    made = PARTIAL_RULES[node.target](node, node.args[0], 1).emit(piece, Range(3, 8))
    assert made.target is aten.mm.dtype and made.meta["val"].dtype == torch.float32


def refusal(fn, *args, source=0, dim=0):
    call = next(n for n in calls(traced(fn, args)) if n.target in PARTIAL_RULES)
    with pytest.raises(CannotCut) as raised:
        PARTIAL_RULES[call.target](call, call.all_input_nodes[source], dim)
    return raised.value.code


def test_refusals():
    assert refusal(aten.mm, A, B, dim=0) == "takes-all"
    assert refusal(aten.mm, A, B, source=1, dim=1) == "takes-all"
    assert refusal(aten.addmm, torch.randn(5), A, B) == "takes-all"


CONVOLUTIONS = {
    "plain": ((7, 4, 9, 8), (6, 4, 3, 3), {"padding": 1}),
    "strided": ((7, 4, 9, 8), (6, 4, 3, 3), {"stride": 2, "dilation": 2}),
    "groups": ((7, 4, 9, 8), (6, 2, 3, 3), {"groups": 2}),
    "one dim": ((7, 4, 9), (6, 4, 3), {}),
    "three dims": ((7, 2, 5, 4, 5), (3, 2, 3, 2, 3), {}),
}
OPERATORS = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}


def gradients(name, dtype=torch.float64):
    """A function with a convolution's backward, and its inputs."""
    shape, weight, options = CONVOLUTIONS[name]
    x, w = torch.randn(shape).to(dtype), torch.randn(weight).to(dtype)
    bias = torch.randn(weight[0]).to(dtype)

    def fn(grad, x, w, bias):
        own = [t.detach().requires_grad_() for t in (x, w, bias)]
        out = OPERATORS[x.ndim](*own, **options)
        return torch.autograd.grad(out, own, grad)

    entering = torch.randn_like(OPERATORS[x.ndim](x, w, bias, **options))
    return fn, (entering, x, w, bias)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_each_gradient_of_a_convolution_is_cut_along_the_batch(name):
    fn, args = gradients(name)
    gm = traced(fn, args)
    normalise(gm.graph)
    gm.recompile()
    for got, want in zip(gm(*args), fn(*args), strict=True):
        torch.testing.assert_close(got, want)
    backward = [n for n in calls(gm) if n.target is aten.convolution_backward.default]
    masks = [n.args[-1] for n in backward]
    assert masks == [[True, False, False], [False, True, False]]  # a sum is the bias's
    refused = dict.fromkeys(range(1, len(CONVOLUTIONS[name][0])), "windows")
    number = calls(gm).index(backward[0])
    check(gm, *args, refused=refused, node=number)
    for source in (0, 1):
        check_partial(gm, *args, dim=0, node=calls(gm).index(backward[1]), source=source)


def test_a_gradient_in_half_precision():
    fn, args = gradients("plain", torch.bfloat16)
    gm = traced(fn, args)
    normalise(gm.graph)
    gm.recompile()
    node = [n.target for n in calls(gm)].index(aten.convolution_backward.default)
    check_partial(gm, *args, dim=0, node=node + 2)
