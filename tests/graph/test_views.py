"""Views, and other rearrangements of one input, cut along every dim."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch.fx import Node

from torch_piecewise.graph.axes import CannotCut, Range, SameCall, cut_along
from torch_piecewise.graph.pieces import build
from torch_piecewise.graph.views import outer_dim

from .rules import all_values, calls, check, compare, ranges, run, traced

aten, prims = torch.ops.aten, torch.ops.prims
X, Y, Z = torch.randn(7, 6), torch.randn(7, 1, 6), torch.randn(2, 7, 4, 3)
C = torch.randn(7, 4, dtype=torch.complex64)


# Reshapes


@pytest.mark.parametrize(
    "old, new, refused",
    [
        ([6, 4], [6, 4], {}),
        ([6, 4], [24], {0: "view"}),
        ([24], [6, 4], {1: "view"}),
        ([24], [6, 2, 2], {1: "view", 2: "view"}),
        ([6, 4], [6, 2, 2], {2: "view"}),
        ([6, 4], [3, 8], {1: "view"}),
        ([6, 4], [8, 3], {0: "view", 1: "view"}),
        ([7, 6, 4], [7, 24], {1: "view"}),
        ([7, 6, 4], [42, 4], {0: "view"}),
        ([7, 24], [7, 6, 4], {2: "view"}),
        ([7, 1, 6], [1, 7, 6, 1], {}),
        ([7, 6], [7, 1, 1, 6], {}),
        ([1, 7], [7], {}),
        ([7], [1, 7, 1], {}),
        ([1, 1], [1], {}),
        ([7, 6], [7, -1, 3], {2: "view"}),
        ([7, 6], [-1, 6], {}),
    ],
)
@pytest.mark.parametrize("op", [aten.view, aten.reshape, aten._unsafe_view, aten._reshape_copy])
def test_view(op, old, new, refused):
    check(lambda x: op.default(x, new), torch.randn(old), refused=refused)


@st.composite
def two_shapes(draw):
    """Shapes of as many elements: the same factors, put together in two ways."""
    factors = draw(st.lists(st.sampled_from([1, 2, 2, 3, 4, 5, 7]), min_size=1, max_size=5))

    def grouped() -> list[int]:
        ends = draw(st.sets(st.integers(1, len(factors) - 1))) if len(factors) > 1 else set()
        bounds = [0, *sorted(ends), len(factors)]
        shape = [math.prod(factors[a:b]) for a, b in zip(bounds, bounds[1:])]
        for place in draw(st.lists(st.integers(0, len(shape)), max_size=2)):
            shape.insert(place, 1)
        return shape

    return grouped(), grouped()


def unaligned(new, dim, outer):
    """Whether a range that is tried begins or ends inside a position of the input's dim."""
    _, times, parts = outer
    return any((r.start * times) % parts or (r.stop * times) % parts for r in ranges(new[dim]))


@settings(max_examples=150, deadline=None)
@given(two_shapes())
def test_any_view_is_cut_or_refused(shapes):
    old, new = shapes
    found = {d: outer_dim(old, new, d) for d, size in enumerate(new) if size != 1}
    refused = {d: "view" for d, outer in found.items() if outer is None or unaligned(new, d, outer)}
    elements = torch.arange(float(math.prod(old))).reshape(old)
    check(lambda x: aten.view.default(x, new), elements, refused=refused)


@settings(max_examples=150, deadline=None)
@given(two_shapes())
def test_exactly_the_dims_of_which_each_position_is_a_range_of_an_input_dim_are_cut(shapes):
    """By brute force: the positions of each new index along a dim, as a box of the input."""
    old, new = shapes
    places = torch.arange(math.prod(old))
    for dim, size in enumerate(new):
        if size == 1:
            continue
        boxes = []
        for k in range(size):
            taken = places.view(new).select(dim, k).reshape(-1)
            held = torch.zeros(len(places), dtype=torch.bool).index_fill(0, taken, True).view(old)
            spans = [
                held.movedim(d, 0).reshape(size_of, -1).any(1).nonzero().flatten()
                for d, size_of in enumerate(old)
            ]
            box = [len(s) for s in spans]
            # a box: all its places are held; and it is the whole of every dim but one
            full = math.prod(box) == len(taken) and sum(b != o for b, o in zip(box, old)) == 1
            near = all(int(s[-1]) - int(s[0]) + 1 == len(s) for s in spans)
            boxes.append(full and near)
        found = outer_dim(old, new, dim)
        assert all(boxes) == (found is not None and found[2] == 1), (old, new, dim)


def test_a_view_with_symbolic_sizes_is_cut():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic as Dynamic
    from torch.fx.experimental.symbolic_shapes import ShapeEnv, StatelessSymbolicContext

    mode = FakeTensorMode(shape_env=ShapeEnv())
    context = StatelessSymbolicContext([Dynamic.DYNAMIC, Dynamic.STATIC])
    x = mode.from_tensor(torch.randn(14, 6), symbolic_context=context)
    rows, columns = x.shape
    assert outer_dim([rows, columns], [rows, 2, 3], 0) == (0, 1, 1)
    assert outer_dim([rows, columns], [rows, 2, 3], 1) == (1, 3, 1)
    assert outer_dim([rows * 4, columns], [rows, 4, columns], 0) == (0, 4, 1)
    assert outer_dim([rows, 4, columns], [rows * 4, columns], 0) == (0, 1, 4)
    with mode:
        gm = torch.fx.experimental.proxy_tensor.make_fx(
            lambda x: aten.view.default(x, [x.shape[0], 2, 3]), tracing_mode="real"
        )(x)
    view = calls(gm)[-1]
    piece, found = build({view: (cut_along(view, 0), 0)}, {view: Range(2, 5)})
    assert found[view].meta["val"].shape == (3, 2, 3)
    assert [g.range for g in piece.inputs] == [Range(2, 5)]


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
def test_unsqueeze(dim):
    check(lambda x: aten.unsqueeze.default(x, dim), X)


@pytest.mark.parametrize("shape", [[7, 1, 6], [1, 7], [7, 6], [1, 7, 1, 1]])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: aten.squeeze.default(x),
        lambda x: aten.squeeze.dim(x, 1),
        lambda x: aten.squeeze.dim(x, 0),
        lambda x: aten.squeeze.dim(x, -1),
        lambda x: aten.squeeze.dims(x, [0, -1]),
    ],
)
def test_squeeze(fn, shape):
    check(fn, torch.randn(shape))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: aten.permute.default(x, [2, 0, 3, 1]),
        lambda x: aten.permute.default(x, [-2, 0, -1, 1]),
        lambda x: aten.transpose.int(x, 1, 3),
        lambda x: aten.transpose.int(x, -1, -4),
        lambda x: aten.alias.default(x),
        lambda x: aten.detach.default(x),
        lambda x: aten.lift_fresh_copy.default(x),
        lambda x: aten.select.int(x, 1, 3),
        lambda x: aten.select.int(x, -1, -2),
    ],
)
def test_every_dim_is_cut(fn):
    check(fn, Z)


def test_t():
    check(lambda x: aten.t.default(x), X)
    check(lambda x: aten.t.default(x), X[0])


def test_views_of_other_types():
    check(lambda x: aten.view_as_real.default(x), C, refused={2: "view"})
    check(lambda x: aten.view_as_complex.default(x), torch.randn(7, 4, 2))
    check(lambda x: aten.view.dtype(x, torch.int32), X, node=0)
    check(lambda x: aten.view.dtype(x, torch.int16), X, node=0, refused={1: "view"})
    check(lambda x: aten.view.dtype(x, torch.int64), X, node=0, refused={1: "view"})


# More elements, fewer elements


@pytest.mark.parametrize(
    "sizes", [[7, 5, 6], [-1, 5, -1], [3, 7, 1, 6], [2, -1, 4, -1], [7, 1, 6], [1, 7, 1, 6]]
)
def test_expand(sizes):
    check(lambda x: aten.expand.default(x, sizes), Y)


@pytest.mark.parametrize(
    "times, refused",
    [
        ([1, 5, 1], {}),
        ([4, 1, 5, 1], {}),
        ([2, 1, 1], {}),
        ([1, 3, 2], {}),
        ([1, 1, 1], {}),
    ],
)
def test_repeat(times, refused):
    check(lambda x: aten.repeat.default(x, times), Y, refused=refused)


@pytest.mark.parametrize(
    "place",
    [
        (),
        (0, 2),
        (1, 1, 5),
        (0, 0, 2**63 - 1),
        (0, -4, -1),
        (-1, -100, 4),
        (0, None, 5, 2),
        (0, 1, 7, 3),
        (1, -5, 100, 2),
        (0, 0, 7, 7),
    ],
)
def test_slice(place):
    check(lambda x: aten.slice.Tensor(x, *place), X)


def test_what_reads_memory_in_another_order_is_refused():
    check(lambda x: aten.diagonal.default(x), X, refused={0: "view"})
    check(lambda x: aten.diagonal.default(x, 1, 1, -1), Z, refused={2: "view"})
    check(lambda x: aten.diagonal.default(x, 0, -3, 0), Z, refused={2: "view"})
    check(lambda x: aten.unfold.default(x, 1, 3, 2), Z, refused={1: "view", 4: "view"})
    check(lambda x: aten.unfold.default(x, -1, 2, 1), X, refused={1: "view", 2: "view"})
    check(
        lambda x: aten.as_strided.default(x, [3, 6], [6, 1]),
        X,
        refused={0: "address", 1: "address"},
    )


# Several results


@pytest.mark.parametrize("part", [0, 1, 2, -1])
@pytest.mark.parametrize(
    "op",
    [
        lambda x, dim: aten.split.Tensor(x, 3, dim),
        lambda x, dim: aten.split_with_sizes.default(x, [1, 0, 5, 1], dim),
        lambda x, dim: aten.unsafe_split.Tensor(x, 3, dim),
        lambda x, dim: aten.unsafe_split_with_sizes.default(x, [4, 1, 2], dim),
        lambda x, dim: torch.chunk(x, 3, dim),
        lambda x, dim: aten.unbind.int(x, dim),
    ],
)
@pytest.mark.parametrize("dim", [1, -3])
def test_a_part_of_a_split(op, dim, part):
    def fn(x):
        return op(x, dim)

    gm = traced(fn, [Z])
    getitem = calls(gm)[1:][part]
    check(fn, Z, node=calls(gm).index(getitem))
    (source,) = (n for n in gm.graph.nodes if n.op == "placeholder")
    assert cut_along(getitem, 0).inputs == ((source, 0),)  # the split isn't read


def test_a_part_counted_from_the_last():
    gm = traced(lambda x: aten.split.Tensor(x, 3, 0), [X])
    split, _, _, last = calls(gm)
    last.args = (split, -1)
    (need,) = cut_along(last, 0).needs(Range(0, 1))
    assert need.range == Range(6, 7)


def test_a_split_itself():
    check(lambda x: aten.split.Tensor(x, 3, 1)[0], Z, node=0, refused={1: "view"})
    check(lambda x: aten.split_with_sizes.default(x, [1, 6], -3)[1], Z, node=0,
          refused={1: "view"})  # fmt: skip
    check(lambda x: aten.split.Tensor(x, 4)[0], X, node=0, refused={0: "view"})
    check(lambda x: aten.unbind.int(x, 1)[0], Z, node=0)
    check(lambda x: aten.unbind.int(x)[0], Z, node=0)


def test_a_result_of_an_operator_with_several():
    """The tuple is cut in the same piece, along the same dim."""
    gm = traced(lambda x: aten.sort.default(x, 1)[1] + 0, [X])
    sort, _, indices = calls(gm)[:3]
    (source,) = sort.all_input_nodes
    values = all_values(gm, [X])
    for each in [Range(0, 3), Range(3, 7), Range(0, 7)]:
        cuts = {sort: (SameCall(sort, {source: 0}), 0), indices: (cut_along(indices, 0), 0)}
        piece, found = build(cuts, {indices: each})
        compare(run(piece, found[indices], values), values[indices], 0, each)


def test_a_result_without_the_dim_is_refused():
    gm = traced(lambda x: aten.native_layer_norm.default(x, [6], None, None, 1e-5)[1] + 0, [X])
    mean = calls(gm)[2]
    assert cut_along(mean, 0).inputs == ((mean.args[0], 0),)
    with pytest.raises(CannotCut) as error:
        cut_along(mean, 1)
    assert error.value.code == "values"


def test_symbolic_numbers_of_a_call_are_taken_by_value():
    def fn(x: torch.Tensor) -> torch.Tensor:
        return aten.slice.Tensor(x, 0, x.shape[0] - 5, x.shape[0])

    gm = torch.fx.experimental.proxy_tensor.make_fx(fn, tracing_mode="symbolic")(X)
    node = calls(gm)[-1]
    assert any(isinstance(a, Node) for a in node.args[1:])
    (need,) = cut_along(node, 0).needs(Range(1, 3))
    assert need.range is not None and (need.range.start, need.range.stop) == (3, 5)
