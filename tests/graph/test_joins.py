"""Joins, scatters and factories, cut along every dim."""

from __future__ import annotations

import pytest
import torch

from torch_piecewise.graph.axes import CannotCut, Range, cut_along
from torch_piecewise.graph.pieces import build

from .rules import all_values, calls, check, compare, run, traced

aten, prims = torch.ops.aten, torch.ops.prims
X, Z = torch.randn(7, 6), torch.randn(2, 7, 4, 3)


# Joins


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cat(dim):
    check(lambda x: aten.cat.default([x, x, x * 2], dim), X)
    check(lambda x: aten.cat.default([x], dim), X)


def test_cat_of_unequal_parts():
    a, b, c, none = torch.randn(2, 3), torch.randn(1, 3), torch.randn(4, 3), torch.randn(0, 3)
    check(lambda *args: aten.cat.default(list(args)), a, none, b, c)
    check(lambda *args: aten.cat.default(list(args), -1), X, X[:, :1], X[:, 2:4])
    check(lambda *args: aten.cat.default(list(args), 1), torch.randn(0), X, X[:, :1])
    check(lambda *args: aten.cat.default(list(args), 0), X, torch.randn(0), X[:3])


def test_cat_of_types_that_are_promoted():
    whole, bits = torch.arange(5), torch.ones(4, dtype=torch.bool)
    check(lambda *args: aten.cat.default(list(args)), whole, bits, torch.randn(3))
    check(lambda *args: aten.cat.default(list(args)), bits, torch.randn(3, dtype=torch.half))
    check(lambda *args: aten.cat.default(list(args)), torch.randn(0), X.long())
    check(lambda *args: aten.cat.default(list(args), 1), torch.randn(0), X.long(), X.long())


def test_only_the_parts_that_a_range_lies_in_are_read():
    gm = traced(lambda x, y: aten.cat.default([x, y, x]), [X, X + 1])
    (cat,) = calls(gm)
    x, y = cat.all_input_nodes
    cut = cut_along(cat, 0)
    assert cut.inputs == ((x, 0), (y, 0))
    assert [(n.node, n.range) for n in cut.needs(Range(8, 12))] == [(y, Range(1, 5))]
    assert [n.range for n in cut.needs(Range(5, 16))] == [Range(5, 7), Range(0, 7), Range(0, 2)]
    piece, _ = build({cat: (cut, 0)}, {cat: Range(8, 12)})
    assert not [n for n in piece.graph.nodes if n.op == "call_function"]


def test_two_ranges_of_a_node_inside_a_piece():
    gm = traced(lambda x: (lambda y: aten.cat.default([y, y]))(x.neg()), [X])
    neg, cat = calls(gm)
    values = all_values(gm, [X])
    each = Range(5, 9)
    cuts = {neg: (cut_along(neg, 0), 0), cat: (cut_along(cat, 0), 0)}
    piece, found = build(cuts, {cat: each})
    compare(run(piece, found[cat], values), values[cat], 0, each)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_stack(dim):
    check(lambda x: aten.stack.default([x, x * 2, x, x + 1], dim), X)
    check(lambda x: aten.stack.default([x, x.long(), x, x.long()], dim), X)


@pytest.mark.parametrize(
    "pad",
    [[1, 2], [0, 0, 4, 0], [1, 0, 0, 5], [7, 8, 9, 1], [-1, -2], [-2, 9], [3, -1, -3, 4], [0, 0],
     [0, -5, 0, 0]],
)  # fmt: skip
@pytest.mark.parametrize("fill", [0, 2.5, -float("inf")])
def test_constant_pad(pad, fill):
    check(lambda x: aten.constant_pad_nd.default(x, pad, fill), X)
    check(lambda x: aten.constant_pad_nd.default(x, pad), X > 0)


def test_a_range_in_the_padding_reads_nothing():
    gm = traced(lambda x: aten.constant_pad_nd.default(x, [0, 0, 4, 5]), [X])
    (pad,) = calls(gm)
    cut = cut_along(pad, 0)
    assert not cut.needs(Range(0, 4)) and not cut.needs(Range(11, 16))
    assert [n.range for n in cut.needs(Range(3, 6))] == [Range(0, 2)]
    assert [n.range for n in cut.needs(Range(9, 14))] == [Range(5, 7)]
    piece, _ = build({pad: (cut, 0)}, {pad: Range(5, 9)})
    assert not [n for n in piece.graph.nodes if n.op == "call_function"]  # no padding of none


@pytest.mark.parametrize(
    "shifts, dims",
    [([1], [0]), ([-3], [1]), ([9], [-1]), ([2, 5], [0, 1]), ([0], [0]), ([1, 2, 3], [0, 1, 0]),
     ([-7], [0])],
)  # fmt: skip
def test_roll(shifts, dims):
    check(lambda x: aten.roll.default(x, shifts, dims), X)


def test_roll_over_all_dims():
    check(lambda x: aten.roll.default(x, [2]), X, refused={0: "view", 1: "view"})
    check(lambda x: aten.roll.default(x, [2]), X[:, 0].clone())


@pytest.mark.parametrize(
    "place", [(0, 2, 5), (0, 0, 3), (0, -3), (0, 6, 7), (0, 3, 3), (0, -100, 2**63 - 1), (0, 9, 12)]
)
def test_slice_scatter(place):
    source = X[slice(*place[1:])] if len(place) > 2 else X[place[1] :]
    check(lambda x, s: aten.slice_scatter.default(x, s, *place), X, source * 3)
    check(lambda x, s: aten.slice_scatter.default(x, s, -1, *place[1:]),
          X.T.contiguous(), source.T.contiguous() * 3)  # fmt: skip


@pytest.mark.parametrize("dims", [[1], [-1, 0], [], [2, -3]])
def test_flip(dims):
    check(lambda x: aten.flip.default(x, dims), Z)


def test_slice_scatter_in_steps():
    check(lambda x, s: aten.slice_scatter.default(x, s, 0, 1, 7, 2), X, X[:3] * 3,
          refused={0: "scatter"})  # fmt: skip
    check(lambda x, s: aten.slice_scatter.default(x, s, 0, 1, 2, 2), X, X[:1] * 3)


def test_a_source_that_is_broadcast_is_refused():
    """Tracing lets it pass, though running it does not."""
    gm = traced(lambda x, s: aten.slice_scatter.default(x, s, 0, 2, 5), [X, X[:1]])
    with pytest.raises(CannotCut) as error:
        cut_along(calls(gm)[-1], 0)
    assert error.value.code == "scatter"


@pytest.mark.parametrize("index", [0, 2, -1])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_select_scatter(dim, index):
    check(lambda x, s: aten.select_scatter.default(x, s, dim, index), X, X.select(dim, 1) * 3)


# Factories


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: aten.full.default([7, 1, 4], 2.5),
        lambda x: aten.full.default([7], 3, dtype=torch.int32),
        lambda x: aten.full.default([7], True),
        lambda x: aten.full_like.default(x, 3),
        lambda x: aten.full_like.default(x, 3, dtype=torch.int64),
        lambda x: aten.zeros.default([7, 4]),
        lambda x: aten.ones.default([7, 4], dtype=torch.bool),
        lambda x: aten.zeros_like.default(x),
        lambda x: aten.ones_like.default(x, dtype=torch.float16),
        lambda x: aten.new_zeros.default(x, [3, 7]),
        lambda x: aten.new_ones.default(x, [3, 7]),
        lambda x: aten.new_full.default(x, [3, 7], 1.5),
        lambda x: prims.iota.default(
            7, start=3, step=-2, dtype=torch.int64, device="cpu", requires_grad=False
        ),
        lambda x: aten.arange.default(7),
        lambda x: aten.arange.start(-2, 9),
        lambda x: aten.arange.start_step(9, -8, -3),
        lambda x: aten.arange.start_step(0, 20, 3, dtype=torch.int32),
    ],
)
def test_factories(fn):
    check(fn, X)


def test_a_factory_reads_nothing():
    gm = traced(lambda x: aten.full_like.default(x, 3), [X])
    assert cut_along(calls(gm)[-1], 0).inputs == ()


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: aten.empty.memory_format([7, 4], dtype=torch.int32),
        lambda x: aten.empty_like.default(x),
        lambda x: aten.new_empty.default(x, [7, 4]),
        lambda x: aten.empty_permuted.default([7, 4], [1, 0]),
        lambda x: aten.empty_strided.default([7, 4], [1, 7]),
        lambda x: aten.new_empty_strided.default(x, [7, 4], [1, 7]),
    ],
)
def test_memory_that_nothing_was_written_to(fn):
    gm = traced(fn, [X])
    empty = calls(gm)[-1]
    whole = empty.meta["val"]
    for dim in range(2):
        piece, found = build({empty: (cut_along(empty, dim), dim)}, {empty: Range(1, 4)})
        got = run(piece, found[empty], {})
        assert got.shape == whole.narrow(dim, 1, 3).shape and got.dtype == whole.dtype


def test_factories_that_are_refused():
    check(lambda x: aten.eye.default(7), X, refused={0: "places", 1: "places"})
    check(lambda x: aten.eye.m(7, 3), X, refused={0: "places", 1: "places"})
    check(lambda x: aten.arange.start_step(0, 1, 0.1), X, refused={0: "places"})
    check(lambda x: aten.arange.default(7, dtype=torch.float32), X, refused={0: "places"})


@pytest.mark.parametrize("op", [aten.tril, aten.triu])
@pytest.mark.parametrize("diagonal", [0, 1, -2, 9])
def test_triangles(op, diagonal):
    check(lambda x: op.default(x, diagonal), X)
    check(lambda x: op.default(x, diagonal), Z)
    check(lambda x: op.default(x), Z)
