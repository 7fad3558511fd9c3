"""The user's own ranges: pieces compiled apart, the whole equal to eager mode and to Inductor."""

from __future__ import annotations

import logging
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._inductor import config as inductor_config
from torch.utils._pytree import tree_leaves

import torch_piecewise


def compiled(fn, dynamic=False, **options):
    torch._dynamo.reset()
    return torch.compile(fn, backend="piecewise", options=options, dynamic=dynamic)


def regions(fn, *args, **options):
    """The regions of each graph: how many operators, and in how many ranges."""
    found = torch_piecewise.explain(fn, args, options=options)
    return [[(len(r.operators), len(r.ranges)) for r in plan.regions] for plan in found.plans]


def agree(fn, *args, **options):
    got, want = compiled(fn, **options)(*args), fn(*args)
    for a, b in zip(tree_leaves(got), tree_leaves(want), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        if isinstance(b, torch.Tensor):
            assert a.stride() == b.stride() and a.dtype == b.dtype


def fn(x):
    return torch.relu(x) * 2 + 1


X = torch.randn(1000, 512)
ROWS = torch.randn(100, 64)


@pytest.mark.parametrize(
    ("ranges", "pieces"),
    [
        ([0, 256, 512, 1000], 3),
        ([0, 256, 256, 1000], 2),  # an empty range is left out
        ([0, 10, None], 2),
        ([0, 900, 2000, None], 2),  # beyond an open end
        (7, 7),
        (3000, 1000),
        ([0.0, 0.9, 1.0], 2),
    ],
)
def test_bounds_fractions_and_numbers(ranges, pieces):
    agree(fn, X, ranges=ranges)
    assert regions(fn, X, ranges=ranges) == [[(3, pieces)]]


def test_every_range_is_compiled_with_its_bounds_as_constants():
    found = torch_piecewise.explain(fn, (X,), options={"ranges": [0, 256, 512, 1000]})
    sizes = [[axis.size for axis in nest.axes] for nest in found.nests]
    assert sizes in ([["131072"], ["249856"]], [["256", "512"], ["488", "512"]])  # equal ones once
    assert "[512, 1000)" in str(found)


def test_explain_says_which_parts_a_nest_is_of():
    found = torch_piecewise.explain(fn, (X,), options={"ranges": [0, 256, 512, 1000]})
    parts = [nest.parts for nest in found.nests]
    assert parts == [("piece_0_0 [0, 256)", "piece_0_1 [256, 512)"), ("piece_0_2 [512, 1000)",)]
    assert "1 graph (1 in ranges)" in str(found) and "of piece_0_2 [512, 1000):" in str(found)


def test_explain_says_which_line_a_nest_of_a_part_is_from():
    def lines(x):
        y = F.gelu(x)
        return torch.softmax(y, 0)

    found = torch_piecewise.explain(lines, (ROWS,), options={"ranges": 2})
    assert all(own for (plan,) in [found.lines] for own in plan)
    assert {line.code for (plan,) in [found.lines] for own in plan for line in own} == {
        "y = F.gelu(x)",
        "return torch.softmax(y, 0)",
    }


def test_explain_raises_errors_of_ranges_as_they_are():
    with pytest.raises(torch_piecewise.RangeError, match="and no dim 2"):
        torch_piecewise.explain(fn, (X,), options={"ranges": 2, "dim": 2})


def test_the_entry_is_in_the_log_of_output_code(monkeypatch):
    logger = logging.getLogger("torch._inductor.codecache.__output_code")
    said: list[str] = []
    monkeypatch.setattr(logger, "debug", lambda text, *args: said.append(text % args))
    with inductor_config.patch(force_disable_caches=True):
        compiled(fn, ranges=2)(X)
    assert "Output code of piece_0_0 [0, 500), piece_0_1 [500, 1000):" in said
    assert any("of the entry:\ndef call(args):" in each for each in said)


@pytest.mark.parametrize("ranges", [[0, 1000], [0, 0, None], [0, 2000, None], 1])
def test_one_range_of_all_is_one_graph(ranges):
    agree(lambda x: torch.softmax(x, 0), X, ranges=ranges)
    (plan,) = torch_piecewise.explain(fn, (X,), options={"ranges": ranges}).plans
    assert not plan.regions and "[0, 1000) is all of dim 0" in str(plan.notes[0])


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        ([0, 600, 500, 1000], "range 1 would be [600, 500)"),
        ([10, 1000], "[0, 10) of dim 0 is in no range"),
        ([0, 900], "[900, 1000) of dim 0 is in no range"),
        ([0, 500, 1200], "range 1, [500, 1200), runs past the end of dim 0"),
        ([0.1, 1.0], "go from 0.0 to 1.0"),
        ([0.0, 0.9, 0.5, 1.0], "range 1 would end at 0.5"),
    ],
)
def test_ranges_that_do_not_fit_are_named(ranges, said):
    with pytest.raises(Exception, match="RangeError") as caught:
        compiled(fn, ranges=ranges)(X)
    assert said in str(caught.value)


@pytest.mark.parametrize("ranges", ["3", [0], [], 0, True, [0, "1"], [None, 3], [0, 0.5, 7]])
def test_what_is_no_ranges_at_all_is_an_option_error(ranges):
    with pytest.raises(Exception, match="OptionError.*'ranges'"):
        compiled(fn, ranges=ranges)(X)


def test_a_dim_that_the_output_lacks():
    with pytest.raises(Exception, match="has 2 dims.* and no dim 2"):
        compiled(fn, ranges=2, dim=2)(X)
    with pytest.raises(Exception, match="only together with 'ranges'"):
        compiled(fn, dim=1)(X)


@pytest.mark.parametrize(
    ("fn", "code"),
    [
        (lambda x: x.cumsum(0) * 2, "cumsum"),
        (lambda x: x.sort(0)[0] + 1, "sort"),
        (lambda x: torch.rand_like(x) + x, "rand"),
        (lambda x: x.view(-1, 5).relu(), "joins dims of [100, 64]"),
        (lambda x: x.t().reshape(-1) * 2, "view"),
    ],
)
def test_an_operator_in_the_way_is_named(fn, code):
    with pytest.raises(Exception, match="RangeError") as caught:
        compiled(fn, ranges=3)(ROWS)
    assert "is in the way" in str(caught.value) and code in str(caught.value)


CASES = {
    "rows of a product": (lambda x: torch.relu(x @ x.t()) + 1, 0),
    "columns of a product": (lambda x: torch.relu(x @ x.t()) + 1, 1),
    "softmax along rows": (lambda x: torch.softmax(x, 1) * 2, 0),
    "softmax over what is cut": (lambda x: torch.softmax(x, 0) * 2, 0),
    "layer_norm": (lambda x: F.layer_norm(x, (64,)), -2),
    "normalised over what is cut": (lambda x: (x - x.mean(0)) / x.var(0).sqrt(), 0),
    "another result that is not cut": (lambda x: (x.relu(), x.sum(), x.amax(0)), 0),
    "transposed": (lambda x: (x.relu(), x.t().exp()), 0),
    "joined, taken apart": (lambda x: torch.cat([x, x * 2], 0)[5:150], 0),
    "padded and rolled": (lambda x: F.pad(x, (0, 0, 3, 4)).roll(7, 0) + 1, 0),
    "flipped": (lambda x: x.flip(0) * x, 0),
    "split": (lambda x: [a.sin() for a in x.split(32, 1)], 0),
    "both dims": (lambda x: x[:64].relu() + x[:64].relu().t(), 0),
    "a number beside": (lambda x: (x * 2, 3, None), 0),
    "values and places": (lambda x: x.max(1), 0),
    "places over what is cut": (lambda x: (x.relu(), x.argmax(0)), 0),
    "the best of what is cut": (lambda x: (x.relu(), x.max(0), x.argmin(0)), 0),
    "the best of a copy": (lambda x: (x.sin(), torch.aminmax(x.sin(), dim=0)), 0),
    "a product over what is cut": (lambda x: (x.sin(), torch.addmm(x[0], x.t(), x, beta=2)), 0),
    "a mask by place": (lambda x: x * (torch.arange(100, device=x.device)[:, None] > 40), 0),
    "a running sum": (lambda x: x.cumsum(1), 0),
    "nothing of it": (lambda x: (x.relu(), x[:0].sin(), torch.cat([x[:0] * 2, x])), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_cut_along_a_dim(name):
    case, dim = CASES[name]
    agree(case, ROWS, ranges=[0, 1, 34, None], dim=dim)


IMAGE = torch.randn(2, 3, 33, 24)


@pytest.mark.parametrize("dim", range(4))
@pytest.mark.parametrize("ranges", [3, [0, 1, 2, None]])
def test_convolutions_read_beyond_their_range(dim, ranges):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 4, 3, stride=2, padding=1, dilation=2),
        nn.GELU(),
    ).eval()
    if dim == 0 and ranges != 3:
        ranges = [0, 1, None]
    with torch.no_grad():
        agree(model, IMAGE, ranges=ranges, dim=dim)


def gradients(fn, args):
    own = [a.detach().clone().requires_grad_() for a in args]
    out = fn(*own)
    torch.autograd.backward(out, torch.full_like(out, 0.5))
    return [out.detach(), *(a.grad for a in own)]


TRAINED = {
    "pointwise": lambda x, w: (x.relu() * 2).sin(),
    "product": lambda x, w: (x @ w).relu(),
    "layer_norm": lambda x, w: F.layer_norm(x, (64,)).tanh(),
    "softmax": lambda x, w: torch.softmax(x, 1) * x,
    "softmax over what is cut": lambda x, w: torch.softmax(x, 0) ** 2,
    "joined": lambda x, w: torch.cat([x, x * 2 + 1]).sin(),
}


@pytest.mark.parametrize("name", TRAINED)
def test_training(name):
    args = [ROWS, torch.randn(64, 32)]
    got = gradients(compiled(TRAINED[name], ranges=3), args)
    for a, b in zip(got, gradients(TRAINED[name], args), strict=True):
        if b is not None:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    shown = [a.clone().requires_grad_() for a in args]
    forward, backward = torch_piecewise.explain(
        TRAINED[name], tuple(shown), options={"ranges": 3}
    ).plans
    assert any(r.cut for r in forward.regions) and any(r.cut for r in backward.regions)


def test_a_backward_that_has_not_the_dim_is_whole_and_says_so():
    x = ROWS.clone().requires_grad_()
    _, backward = torch_piecewise.explain(
        lambda x: (x.detach() * 2, x.sum()), (x,), options={"ranges": 3}
    ).plans
    assert not backward.regions and "compiled as one graph" in str(backward.notes[0])


@pytest.mark.parametrize("ranges", [[0, 1000, 2000, None], 3])
def test_a_size_that_is_not_known(ranges):
    step = compiled(fn, dynamic=True, ranges=ranges)
    for rows in (3000, 2500, 1500, 900, 7):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(step(x), fn(x))


def test_another_shape_gets_its_own_variant():
    step = compiled(fn, ranges=3)
    for shape in ((10, 4), (5, 7, 3), (2, 2)):
        x = torch.randn(shape)
        torch.testing.assert_close(step(x), fn(x))


def test_many_shapes_are_warned_of_once():
    step = compiled(lambda x: x.relu() * 3.25, ranges=3)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for rows in (10, 20, 30, 40, 50, 60):
            step(torch.randn(rows, 7))
    said = [str(w.message) for w in heard if w.category is torch_piecewise.errors.CompiledAgain]
    assert len(said) == 1 and "4 times" in said[0] and "dynamic=True" in said[0]


def test_one_shape_again_and_again_is_no_matter_of_shapes():
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch_piecewise.errors.CompiledAgain)
        for _ in range(5):
            compiled(lambda x: x.relu() * 3.75, ranges=3)(torch.randn(10, 7))


def test_an_input_that_is_written_to():
    def update(x, y):
        z = x * 2
        x.add_(y)
        return z + x

    mine, theirs, y = ROWS.clone(), ROWS.clone(), torch.randn(100, 64)
    got = compiled(update, ranges=3)(mine, y)
    torch.testing.assert_close(got, update(theirs, y))
    torch.testing.assert_close(mine, theirs)


SHORT, LONG = torch.randn(2, 5), torch.randn(10, 5)


@pytest.mark.parametrize(
    "of",
    [
        lambda s: s.var(0),
        lambda s: s.amax(0),
        lambda s: s.logsumexp(0),
        lambda s: s[::2],
        lambda s: torch.slice_scatter(s, s[:1], 0, 1),
        lambda s: F.max_pool1d(s.t(), 2, 1, padding=1),
    ],
)
@pytest.mark.parametrize("ranges", [3, 12])
def test_a_shorter_dim_beside_the_one_of_the_ranges(of, ranges):
    agree(lambda x, y: (torch.cat([x.sin(), y]), of(x.sin())), SHORT, LONG, ranges=ranges)


@pytest.mark.parametrize(
    "named_alike",
    [
        lambda x: ((x - x.mean(0)).amax(0) + x, x.abs().amax(1)),
        lambda x: (x.sin().reshape(-1, 64) * 2, x.view(-1)),
        lambda x: F.prelu(x, x[0]),
        lambda x: torch.einsum("ij,kj->ik", x, x),
    ],
)
def test_names_of_operators_are_no_names_of_the_entry(named_alike):
    agree(named_alike, ROWS, ranges=3)


@pytest.mark.parametrize("ranges", [1, 3, [0, None], [0.0, 0.5, 1.0]])
def test_a_dim_of_no_positions_is_left_whole(ranges):
    empty = torch.randn(0, 5)
    agree(lambda x: (x.sin(), x.sum(0)), empty, ranges=ranges)
    assert regions(lambda x: x.sin(), empty, ranges=ranges) in ([], [[]])


def test_a_size_that_depends_on_data_is_refused():
    captured = torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
    with captured, pytest.raises(Exception, match="depends on data"):
        compiled(lambda x: x.nonzero() * 2, ranges=3)(ROWS)
