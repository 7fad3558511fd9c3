"""Seams on reduction axes: parts of a reduction that add to the same accumulators."""

import pytest
import torch
import torch.nn.functional as F
from torch import cat, roll, where
from torch._inductor.utils import run_and_get_code

import torch_piecewise

from .harness import Runs, assert_near, assert_same, compiled, plain, same_as_plain
from .table import columns, rows, tensor

A, B = (20, 150), (37, 53)

# what is reduced: a boundary on the last axis, on the first, on both
SEAMS = {
    "pad": lambda x: F.pad(x, (3, 2), value=1),
    "pad_both": lambda x: F.pad(x, (3, 2, 1, 4), value=1),
    "mask": lambda x: where(columns(x) < 41, x, x * 2 + 1),
    "row_mask": lambda x: where(rows(x) < 11, x, x * 2 + 1),
    "roll": lambda x: roll(x, (5, -3), (0, 1)) + x,
    "cat": lambda x: cat([x * 2, x[:, :5] + 1, x], 1),
}
# exact reductions give the bits of plain Inductor; the others add in another order
EXACT = {
    "max": lambda x, d: x.amax(d),
    "min": lambda x, d: x.amin(d),
    "any": lambda x, d: (x > 1).any(d),
    "all": lambda x, d: (x < 3).all(d),
    "argmax": lambda x, d: x.argmax(d),
    "argmin": lambda x, d: x.argmin(d),
    "count": lambda x, d: (x > 0).sum(d),
}
NEAR = {
    "sum": lambda x, d: x.sum(d) * 2 + 1,
    "prod": lambda x, d: (x * 0.01 + 1).prod(d),
    "two": lambda x, d: (x.sum(d), (x * 2 + 1).amax(d)),
    "variance": lambda x, d: torch.var_mean(x, d),
    "softmax": lambda x, d: x.softmax(d),
}


def over(kind, dims, seams=tuple(SEAMS)):
    """One function of all of them: kernels build side by side."""
    return lambda x: [kind(SEAMS[seam](x), d) for seam in seams for d in dims]


def nests(fn, *args, split="seams", **kwargs):
    shown = torch_piecewise.explain(fn, args, options={"split": split}, **kwargs)
    return [nest for plan in shown.plans for nest in plan.nests]


def cut_reductions(fn, *args, **kwargs):
    """The nests that are cut on a reduction axis."""

    def ranges(nest, axis):
        return {tuple(r) for p in nest.pieces for r in p.box if r[0] == axis.name}

    found = nests(fn, *args, **kwargs)
    return [n for n in found if any(a.reduce and len(ranges(n, a)) > 1 for a in n.axes)]


@pytest.mark.parametrize("kind", EXACT)
def test_exact(kind):
    same_as_plain(over(EXACT[kind], (0, 1)), tensor(B))


@pytest.mark.parametrize("kind", NEAR)
def test_near(kind):
    same_as_plain(over(NEAR[kind], (0, 1)), tensor(B), exact=False)


def test_reduction_axes_are_cut():
    """Every kind: each has a nest of its own, since each reads another input."""
    kinds = {**EXACT, **NEAR}

    def fn(*inputs):
        return [over(kind, (1,), ["pad"])(x) for kind, x in zip(kinds.values(), inputs)]

    assert len(cut_reductions(fn, *(tensor(A) for _ in kinds))) >= len(kinds)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_floats(dtype):
    def fn(x):
        y = F.pad(x, (3, 2), value=1)
        return (
            y.sum(1),
            y.amax(1),
            y.argmin(1),
            y.var(1),
            y.softmax(1),
            F.pad(x, (0, 0, 5, 0)).sum(0),
        )

    same_as_plain(fn, tensor(A, dtype), exact=False)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
def test_integers(dtype):
    def fn(x):
        y = F.pad(x, (3, 2), value=1)
        z = F.pad(x, (0, 0, 5, 1))
        whole = y.int() if dtype == torch.bool else y
        return y.sum(1), whole.amax(1), whole.argmax(1), y.any(1), z.sum(0), z.any(0)

    # eager's any() of bytes gives bytes
    same_as_plain(fn, tensor(A, dtype), eager=dtype != torch.uint8)


# ---- positions and ties ----------------------------------------------------------------------


def test_the_first_of_equal_elements_is_found():
    """Equal elements stand in different parts, in every order."""

    def fn(x):
        y = cat([x[:, :7] * 1, x, x[:, 3:9] * 1], 1)
        z = F.pad(x, (2, 2, 2, 2), value=3)
        return (
            y.argmax(1),
            y.argmin(1),
            z.argmax(),
            z.argmin(),
            z.argmax(0),
            y.max(1),
            z.t().argmax(0),
        )

    x = tensor(B).round().clamp(-3, 3)
    same_as_plain(fn, x)
    assert len(cut_reductions(fn, x)) == 4


def test_nan_and_infinity():
    def fn(x):
        y = F.pad(x, (20, 20), value=float("-inf"))
        return y.argmax(1), y.argmin(1), y.amax(1), y.amin(1), y.max(1), F.pad(x, (1, 1)).sum(1)

    x = tensor(B)
    x[3, 5] = x[3, 40] = x[4, 0] = float("nan")
    x[5] = float("-inf")
    x[6] = float("inf")
    same_as_plain(fn, x)


# ---- precision -------------------------------------------------------------------------------


def test_long_sums_stay_precise():
    """Inductor adds more than 4096 floats chunk by chunk; so do parts, as short as they may be."""

    def fn(x):
        y = F.pad(x, (3, 2), value=0.1)
        return y.sum(1), where(columns(x) < 3_000, x, x * 2).sum(1), F.pad(x, (1, 1, 1, 1)).sum()

    x = torch.rand(3, 70_001)
    same_as_plain(fn, x, exact=False)
    for got, exact in zip(compiled(fn, "seams")(x), fn(x.double()), strict=True):
        assert ((got - exact).abs() / exact).max() < 2e-6
    assert kernel(source(fn, x)).count("cascade_sum_combine") >= 3 + 2, "a part adds one by one"


def test_variance_counts_every_element_once():
    """Masked ends of several lengths: each lane of a vector has had its own number of elements."""

    def fn(x):
        parts = cat([x, x[:, :3] + 10, x[:, :30] * 5, x[:, :1]], 1)
        return F.layer_norm(parts, parts.shape[1:]), torch.var_mean(parts, 1)

    x = tensor((5, 1301))
    same_as_plain(fn, x, exact=False)
    _, code = run_and_get_code(compiled(fn, "seams"), x)
    assert "earlier_masked" in code[0], "no variance has two masked ends: the test is idle"


# ---- the code --------------------------------------------------------------------------------


def source(fn, *args, split="seams", **kwargs):
    torch._dynamo.reset()
    return run_and_get_code(compiled(fn, split, **kwargs), *args)[1][0]


def kernel(code):
    """The C++ of a wrapper, without the plans in its comments."""
    return code[code.index("#include") :]


def test_one_set_of_accumulators():
    code = kernel(source(lambda x: F.pad(x, (3, 2), value=1).mul(2).sum(1), tensor(A)))
    assert code.count("float tmp_acc0 = 0;") == 1
    for k in (1, 2, 3):
        assert code.count(f"// piece {k} of 3: i0 in [0, 20), r0 in [") == 1
    assert "?" not in code and "if (" not in code, "a condition is left"
    assert "Vectorized<float>::loadu" in code


def test_a_part_that_adds_nothing_has_no_loop():
    def summed(x):
        return where(columns(x) < 41, x * 3, 0).sum(1)

    def largest(x):
        return where(columns(x) < 41, x.exp(), -torch.inf).amax(1)

    for fn in (summed, largest):
        same_as_plain(fn, tensor(A), exact=False)
        code = kernel(source(fn, tensor(A)))
        assert (
            "for(" not in code[code.index("// piece 2 of 2") : code.index("div_error_flag = nul")]
        )


def test_what_follows_a_reduction_and_what_goes_beside_it():
    """Pointwise over the reduced axis in the same loop, and a result used in the same kernel."""

    def fn(x):
        y = F.pad(x, (3, 2), value=1).mul(2)
        return y, y.sum(1) + 1, y.amax(1).exp()

    same_as_plain(fn, tensor(B), exact=False)
    same_as_plain(fn, tensor(B)[:, ::2], exact=False)


# ---- sizes, gradients, threads ---------------------------------------------------------------


def test_dynamic_sizes():
    def fn(x):
        y = F.pad(x, (3, 2), value=1)
        return y.sum(1), y.argmax(1), y.var(1), F.pad(x, (0, 0, 1, 1)).amax(0), y.sum(0)

    torch._dynamo.reset()
    variants = {"plain": plain(fn, dynamic=True), "seams": compiled(fn, "seams", dynamic=True)}
    runs = Runs(fn, exact=False)
    for shape in (A, B, (3, 9), (70, 16), (2, 2)):
        runs.check(variants, (tensor(shape),))


def test_gradients():
    def fn(x):
        y = cat([x[:, :40].tanh(), x.sin()], 1)
        return y.softmax(1).square().sum() + F.pad(x, (3, 2)).std(1).sum() + y.sum(0).sin().sum()

    results = []
    for call in (compiled(fn, "seams"), plain(fn), fn):
        torch._dynamo.reset()
        x = tensor(B, rng=torch.Generator().manual_seed(0)).requires_grad_()
        results.append(torch.autograd.grad(call(x), x))
    assert_same(results[0], results[1], exact=False)
    assert_near(results[0], results[2])


def test_threads(monkeypatch):
    """Few outer points and a long reduction: threads share the elements of every part."""

    def fn(x, y):
        p, w = F.pad(x, (3, 2), value=1), where(rows(y) < 70, y, y * 2)
        q = torch.native_layer_norm(p, [p.shape[1]], None, None, 0)[1]
        return p.sum(1), p.argmax(1), p.amin(), p.sum(), q, w.sum(0), w.argmin(0), w.prod(0)

    args = tensor((3, 40_001)).round(), tensor((20_001, 13)) * 0.001 + 1
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        same_as_plain(fn, *args, exact=False)
        assert "#pragma omp for" in source(fn, *args)
        assert "_local" in source(fn, *args)
    finally:
        torch.set_num_threads(threads)
