"""Which axis of a nest goes along a dim of a buffer, and where ranges of the dim begin on it."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import sympy
from hypothesis import given
from hypothesis import strategies as st

from torch_piecewise.loops.dims import Layout, cuts, dim_of, factored, followed, place
from torch_piecewise.loops.ir import Axis, Body, Builder, LoopNest, axis_symbol
from torch_piecewise.loops.text import show

ZERO = sympy.S.Zero


def hint(expr):
    return math.inf if expr == sympy.oo else float(expr)


def at_most(a, b):
    return bool(a <= b)


def axes_of(sizes):
    return tuple(Axis(axis_symbol("i", k), sympy.Integer(s)) for k, s in enumerate(sizes))


def strides_of(sizes):
    return [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]


def layout(sizes):
    return Layout(tuple(map(sympy.Integer, sizes)), tuple(map(sympy.Integer, strides_of(sizes))))


def loops(data, sizes):
    """Loops over all of a space, those of neighbouring dims merged as it happens, and the index."""
    merged, left = [], list(sizes)
    while left:
        count = data.draw(st.integers(1, len(left)))
        merged.append(math.prod(left[:count]))
        left = left[count:]
    axes = axes_of(merged)
    return axes, sum((s * a.symbol for s, a in zip(strides_of(merged), axes)), ZERO)


def bounds_of(data, size):
    inside = data.draw(st.sets(st.integers(1, size - 1), max_size=3))
    return tuple(map(sympy.Integer, [0, *sorted(inside), size]))


def nest_of(axes, index):
    builder = Builder(itertools.count())
    value = builder.emit("load", ("x", index))
    builder.emit("store", ("y", index, value, None))
    symbols = tuple(a.symbol for a in axes)
    return LoopNest("n", axes, (Body("b", symbols, (), builder.block()),), ())


def checked(axes, index, dim, bounds, position):
    """Whether an axis goes along the dim; every point is then in the range of its position.

    `position` gives that of an address.
    """
    found = place(index, axes, dim, hint)
    if found is None:
        return False
    size = next(a.size for a in axes if a.symbol == found.axis)
    begins, why = cuts(found, size, bounds, at_most)
    if why:
        return False
    nest, along = nest_of(axes, index), found.axis
    if found.period is not None:
        nest, inner = factored(nest, along, found.period)
        along = inner.symbol
    (body,) = nest.bodies
    index = body.block.ops[0].args[1]
    for point in itertools.product(*(range(int(a.size)) for a in nest.axes)):
        at = dict(zip((a.symbol for a in nest.axes), point, strict=True))
        where = position(int(index.xreplace(at)))
        if 0 <= where < bounds[-1]:
            number = max(n for n, first in begins if first <= at[along])
            assert bounds[number] <= where < bounds[number + 1], show(nest)
    return True


SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(SIZES, st.data())
def test_every_point_is_in_the_range_of_its_position(sizes, data):
    """However the loops are merged, the dim is found in them, inner or outer."""
    dims = [k for k, size in enumerate(sizes) if size > 1]
    if not dims:
        return
    own = data.draw(st.sampled_from(dims))
    step, size = strides_of(sizes)[own], sizes[own]
    axes, index = loops(data, sizes)
    dim = dim_of(layout(sizes), sympy.Integer(step), sympy.Integer(size), (ZERO, ZERO), ZERO, hint)
    bounds = bounds_of(data, size)
    assert checked(axes, index, dim, bounds, lambda address: address // step % size)


@given(SIZES, st.data())
def test_another_buffer_is_cut_where_the_slice_of_it_that_is_read_is(sizes, data):
    """The maker of a buffer, of which a part is read: in every second place, for one."""
    dims = [k for k, size in enumerate(sizes) if size > 1]
    if not dims:
        return
    own = data.draw(st.sampled_from(dims))
    # what is read: from `start` on, in steps
    starts = [data.draw(st.integers(0, 2)) for _ in sizes]
    every = [data.draw(st.integers(1, 2)) if k == own else 1 for k in range(len(sizes))]
    whole = [
        start + (size - 1) * step + 1 + data.draw(st.integers(0, 1))
        for size, start, step in zip(sizes, starts, every, strict=True)
    ]
    axes, stride = axes_of(sizes), strides_of(whole)
    written = sum((s * a.symbol for s, a in zip(strides_of(sizes), axes)), ZERO)
    read = sum(
        (s * (a.symbol * step + start) for s, a, start, step in zip(stride, axes, starts, every)),
        ZERO,
    )
    step, count = sympy.Integer(strides_of(sizes)[own]), sympy.Integer(sizes[own])
    dim = dim_of(layout(sizes), step, count, (ZERO, ZERO), ZERO, hint)
    found = place(written, axes, dim, hint)
    assert found is not None and found.axis == axes[own].symbol
    other = followed(found, read, axes, layout(whole), hint)
    assert other is not None

    def position(address):
        return Fraction(address // stride[own] % whole[own] - starts[own], every[own])

    makers, index = loops(data, whole)
    assert checked(makers, index, other, bounds_of(data, sizes[own]), position)


def test_a_dim_spread_over_loops_is_cut_between_rows_only():
    sizes = (2, 5, 3)
    axes = axes_of(sizes)
    index = 15 * axes[0].symbol + 3 * axes[1].symbol + axes[2].symbol
    ten = sympy.Integer(10)
    dim = dim_of(layout((10, 3)), sympy.Integer(3), ten, (ZERO, ZERO), ZERO, hint)
    found = place(index, axes, dim, hint)
    assert cuts(found, axes[0].size, (ZERO, sympy.Integer(5), ten), at_most)[0] == [(0, 0), (1, 1)]
    begins, why = cuts(found, axes[0].size, (ZERO, sympy.Integer(4), ten), at_most)
    assert begins == [] and "4 is inside a step of i0" in why


def test_symbolic_sizes():
    rows, columns = sympy.symbols("s0 s1", integer=True, positive=True)
    likely = {rows: 3000, columns: 64}

    def guess(expr):
        return float(expr.xreplace(likely)) if expr != sympy.oo else math.inf

    axis = Axis(axis_symbol("i", 0), rows * columns)
    shape = Layout((rows, columns), (columns, sympy.S.One))
    dim = dim_of(shape, columns, rows, (ZERO, ZERO), ZERO, guess)
    found = place(axis.symbol, (axis,), dim, guess)
    bounds = (ZERO, sympy.Integer(1000), rows)
    begins, _ = cuts(found, axis.size, bounds, lambda a, b: False)
    assert begins == [(0, 0), (1, 1000 * columns)]
