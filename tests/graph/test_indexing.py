"""Operators that read or write at places that a tensor of indices names."""

from __future__ import annotations

import pytest
import torch

from .rules import check

aten = torch.ops.aten
X = torch.randn(7, 6, 8)
ROWS, COLS = torch.tensor([6, 0, 3, 3, 1, 0, 5, 6]), torch.tensor([0, 5, 5, 2, 4, 1, 0, 3])
DEEP = torch.tensor([7, 0, 0, 1, 3, 3, 2, 6])
TABLE = torch.tensor([[6, 0, 3], [3, 1, 0], [0, 0, 5], [2, 2, 2], [4, 6, 1], [0, 6, 6], [1, 1, 5]])


@pytest.mark.parametrize("indices", [ROWS, TABLE, torch.tensor(3)])
@pytest.mark.parametrize("padding", [-1, 3])
def test_embedding(indices, padding):
    check(lambda w, i: aten.embedding(w, i, padding), torch.randn(7, 6), indices)


def test_embedding_backward():
    grad = torch.randn(7, 3, 6)
    fn = lambda g, i: aten.embedding_dense_backward(g, i, 9, 3, False)  # noqa: E731
    check(fn, grad, TABLE, refused={0: "scatter"})


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("size", [(7, 6, 8), (9, 6, 8), (4, 5, 6), (1, 6, 8)])
def test_gather(dim, size):
    """The index may be shorter than the source, and longer along the dim that it is of."""
    fits = [s if d == dim % 3 else min(s, X.shape[d]) for d, s in enumerate(size)]
    check(lambda x, i: aten.gather(x, dim, i), X, torch.randint(0, X.shape[dim], fits))


def test_gather_of_an_index_in_itself():
    """It is read as a whole and in ranges along the dim; along the other it is cut once."""
    x = torch.randint(0, 6, (7, 6))
    check(lambda x: aten.gather(x, 1, x), x, refused={1: "repeated"})


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("index", [[0, 3, 3, 5, 5, 5, 1, 0], [2], 4])
def test_index_select(dim, index):
    check(lambda x, i: aten.index_select(x, dim, i), X, torch.tensor(index))


def test_take():
    check(lambda x, i: aten.take(x, i), X, torch.randint(0, 300, (7, 5)))


@pytest.mark.parametrize("read", [aten.index.Tensor, aten._unsafe_index.Tensor])
@pytest.mark.parametrize(
    "at",
    [
        lambda i, j, k, t: [i],
        lambda i, j, k, t: [None, j],
        lambda i, j, k, t: [None, None, k],
        lambda i, j, k, t: [i, j],
        lambda i, j, k, t: [i, None, k],  # not side by side: the indices' dims come first
        lambda i, j, k, t: [None, j, k],
        lambda i, j, k, t: [i, j, k],
        lambda i, j, k, t: [i, i.clamp(max=5)],
        lambda i, j, k, t: [i.clamp(max=5), i.clamp(max=5)],
        lambda i, j, k, t: [t],
        lambda i, j, k, t: [None, None, t],
        lambda i, j, k, t: [t, None, t],
        lambda i, j, k, t: [t, j[:3]],  # broadcast: a row for all rows of the table
        lambda i, j, k, t: [t, j[:7, None]],
        lambda i, j, k, t: [i[:, None], j],
        lambda i, j, k, t: [None, j[:, None], k[None, :5]],
        lambda i, j, k, t: [i[:, None, None], None, k[:, None]],
        lambda i, j, k, t: [i[0], None, k],  # one place, of no dims
        lambda i, j, k, t: [i[:1], j],
        lambda i, j, k, t: [i[:1], None, k[:1]],
    ],
)
def test_index(read, at):
    check(lambda x, i, j, k, t: read(x, at(i, j, k, t)), X, ROWS, COLS, DEEP, TABLE)


@pytest.mark.parametrize("places", [ROWS[:5], TABLE[:5, :2]])
def test_places_side_by_side_or_not_behind_a_dim(places):
    """Not side by side, their dims come before that of the first dim."""
    x, places = torch.randn(5, 7, 6, 8), places.clamp(max=5)
    check(lambda x, i: aten.index.Tensor(x, [None, i, None, i]), x, places)
    check(lambda x, i: aten.index.Tensor(x, [None, i, i]), x, places)
    put = lambda x, i, v: aten.index_put(x, [None, i, None, i], v, True)  # noqa: E731
    values = torch.randn(*places.shape, 5, 6)
    check(put, x, places, values, refused={1: "scatter", 3: "scatter"})


def test_negative_indices():
    check(lambda x, i: x[:, i], X, torch.tensor([-1, 0, -6, -2, 3, 3, -1]))


def test_an_index_that_is_the_source():
    x = torch.randint(0, 6, (6, 6))
    check(lambda x: aten.index.Tensor(x, [x]), x, refused=dict.fromkeys(range(3), "repeated"))


MASKED = dict.fromkeys(range(3), "data-dependent")


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, m: aten.index.Tensor(x, [m]),
        lambda x, m: aten.nonzero(x),
        lambda x, m: aten.nonzero_static(x, size=3),
        lambda x, m: aten.masked_select(x, m[:, None, None]),
        lambda x, m: aten._unique2(x)[0],
        lambda x, m: aten._unique.default(x)[0],
        lambda x, m: aten.unique_dim(x, 0)[0],
        lambda x, m: aten.unique_consecutive(x)[0],
        lambda x, m: aten.repeat_interleave.Tensor(x[0, 0].abs().long()),
        lambda x, m: aten.bincount(x[0, 0].abs().long()),
    ],
)
def test_what_depends_on_the_values_is_refused(fn):
    from torch_piecewise.graph.axes import CannotCut, cut_along

    from .rules import calls, traced

    gm = traced(fn, [X, torch.tensor([True, False, True, True, False, True, True])])
    call = next(n for n in reversed(calls(gm)) if "getitem" not in n.name)
    with pytest.raises(CannotCut) as raised:
        cut_along(call, 0)
    assert raised.value.code == "data-dependent"


@pytest.mark.parametrize("put", [aten.index_put.default, aten._unsafe_index_put.default])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(
    ("at", "size", "scattered"),
    [
        (lambda i, j, k: [i], (5, 6, 8), [0]),
        (lambda i, j, k: [i], (6, 8), [0]),
        (lambda i, j, k: [i], (8,), [0]),
        (lambda i, j, k: [i], (6, 1), [0]),
        (lambda i, j, k: [i], (), [0]),
        (lambda i, j, k: [None, j], (7, 5, 8), [1]),
        (lambda i, j, k: [None, j], (7, 1, 1), [1]),
        (lambda i, j, k: [None, None, k], (7, 6, 5), [2]),
        (lambda i, j, k: [i, None, k], (5, 6), [0, 2]),
        (lambda i, j, k: [None, j, k[:, None]], (7, 5, 5), [1, 2]),
        (lambda i, j, k: [i[:, None], None, k], (5, 5, 6), [0, 2]),
        (lambda i, j, k: [i, j, k], (5,), [0, 1, 2]),
    ],
)
def test_index_put(put, accumulate, at, size, scattered):
    """Every place once: which of several writes to one place stays is not said."""
    i, j, k = (
        torch.tensor([6, 0, 3, 1, 5]),
        torch.tensor([0, 5, 2, 4, 1]),
        torch.tensor([*range(5)]),
    )
    check(
        lambda x, i, j, k, v: put(x, at(i, j, k), v, accumulate),
        *(X, i, j, k, torch.randn(size)),
        refused=dict.fromkeys(scattered, "scatter"),
    )


def test_index_put_adds_what_is_written_to_one_place():
    fn = lambda x, i, v: aten.index_put(x, [None, i], v, True)  # noqa: E731
    check(fn, X, torch.tensor([0, 0, 5, 0]), torch.randn(7, 4, 8), refused={1: "scatter"})


def test_index_put_in_place():
    fn = lambda x, i: aten.index_put_.default(x.clone(), [i], x[0])  # noqa: E731
    check(fn, X, ROWS, refused=dict.fromkeys(range(3), "mutation"))


def test_index_put_where_a_mask_says():
    mask = torch.tensor([True, False, True, True, False, True, True])
    fn = lambda x, m: aten.index_put(x, [m], x[0])  # noqa: E731
    check(fn, X, mask, refused=dict.fromkeys(range(3), "data-dependent"))


SCATTERS = [
    lambda x, d, i, s: aten.scatter.value(x, d, i, 2.5),
    lambda x, d, i, s: aten.scatter.value_reduce(x, d, i, 2.5, reduce="multiply"),
    lambda x, d, i, s: aten.scatter.reduce(x, d, i, s, reduce="add"),
    lambda x, d, i, s: aten.scatter_add(x, d, i, s),
    lambda x, d, i, s: aten.scatter_reduce.two(x, d, i, s, "amax"),
    lambda x, d, i, s: aten.scatter_reduce.two(x, d, i, s, "mean", include_self=False),
]


@pytest.mark.parametrize("fn", SCATTERS)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_scatter(fn, dim):
    size = [3 if d == dim % 3 else s for d, s in enumerate(X.shape)]
    index = torch.randint(0, X.shape[dim], size)
    args = (X, index, torch.randn(size))
    check(lambda x, i, s: fn(x, dim, i, s), *args, refused={dim % 3: "scatter"})


def test_scatter_of_a_source():
    index = torch.argsort(torch.rand(7, 6, 8), 1)
    fn = lambda x, i, s: aten.scatter.src(x, 1, i, s)  # noqa: E731
    check(fn, X, index, torch.randn(7, 6, 8), refused={1: "scatter"})


@pytest.mark.parametrize(("index", "source"), [((5, 3, 8), (5, 3, 8)), ((5, 3, 8), (7, 6, 8))])
def test_scatter_to_a_part_of_a_dim(index, source):
    """Along dim 0 only the first places are written to."""
    args = (X, torch.randint(0, 6, index), torch.randn(source))
    fn = lambda x, i, s: aten.scatter_add(x, 1, i, s)  # noqa: E731
    check(fn, *args, refused={0: "scatter", 1: "scatter"})


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, d, i, s: aten.index_add(x, d, i, s, alpha=2),
        lambda x, d, i, s: aten.index_reduce(x, d, i, s, "amin"),
        lambda x, d, i, s: aten.index_copy(x, d, i[:1], s.narrow(d, 0, 1)),
        lambda x, d, i, s: aten.index_fill.int_Scalar(x, d, i, 1.5),
        lambda x, d, i, s: aten.index_fill.int_Tensor(x, d, i, s[0, 0, 0]),
    ],
)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_index_add(fn, dim):
    size = [4 if d == dim % 3 else s for d, s in enumerate(X.shape)]
    args = (X, torch.tensor([5, 0, 5, 2]), torch.randn(size))
    check(lambda x, i, s: fn(x, dim, i, s), *args, refused={dim % 3: "scatter"})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.bool])
def test_other_dtypes(dtype):
    x = (X * 2).to(dtype)
    check(lambda x, i: x[:, i], x, COLS)
    check(lambda x, i: aten.index_select(x, 1, i), x, COLS)
    check(lambda w, i: aten.embedding(w, i), x[:, :, 0], TABLE)


def test_buckets():
    check(lambda x: torch.bucketize(x, torch.linspace(-1, 1, 5)), torch.randn(7, 6), node=-1)
