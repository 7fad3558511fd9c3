"""The cost model: what it counts in a nest, and that its unit is a time."""

from __future__ import annotations

import pytest
import sympy

from torch_piecewise.loops.text import parse
from torch_piecewise.plan.cost import ROW, cost, count, shown, starts, traffic, vector_axis


def size(expr: sympy.Expr) -> int:
    return int(expr)


def nest(*lines: str, axes: str = "i0: 100, i1: 1000", buffers: str = "x: f32, y: f32"):
    body = "\n".join(f"  {line}" for line in lines)
    return parse(f"nest op0 ({axes})\nbuffers {buffers}\nbody op0 for i0, i1:\n{body}\n")


STORE = "store(y, [1000*i0 + i1], %9, None)"


def test_neighbours_few_apart_and_far_apart() -> None:
    def kinds(index: str) -> set[str]:
        found = count(nest(f"%9: f32 = load(x, [{index}])", STORE), size)
        return {kind for kind, times in found.items() if times} - {"access"}

    assert kinds("1000*i0 + i1") == set()
    assert kinds("2000*i0 + 2*i1") == {"strided"}
    assert kinds("i0 + 100*i1") == {"scattered"}
    assert kinds("1000*i0") == {"uniform"}
    assert kinds("1000*i0 + (i1 + 1) % 1000") == {"wrap"}
    assert kinds("1000*((i0 + 1) % 100) + i1") == {"uniform"}
    assert kinds("1000*i0 + i1 % 160") == {"uniform"}  # wraps between vectors


def test_a_mask_along_the_innermost_axis_costs_more() -> None:
    def masked(axis: str) -> float:
        return cost(
            nest(
                f"%1: i64 = index_expr([{axis}], i64)",
                "%2: i64 = constant(50, i64)",
                "%3: bool = lt(%1, %2)",
                "%9: f32 = masked(%3, {",
                "  %4: f32 = load(x, [1000*i0 + i1])",
                "  yield %4",
                "}, 0.0)",
                STORE,
            ),
            size,
        )

    assert masked("i1") > 1.5 * masked("i0")


def test_what_is_written_twice_is_counted_once() -> None:
    twice = nest(
        "%1: f32 = load(x, [1000*i0 + i1])",
        "%2: f32 = exp(%1)",
        "%3: f32 = load(x, [1000*i0 + i1])",
        "%4: f32 = exp(%3)",
        "%9: f32 = add(%2, %4)",
        STORE,
    )
    found = count(twice, size)
    assert found["exp"] == 100_000 and found["access"] == 200_000


def test_traffic_follows_the_axes_of_an_index() -> None:
    broadcast = nest("%9: f32 = load(x, [i1])", STORE)
    assert traffic(broadcast, size) == 4 * (1000 + 2 * 100_000)


def test_many_short_rows_cost_more_than_few_long_ones() -> None:
    short = nest("%9: f32 = load(x, [10*i0 + i1])", STORE, axes="i0: 10000, i1: 10")
    long = nest("%9: f32 = load(x, [10000*i0 + i1])", STORE, axes="i0: 10, i1: 10000")
    assert cost(short, size) - cost(long, size) == pytest.approx(ROW * (10000 - 10))


def test_times_for_reading() -> None:
    assert [shown(t) for t in (12.3, 4567.0, 8.9e6)] == ["12.3 ns", "4.57 µs", "8.9 ms"]


def test_vectors_are_of_columns_where_rows_are_summed() -> None:
    def summed(index: str):
        return parse(
            "nest op0 (i0: 100; r0: 1000)\nbuffers x: f32, y: f32\nbody op0 for i0, reduce r0:\n"
            f"  %0: f32 = load(x, [{index}])\n"
            "  %1: f32 = reduction(f32, f32, 'sum', %0)\n"
            "  store_reduction(y, [i0], %1)\n"
        )

    rows, columns = summed("100*r0 + i0"), summed("1000*i0 + r0")
    assert [str(vector_axis(n)) for n in (rows, columns)] == ["i0", "r0"]
    assert not count(rows, size)["scattered"] and not count(columns, size)["scattered"]
    assert starts(rows, size) < starts(columns, size) / 10
    # a parameter of each row is no neighbour worth a vector: the row's own elements are
    scaled = nest(
        "%1: f32 = load(x, [1000*i0 + i1])",
        "%2: f32 = load(p, [i0])",
        "%3: f32 = load(q, [i0])",
        "%4: f32 = mul(%1, %2)",
        "%9: f32 = add(%4, %3)",
        STORE,
        buffers="x: f32, p: f32, q: f32, y: f32",
    )
    assert str(vector_axis(scaled)) == "i1"
