"""Attention, cut along batch, heads and rows of the query."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx

from torch_piecewise.graph.axes import RULES, CannotCut, Range
from torch_piecewise.graph.pieces import build, finished

from .rules import all_values, calls, check, ranges, real, run, traced

aten = torch.ops.aten
on_cpu = aten._scaled_dot_product_flash_attention_for_cpu.default
efficient = aten._scaled_dot_product_efficient_attention.default
flash = aten._scaled_dot_product_flash_attention.default
cudnn = aten._scaled_dot_product_cudnn_attention.default
overrideable = aten._scaled_dot_product_fused_attention_overrideable.default
math = aten._scaled_dot_product_attention_math.default

Q, K, V = torch.randn(3, 4, 11, 8), torch.randn(3, 4, 11, 8), torch.randn(3, 4, 11, 8)
K_LONG, V_LONG = torch.randn(3, 4, 17, 8), torch.randn(3, 4, 17, 8)
K_SHORT, V_SHORT = torch.randn(3, 4, 5, 8), torch.randn(3, 4, 5, 8)


def check_values(fn, *args, dims=(0, 1, 2)):
    """Compare the result and its logsumexp, range by range."""
    gm = traced(fn, args)
    values, node = all_values(gm, args), calls(gm)[0]
    check_node(node, values, dims)


def check_node(node, values, dims=(0, 1, 2)):
    for dim in dims:
        cut = RULES[node.target](node, dim)
        for each in ranges(values[node][0].shape[dim]):
            piece, found = build({node: (cut, dim)}, {node: each})
            got = run(piece, found[node], values)
            traced_values = found[node].meta["val"]
            for part, fake, whole in zip(got[:2], traced_values, values[node][:2]):
                want = whole.narrow(dim, each.start, each.size)
                torch.testing.assert_close(part, want)
                assert part.dtype == want.dtype and part.shape == fake.shape


def refused(node, dim):
    with pytest.raises(CannotCut) as error:
        RULES[node.target](node, dim)
    return error.value.code


@pytest.mark.parametrize("k, v", [(K, V), (K_LONG, V_LONG), (K_SHORT, V_SHORT)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_on_the_cpu(k, v, causal, scale):
    check_values(lambda q, k, v: on_cpu(q, k, v, 0.0, causal, scale=scale), Q, k, v)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_causal_in_other_types(dtype):
    q, k, v = (t.to(dtype) for t in (Q, K, V))
    check_values(lambda q, k, v: on_cpu(q, k, v, 0.0, True), q, k, v)


@pytest.mark.parametrize(
    "sizes", [(11, 17), (1, 17), (3, 4, 11, 17), (1, 1, 11, 17), (3, 1, 1, 17), (1, 4, 11, 17)]
)
def test_masks_spread(sizes):
    mask = torch.randn(sizes)
    fn = lambda q, k, v, m: on_cpu(q, k, v, attn_mask=m)  # noqa: E731
    check_values(fn, Q, K_LONG, V_LONG, mask)


def test_one_node_in_all_places():
    check_values(lambda x: on_cpu(x, x, x), Q)
    check_values(lambda x: on_cpu(x, x, x, 0.0, True), Q)
    node = calls(traced(lambda x: on_cpu(x, x, x), [Q]))[0]
    (x,) = node.all_input_nodes
    assert RULES[on_cpu](node, 2).inputs == ((x, 2), (x, None), (x, None))
    assert RULES[on_cpu](node, 1).inputs == ((x, 1), (x, 1), (x, 1))


def test_causal_rows_leave_out_later_columns():
    node = calls(traced(lambda q, k, v: on_cpu(q, k, v, 0.0, True), (Q, K, V)))[0]
    cut = RULES[on_cpu](node, 2)

    def call_of(each: Range) -> Node:
        return build({node: (cut, 2)}, {node: each})[1][node]

    first, later = call_of(Range(0, 3)), call_of(Range(3, 6))
    assert first.args[4] is True and "attn_mask" not in first.kwargs
    key = later.args[1].meta["val"]
    assert key.shape[2] == 6 and later.kwargs["attn_mask"].meta["val"].shape == (3, 6)
    assert len(later.args) == 3  # neither dropout nor causal


def test_what_is_refused():
    def node_of(fn, *args):
        return calls(traced(fn, args))[0]

    few = torch.randn(3, 2, 11, 8)
    masked = node_of(lambda q, m: on_cpu(q, q, q, 0.0, True, attn_mask=m), Q, torch.randn(11, 11))
    assert refused(masked, 2) == "kernel"
    assert refused(node_of(lambda q: on_cpu(q, q, q), Q), 3) == "reduced"
    shared = by_hand(math, Q, few, few, enable_gqa=True)
    assert refused(shared, 1) == "shared"
    RULES[math](shared, 0)
    RULES[math](shared, 2)
    assert refused(by_hand(math, Q, K, V, None, 0.5), 0) == "random"
    assert refused(by_hand(math, Q[0], K[0], V[0]), 0) == "no-rule"
    assert refused(by_hand(math, Q, K[:1], V[:1]), 0) == "shared"


def by_hand(target, *args, **kwargs) -> Node:
    """A call of an operator that tracing would take apart, or that doesn't run here."""
    graph, given = Graph(), []
    mode = next((a.fake_mode for a in args if hasattr(a, "fake_mode")), None) or FakeTensorMode()
    for arg in args:
        if isinstance(arg, Tensor):
            holder = graph.placeholder(f"arg_{len(given)}")
            holder.meta["val"] = arg if hasattr(arg, "fake_mode") else mode.from_tensor(arg)
            arg = holder
        given.append(arg)
    node = graph.call_function(target, tuple(given), kwargs)
    with mode:
        node.meta["val"] = target(
            *(a.meta["val"] if isinstance(a, Node) else a for a in given), **kwargs
        )
    return node


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_math(causal, masked):
    if causal and masked:
        return
    args = [Q, K, V, torch.randn(3, 1, 11, 11) if masked else None, 0.0, causal]
    node = by_hand(math, *args)
    values = dict(zip(node.all_input_nodes, (a for a in args if isinstance(a, Tensor))))
    check_node(node, {**values, node: math(*args)})


def cuda(*sizes, dtype=torch.half):
    return torch.empty(sizes, dtype=dtype, device="cuda")


def on_cuda(target, *further, mask=None, rows=48, columns=48):
    with FakeTensorMode():
        q, k, v = cuda(2, 4, rows, 64), cuda(2, 4, columns, 64), cuda(2, 4, columns, 64)
        bias = None if mask is None else cuda(*mask)
    place = () if target is flash else (bias,)
    return by_hand(target, q, k, v, *place, *further)


FURTHER = {
    efficient: (False, 0.0),
    flash: (0.0,),
    cudnn: (True, 0.0),
    overrideable: (0.0,),
}


@pytest.mark.parametrize("target", FURTHER)
@pytest.mark.parametrize("causal", [False, True])
def test_shapes_on_cuda(target, causal):
    node = on_cuda(target, *FURTHER[target], causal)
    for dim in range(3):
        if dim == 2 and causal and target is flash:
            assert refused(node, dim) == "kernel"
            continue
        cut = RULES[target](node, dim)
        for each in (Range(0, 1), Range(1, 2)) if dim < 2 else (Range(0, 16), Range(16, 41)):
            _, found = build({node: (cut, dim)}, {node: each})
            values = found[node].meta["val"]
            want = list(node.meta["val"][0].shape)
            want[dim] = each.size
            assert list(values[0].shape) == want and values[0].device.type == "cuda"
            assert values[1].shape[dim] == each.size or target is efficient


@pytest.mark.parametrize("target", [efficient, cudnn, overrideable])
def test_causal_masks_are_aligned(target):
    """Kernels on GPUs read a mask of all heads, its rows 16 elements aligned."""
    node = on_cuda(target, *FURTHER[target], True)
    _, found = build({node: (RULES[target](node, 2), 2)}, {node: Range(16, 41)})
    mask = found[node].args[3].meta["val"]
    assert mask.shape == (2, 4, 25, 41) and mask.stride() == (0, 0, 48, 1)
    assert mask.dtype == torch.half and mask.device.type == "cuda"


@pytest.mark.parametrize("target", [efficient, cudnn, overrideable])
def test_bias_is_cut_along(target):
    node = on_cuda(target, *FURTHER[target], mask=(2, 1, 48, 48))
    bias = node.args[3]
    assert [dict(RULES[target](node, d).inputs)[bias] for d in range(3)] == [0, None, 2]


def test_a_logsumexp_that_is_padded_keeps_rows_together():
    node = on_cuda(efficient, True, 0.0)
    RULES[efficient](node, 2)  # nobody reads it
    node.graph.call_function(operator.getitem, (node, 0))
    RULES[efficient](node, 2)
    node.graph.call_function(operator.getitem, (node, 1))
    assert refused(node, 2) == "kernel"
    RULES[efficient](node, 1)


def test_causal_rows_compile():
    """Inductor takes the mask that a piece makes."""
    from torch._inductor.compile_fx import compile_fx_inner

    gm = traced(lambda q, k, v: on_cpu(q, k, v, 0.0, True), (Q, K, V))
    values, node = all_values(gm, (Q, K, V)), calls(gm)[0]
    each = Range(3, 6)
    piece, found = build({node: (RULES[on_cpu](node, 2), 2)}, {node: each})
    module = finished(piece, [piece.call(operator.getitem, found[node], 0)])
    given = [real(i, values).contiguous() for i in piece.inputs]
    for holder, tensor in zip(module.graph.find_nodes(op="placeholder"), given):
        holder.meta["val"] = holder.meta["val"].fake_mode.from_tensor(tensor)
    fakes = [n.meta["val"] for n in module.graph.find_nodes(op="placeholder")]
    with torch._guards.tracing(torch._guards.TracingContext(fakes[0].fake_mode)):
        (got,) = compile_fx_inner(module, fakes)(list(given))
    torch.testing.assert_close(got, values[node][0][:, :, 3:6])


def test_a_batch_of_unknown_size_stays_unknown():
    from .test_windows import symbolic_batch

    env, (q,) = symbolic_batch(Q)
    node = calls(make_fx(lambda q: on_cpu(q, q, q, 0.0, True))(q))[0]
    before = len(env.guards)
    for dim in (1, 2):
        for each in ranges(node.meta["val"][0].shape[dim]):
            build({node: (RULES[on_cpu](node, dim), dim)}, {node: each})
    assert len(env.guards) == before


def test_masks_of_a_batch_of_unknown_size():
    from .test_windows import symbolic_batch

    env, (q,) = symbolic_batch(Q)
    node = by_hand(efficient, q, q, q, None, False, 0.0, True)
    before = len(env.guards)
    piece, found = build({node: (RULES[efficient](node, 2), 2)}, {node: Range(3, 6)})
    assert len(env.guards) == before
    sizes = [n for n in piece.graph.nodes if n.target is aten.sym_size.int]
    assert len(sizes) == 1 and sizes[0] in found[node].args[3].args[1]


def gradients_on_cpu(q, k, v, mask=None, causal=False):
    """A function with the backward of attention, and its inputs."""

    def fn(grad, q, k, v, mask):
        out, logsumexp = on_cpu(q, k, v, 0.0, causal, attn_mask=mask)
        backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
        return backward(grad, q, k, v, out, logsumexp, 0.0, causal, attn_mask=mask)

    return fn, (torch.randn_like(q), q, k, v, mask)


@pytest.mark.parametrize(("k", "v"), [(K, V), (K_LONG, V_LONG)])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_along_batch_and_heads(k, v, causal):
    fn, args = gradients_on_cpu(Q, k, v, None, causal)
    check(fn, *args, refused={2: "reduced", 3: "reduced"}, node=_backward(fn, args))


@pytest.mark.parametrize("shape", [(3, 4, 11, 11), (3, 1, 11, 11), (1, 4, 11, 11), (11, 11)])
def test_gradients_with_a_mask(shape):
    fn, args = gradients_on_cpu(Q, K, V, torch.randn(shape))
    check(fn, *args, refused={2: "reduced", 3: "reduced"}, node=_backward(fn, args))


def _backward(fn, args):
    names = [str(n.target) for n in calls(traced(fn, args))]
    return next(k for k, name in enumerate(names) if "backward" in name)


ON_CUDA = {
    "efficient": (
        aten._scaled_dot_product_efficient_attention_backward.default,
        lambda bias, q, lse, seed: (bias, q, lse, seed, seed, 0.0, [True, True, True, False]),
    ),
    "flash": (
        aten._scaled_dot_product_flash_attention_backward.default,
        lambda bias, q, lse, seed: (q, lse, None, None, 48, 48, 0.0, False, seed, seed),
    ),
    "cudnn": (
        aten._scaled_dot_product_cudnn_attention_backward.default,
        lambda bias, q, lse, seed: (q, lse, seed, seed, bias, None, None, 48, 48, 0.0, False),
    ),
}


@pytest.mark.parametrize("name", ON_CUDA)
@pytest.mark.parametrize("dim", [0, 1])
def test_gradients_on_cuda(name, dim):
    """The calls that are written have what the kernels of each kind take."""
    target, further = ON_CUDA[name]
    graph = Graph()
    with FakeTensorMode():
        q = torch.empty(2, 4, 48, 16, dtype=torch.half, device="cuda")
        lse = torch.empty(2, 4, 48, dtype=torch.float32, device="cuda")
        bias = torch.empty(2, 1, 48, 48, dtype=torch.half, device="cuda")
        seed = torch.empty((), dtype=torch.int64, device="cuda")

        def holder(kind, val):
            made = graph.placeholder(kind)
            made.meta["val"] = val
            return made

        grad, query, key, values, out = (holder(n, q) for n in ("g", "q", "k", "v", "o"))
        rest = further(holder("b", bias), out, holder("l", lse), holder("s", seed))
        node = graph.call_function(target, (grad, query, key, values, *rest))
        node.meta["val"] = (q, q, q)
        cut = RULES[target](node, dim)
        taken = dict(cut.inputs)
        assert [taken[n] for n in (grad, query, key, values, out)] == [dim] * 5
        held = {n.name: d for n, d in taken.items()}
        assert held["l"] == dim and held["s"] is None
        if name != "flash":
            assert held["b"] == (0 if dim == 0 else None)
    assert refused(node, 2) == "reduced"
