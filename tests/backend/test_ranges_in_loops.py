"""`stitch="loops"`: the loops of a graph that is compiled as one, cut at the user's ranges."""

from __future__ import annotations

import math
import re

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._inductor.utils import run_and_get_code
from torch.utils._pytree import tree_leaves

import torch_piecewise

from .harness import assert_near, assert_same, clone


def compiled(fn, dynamic=False, **options):
    torch._dynamo.reset()
    options = {"stitch": "loops", **options}
    return torch.compile(fn, backend="piecewise", options=options, dynamic=dynamic)


def explained(fn, *args, **options):
    return torch_piecewise.explain(fn, args, options={"stitch": "loops", **options})


def counts(explanation):
    """Of each graph: in how many pieces each nest is."""
    return [[len(nest.pieces) for nest in plan.nests] for plan in explanation.plans]


def fn(x):
    return torch.relu(x) * 2 + 1


X = torch.randn(1000, 512)
ROWS = torch.randn(100, 64)


def kernel_of(fn, *args, **options):
    """The C++ of the one kernel, and the result."""
    with torch.compiler.config.patch(force_disable_caches=True):
        result, (code,) = run_and_get_code(compiled(fn, **options), *args)
    (kernel,) = re.findall(r"cpp_pybinding\(.*?r'''(.*?)'''", code, re.S)
    return kernel, result


def test_one_function_a_range_and_one_entry_that_calls_them():
    kernel, result = kernel_of(fn, X, ranges=[0, 256, 512, None])
    assert torch.equal(result, fn(X))
    head, entry = kernel.split('extern "C"  void')  # the functions, and what is called from Python
    names = [
        f"piecewise_op0_range_{k}_from_{a}_to_{b}"
        for k, a, b in ((1, 0, 256), (2, 256, 512), (3, 512, 1000))
    ]
    assert re.findall(r"void (\w+)\(", head) == names
    assert re.findall(r"(\w+)\(in_ptr0, out_ptr0\);", entry) == names and "for(" not in entry
    assert "// range 2 of 3: [256, 512) of dim 0 of the output" in head
    first, second, third = re.split(r"// range \d", head)[1:]
    assert "x0 + 0" not in first and f"{256 * 512}L + x0" in second
    assert f"x0<static_cast<int64_t>({488 * 512}L)" in third
    if torch.backends.cpu.get_cpu_capability() != "DEFAULT":
        assert all("Vectorized<float>::loadu" in part for part in (first, second, third))


def test_nests_that_share_loops_and_seams_inside_of_the_ranges():
    kernel, result = kernel_of(lambda x: torch.softmax(x, 1) * 2, X, ranges=[0, 256, None])
    torch.testing.assert_close(result, torch.softmax(X, 1) * 2)
    assert len(re.findall(r"void piecewise_op0_range_\d", kernel)) == 2
    padded = lambda x: F.pad(x * 2, (0, 0, 3, 4))  # noqa: E731
    kernel, result = kernel_of(padded, X, ranges=[0, 256, None], split="seams")
    assert torch.equal(result, padded(X))
    texts = re.split(r"// range \d", kernel)[1:]
    assert [text.count("// piece") for text in texts] == [2, 2]  # what is padded is a piece of each
    kernel, _ = kernel_of(padded, X, ranges=2, split="off")
    assert kernel.count("// piece") == 2
    kernel, _ = kernel_of(padded, X, ranges=2, split="seams", piece_functions=True)
    assert re.findall(r"void (piecewise_op0_\d)\(", kernel) == [
        f"piecewise_op0_{k}" for k in range(4)
    ]


def attended(q, k):
    q, k = (each.view(100, 1, 4, 16) for each in (q, k))
    return F.scaled_dot_product_attention(q, k, k)


CASES = {  # a function, the dim, and in how many pieces each nest is, of ranges [0, 1, 34, None]
    "rows of products": (lambda x: torch.relu(x.sin() @ x.t()) @ x.cos() + 1, 0, [3, 3, 3]),
    "attention": (lambda x: attended(x * 2, x + 1) * 2, 0, [3, 3]),
    "columns of a product": (lambda x: torch.relu(x @ x.t()) + 1, 1, [3]),
    "softmax along rows": (lambda x: torch.softmax(x, 1) * 2, 0, [3, 3, 3]),
    "softmax over what is cut": (lambda x: torch.softmax(x, 0) * 2, 0, [1, 3, 1, 3]),
    "layer_norm": (lambda x: F.layer_norm(x, (64,)), -2, [3, 3, 3, 3]),
    "transposed": (lambda x: (x.t().exp(), x.relu()), 1, [3]),
    "sliced": (lambda x: x.cumsum(1)[5:95].sin() + 1, 0, [3]),
    "joined along it": (lambda x: torch.cat([x.cumsum(1), x * 2], 0)[1:], 0, [3, 1]),
    "joined beside it": (lambda x: torch.cat([x.cumsum(1), x * 2], 1) + 1, 0, [3]),
    "rolled": (lambda x: x.roll(7, 0) + 1, 0, [3]),
    "values and places": (lambda x: x.max(1), 0, [3]),
    "inside of a merged loop": (lambda x: x.view(2, 50, 64).relu() * 2, 1, [3]),
    "all of what is merged": (lambda x: x.view(50, 2, 64).relu().view(100, 64) * 2, 0, [3]),
    "channels": (lambda x: F.batch_norm(x.t()[None], None, None, training=True), -1, None),
    "columns": (lambda x: x.relu() * 2, 1, [3]),
}


@pytest.mark.parametrize("name", CASES)
def test_cut_along_a_dim(name):
    case, dim, wanted = CASES[name]
    options = {"ranges": [0, 1, 34, None], "dim": dim}
    assert_near(compiled(case, **options)(ROWS), case(ROWS), name)
    found = counts(explained(case, ROWS, **options))
    assert wanted is None or found == [wanted]


SHAPES = st.lists(st.integers(2, 9), min_size=2, max_size=4)


@settings(max_examples=6)
@given(SHAPES, st.data())
def test_drawn_ranges_give_the_same_bits_as_plain_inductor(shape, data):
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    bounds = data.draw(st.lists(st.integers(0, shape[dim]), max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    threads = data.draw(st.integers(1, 2))

    def drawn(x):
        y = x.permute(order) * 2 + 1
        part = y.narrow(dim, 1, y.shape[dim] - 1)
        return y.relu(), torch.where(y > 0, y, 3.0).sum(dim), torch.cat([part, y], dim)

    x = torch.randn(math.prod(shape)).view([shape[order.index(k)] for k in range(len(shape))])
    ranges = [0, *sorted(bounds), None]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        got = compiled(drawn, ranges=ranges, dim=dim)(clone(x))
        torch._dynamo.reset()
        assert_same(got, torch.compile(drawn)(clone(x)), what=f"{ranges} of dim {dim}")
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("ranges", [[0, 1000, 2000, None], 3, [0.0, 0.3, 1.0]])
def test_a_size_that_is_not_known(ranges):
    def padded(x):
        return F.pad(x.relu() * 2, (0, 0, 3, 4)) + 1

    step = compiled(padded, dynamic=True, ranges=ranges)
    for rows in (3000, 1500, 993, 20, 7):
        x = torch.randn(rows, 8)
        assert torch.equal(step(x), padded(x)), rows


def test_functions_of_a_size_that_is_not_known():
    step = compiled(fn, dynamic=True, ranges=[0, 600, None])
    with torch.compiler.config.patch(force_disable_caches=True):
        _, (code,) = run_and_get_code(step, X)
    first, second = re.findall(r"void (piecewise_\w+)\(", code)
    assert first.endswith("range_1_from_0_to_600")
    assert re.search(r"range_2_from_600_to_\w*s\d+$", second)
    assert "600L*ks" in code


def gradients(step, args):
    own = [a.detach().clone().requires_grad_() for a in args]
    out = step(*own)
    out.backward(torch.full_like(out, 0.5))
    return [out.detach(), *(a.grad for a in own)]


@pytest.mark.parametrize(
    "trained", [lambda x, w: (x @ w).relu() * 2, lambda x, w: torch.softmax(x, 1) * x]
)
def test_training(trained):
    args = [ROWS, torch.randn(64, 32)]
    got, want = gradients(compiled(trained, ranges=3), args), gradients(trained, args)
    for a, b in zip(tree_leaves(got), tree_leaves(want), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    shown = [a.clone().requires_grad_() for a in args]
    forward, backward = explained(trained, *shown, ranges=3).plans
    assert all(len(nest.pieces) == 3 for nest in (*forward.nests, *backward.nests))
    assert "dim 0 of the gradient" in str(backward.nests[0].reason)
    assert {nest.reason.code for nest in backward.nests} == {"ranges"}


def test_a_backward_that_has_not_the_dim_is_left():
    x = ROWS.clone().requires_grad_()
    found = explained(lambda x: (x.detach() * 2, x[:, :3].sin().sum()), x, ranges=3)
    forward, backward = counts(found)
    assert 3 in forward and set(backward) == {1}
    _, backward = found.plans
    assert "no loop is cut at the ranges given" in str(backward.notes[0])


def test_what_is_left_says_why():
    text = str(explained(lambda x: torch.softmax(x, 0) * 2, ROWS, ranges=3))
    assert "3 of the ranges given for dim 0 of the output, along i0 [ranges]" in text
    assert "not cut at the ranges given: it reduces dim 0 of the output, in r0" in text


@pytest.mark.parametrize("size", [0, 1])
def test_where_there_is_nothing_to_cut(size):
    x = torch.randn(size, 5)
    step = lambda x: (x.sin(), x.sum(0))  # noqa: E731
    assert_near(compiled(step, ranges=3)(x), step(x))
    if size:
        assert "[0, 1) is all of dim 0" in str(explained(step, x, ranges=3))


@pytest.mark.parametrize(
    ("step", "ranges", "said"),
    [
        (lambda x: x @ x.t(), 3, "aten.mm.default (mm) is in the way"),
        (lambda x: x.sort(0)[0], 3, "aten.sort.default (sort) is in the way"),
        (lambda x: (x.relu(), x.sum(), x.amax(0)), 3, "of relu, sum_1 is in the way, not cut"),
        (lambda x: x.relu(), [0, 60, 50, 100], "range 1 would be [60, 50)"),
        (lambda x: x.relu(), [0, 50, 120], "range 1, [50, 120), runs past the end of dim 0"),
        (lambda x: x.relu(), [0, 90], "[90, 100) of dim 0 is in no range"),
        (lambda x: x.sum(), 3, "no dim 0"),
        (
            lambda x: (x.view(10, 10, 64) + x.view(10, 10, 64).transpose(0, 1)).view(100, 64),
            3,
            "34 is inside a step of i0, which goes over several loops",
        ),
    ],
)
def test_what_can_not_be_cut_is_an_error_also_from_a_cache(step, ranges, said):
    for _ in range(2):
        with pytest.raises(Exception, match="RangeError") as caught:
            compiled(step, ranges=ranges)(ROWS)
        assert said in str(caught.value)
