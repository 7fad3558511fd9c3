"""What is decided for a GPU: spaces, ranges, tiles, parts. No torch compile in it."""

from __future__ import annotations

import math
import textwrap
from types import SimpleNamespace

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from torch_piecewise.inductor import spaces
from torch_piecewise.inductor.launch import AT_ONCE
from torch_piecewise.loops import seams
from torch_piecewise.loops.bounds import Bounds
from torch_piecewise.loops.fold import fold
from torch_piecewise.loops.ir import LoopNest
from torch_piecewise.loops.split import boxes, movable
from torch_piecewise.loops.text import parse, show
from torch_piecewise.plan.instructions import by_vectors, slots, work
from torch_piecewise.plan.launch import (
    TALL,
    TURNS,
    UNIT,
    Extent,
    aligned,
    choose_ranges,
    gain_at_once,
    tile,
    ways,
)
from torch_piecewise.plan.memory import H200, reread, rows_beside, traffic
from torch_piecewise.plan.passes import choose_passes


def sizes(*numbers: int) -> tuple[sympy.Expr, ...]:
    return tuple(map(sympy.Integer, numbers))


@pytest.mark.parametrize(
    ("every", "refinement"),
    [
        ([sizes(2048), sizes(64, 32)], sizes(64, 32)),
        ([sizes(4, 6), sizes(2, 12), sizes(24)], sizes(2, 2, 6)),
        ([sizes(6, 4), sizes(4, 6)], None),  # 4 and 6 columns have no common step
        ([sizes(3, 5), sizes(5, 4)], None),
        ([sizes(1, 5), sizes(5)], sizes(5)),
    ],
)
def test_spaces_are_refined_where_the_steps_of_one_divide_those_of_the_other(every, refinement):
    assert spaces.refined(every) == refinement


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
def test_an_index_of_a_space_is_the_same_point_in_its_refinement(loops, data):
    """Numbered in order, every point of a merged space is that of the loops it was merged from."""
    total, merged, left = math.prod(loops), [], list(loops)
    while left:
        count = data.draw(st.integers(1, len(left)))
        merged.append(math.prod(left[:count]))
        left = left[count:]
    refinement = spaces.refined([sizes(*loops), sizes(*merged)])
    assert refinement is not None
    symbols = sympy.symbols([f"a{k}" for k in range(len(refinement))], integer=True)
    index = spaces.indices(sizes(*merged), symbols, refinement)
    for number in range(total):
        at, rest = {}, number
        for symbol, size in reversed(list(zip(symbols, refinement, strict=True))):
            at[symbol], rest = rest % int(size), rest // int(size)
        place = 0
        for step, size in zip(index, merged, strict=True):
            value = int(step.xreplace(at))
            assert 0 <= value < size
            place = place * size + value
        assert place == number


def padded(rows: int, columns: int, left: int) -> str:
    return f"""
nest padded (i0: {rows}, i1: {columns})
buffers x: bf16, y: bf16
body op0 for i0, i1:
  %0: i64 = index_expr([i1 - {left}], i64)
  %1: i64 = constant(0, i64)
  %2: bool = ge(%0, %1)
  %3: bf16 = masked(%2, {{
    %4: bf16 = load(x, [{columns}*i0 + i1 - {left}])
    %5: bf16 = exp(%4)
    %6: bf16 = tanh(%5)
    %7: bf16 = sin(%6)
    yield %7
  }}, 0.0)
  store(y, [{columns}*i0 + i1], %3)
"""


def test_a_cut_inside_a_vector_becomes_two_at_its_ends():
    nest = parse(padded(64, 4096, 1003))
    cuts = seams.find(nest).cuts
    (at,) = aligned(cuts, nest).values()
    assert [int(p) for p in at] == [1003 // UNIT * UNIT, 1003 // UNIT * UNIT + UNIT]


def test_rows_of_no_whole_number_of_vectors_are_cut_where_the_seams_are():
    nest = parse(padded(64, 4099, 1003))
    assert aligned(seams.find(nest).cuts, nest) == seams.find(nest).cuts


def test_ranges_cover_every_point_once():
    nest = parse(padded(8192, 4096, 1003))
    cut = choose_ranges(seams.find(nest), "auto", 16, int)
    assert len(cut.pieces) > 1, cut.reason
    points = [math.prod(int(b - a) for a, b in box.ranges) for box, _ in cut.pieces]
    assert sum(points) == 8192 * 4096
    columns = sorted(box.ranges[1] for box, _ in cut.pieces)
    assert all(a[1] == b[0] for a, b in zip(columns, columns[1:]))


def test_a_nest_at_the_limit_of_memory_is_left():
    text = padded(8192, 4096, 1024)
    for name in ("exp", "tanh", "sin"):
        text = text.replace(f"{name}(", "neg(")
    assert not choose_ranges(seams.find(parse(text)), "auto", 16, int).pieces


def test_a_small_nest_is_left():
    cut = choose_ranges(seams.find(parse(padded(16, 4096, 1003))), "auto", 16, int)
    assert not cut.pieces and cut.reason.code in ("small", "no-gain")


@given(st.integers(1, 5000), st.integers(1, 5000), st.sampled_from([256, 512, 1024, 2048]))
def test_tiles_are_powers_of_two_and_no_larger_than_asked(rows, columns, elements):
    wide, high = tile(rows, columns, elements, 0.04)
    assert wide & (wide - 1) == 0 and high & (high - 1) == 0
    assert wide * high <= elements
    assert wide < 2 * columns and high < 2 * rows


def test_a_small_launch_has_small_tiles_and_the_whole_comes_last():
    nest = parse(padded(16, 256, 16))
    parts = [Extent(16, 16, nest), Extent(16, 240, nest)]
    first, second = ways(parts, Extent(1, 4096), int)
    assert set(first.tiles) == {0, 1} and set(second.tiles) == {2}
    assert max(t.columns * t.rows for t in first.tiles.values()) <= 256


def chain(rows: int, columns: int, name: str) -> str:
    """A nest that applies one function twelve times."""
    steps = "\n".join(f"  %{k}: bf16 = {name}(%{k - 1})" for k in range(1, 13))
    return f"""
nest chain (i0: {rows}, i1: {columns})
buffers x: bf16, y: bf16
body op0 for i0, i1:
  %0: bf16 = load(x, [{columns}*i0 + i1])
{steps}
  store(y, [{columns}*i0 + i1], %12)
"""


def test_ranges_that_compute_run_beside_ranges_that_copy():
    rows = {"tanh": 128, "neg": 1024}
    parts = [Extent(n, 65536, parse(chain(n, 65536, name))) for name, n in rows.items()]
    assert gain_at_once(parts, int) > 1.05 > gain_at_once(parts[:1] * 2, int)
    one, other, _ = ways(parts, Extent(1, 1152 * 65536), int)
    assert (one.turns, one.tiles) != (other.turns, other.tiles) == (TURNS, one.tiles)
    assert not any(way.turns > 1 for way in ways(parts[:1] * 2, None, int))


@given(st.integers(1, 400), st.integers(1, 32))
def test_blocks_in_turns_are_all_of_them(blocks, turns):
    """The text that computes a block's place is Python too."""
    places, tl = [], SimpleNamespace(num_programs=lambda _: blocks)
    for block in range(blocks):
        names = {"block": block, "TURNS": turns, "tl": tl}
        exec(textwrap.dedent(AT_ONCE), names)
        places.append(names["block"])
    assert sorted(places) == list(range(blocks))
    each = blocks // turns
    assert turns == 1 or each < 2 or abs(places[1] - places[0]) >= each


def test_what_repeats_in_a_row_and_what_vectors_load_costs_less():
    row = """
nest n (i0: 4096, i1: 4096)
buffers x: bf16, y: bf16, z: bf16
body op0 for i0, i1:
  %0: bf16 = load(x, [{}])
  %1: bf16 = tanh(%0)
  %2: bf16 = load(y, [4096*i0 + i1{}])
  %3: bf16 = add(%1, %2)
  store(z, [4096*i0 + i1], %3)
"""
    each, once = parse(row.format("4096*i0 + i1", "")), parse(row.format("i0", ""))
    shifted = parse(row.format("4096*i0 + i1", " + 1"))
    assert slots(once, int) < slots(each, int)
    assert work(each, int, 8).accesses < work(shifted, int, 8).accesses
    assert by_vectors(each) and by_vectors(once) and not by_vectors(shifted)


def stencil(columns: int, places: str) -> LoopNest:
    loads = [f"  %{k}: bf16 = load(x, [{place}])" for k, place in enumerate(places.split("; "))]
    sums = [f"  %{k + 8}: bf16 = add(%{k + 7 if k else 0}, %{k})" for k in range(len(loads))]
    body = "\n".join([*loads, *sums])
    return parse(f"""
nest n (i0: 4096, i1: {columns})
buffers x: bf16, z: bf16
body op0 for i0, i1:
{body}
  store(z, [{columns}*i0 + i1], %{len(sums) + 7})
""")


def test_few_elements_of_a_lane_touch_few_lines_where_they_are_read_one_by_one():
    """A warp reads 32 lanes of 8 elements of 2 bytes: those with a lane's number are in 4 lines."""
    near = stencil(4096, "4096*i0 + i1; 4096*i0 + i1 + 1")
    points = 4096 * 4096
    aligned, single, stored = 4 * 4 / 8, 4 * 4, 4 * 4 / 8
    assert work(near, int, 8).accesses == points * (aligned + single + stored)
    aligned, single, stored = 4 * 1 / 2, 4 * 1, 4 * 1 / 2
    assert work(near, int, 2).accesses == points * (aligned + single + stored)


def test_rows_beside_come_from_the_cache_again_for_every_tile():
    here, there = "4096*i0 + i1", "4096*i0 + i1 + 4096"
    one, two = stencil(4096, here), stencil(4096, f"{here}; {there}")
    assert rows_beside(one) == 0 and rows_beside(two) == 1
    assert rows_beside(stencil(4096, f"{here}; {here} + 1; {here} + 100")) == 0
    size = 4096 * 4096 * 2
    assert reread(two, int, 1) == size and reread(two, int, 4) == size / 4


def test_far_parts_of_a_buffer_are_memory_of_their_own():
    points = 4096 * 4096
    near = stencil(4096, "4096*i0 + i1; 4096*i0 + i1 + 4096")
    far = stencil(4096, f"4096*i0 + i1; 4096*i0 + i1 + {points}")
    assert traffic(far, int) == traffic(near, int) + 2 * points
    assert rows_beside(far) == 0


def test_an_addition_takes_a_product_along():
    text = """
nest n (i0: 4096, i1: 4096)
buffers x: f32, z: f32
body op0 for i0, i1:
  %0: f32 = load(x, [4096*i0 + i1])
  %1: f32 = {}(%0, %0)
  %2: f32 = add(%1, %0)
  store(z, [4096*i0 + i1], %2)
"""
    product, other = (work(parse(text.format(op)), int, 4).issued for op in ("mul", "maximum"))
    assert other - product == 4096 * 4096


def test_tiles_are_tall_where_other_rows_are_read_one_by_one():
    here = "4096*i0 + i1"
    nests = {
        False: stencil(4096, f"{here}; {here} + 4096"),  # by vectors
        True: stencil(4096, f"{here} + 1; {here} + 3; {here} + 4097; {here} + 4099"),
    }
    for tall, nest in nests.items():
        cut, *whole = ways([Extent(4096, 4096, nest)], Extent(1, 4096 * 4096), int)
        assert len(whole) == (2 if tall else 1)  # Inductor's block shapes that may be the best
        assert (cut.tiles[0].rows >= TALL) == tall


def test_buffers_that_live_inside_a_nest_move_no_memory():
    text = """
nest n (i0: 4096)
buffers x: f32, y: f32, z: f32
body op0 for i0:
  %0: f32 = load(x, [i0])
  store(y, [i0], %0)
body op1 for i0:
  %1: f32 = load(y, [i0])
  store(z, [i0], %1)
"""
    assert traffic(parse(text), int) == 3 * 4 * 4096


def test_a_wrap_below_zero_keeps_only_the_boxes_that_have_it_from_being_moved():
    nest = parse("""
nest n (i0: 96)
buffers x: f32, y: f32
body op0 for i0:
  %0: i64 = index_expr([i0], i64)
  %1: i64 = constant(32, i64)
  %2: bool = ge(%0, %1)
  %3: f32 = masked(%2, {
    %4: f32 = load(x, [ModularIndexing(i0 - 32, 16, 4)])
    yield %4
  }, 0.0)
  store(y, [i0], %3)
""")
    search = seams.find(nest)
    assert not search.cuts and 32 in next(iter(search.held.values()))
    (axis,) = search.held
    assert all(movable(nest, box) for box in boxes(nest, {axis: sizes(32)}))
    odd = boxes(nest, {axis: sizes(16)})
    assert [movable(nest, box) for box in odd] == [True, False]


CAUSAL = """
nest causal (i0: 4, i1: 2048; r0: 2048)
buffers x: f32, m: f32
body op0 for i0, i1, reduce r0:
  %0: i64 = index_expr([r0 - i1], i64)
  %1: i64 = constant(0, i64)
  %2: bool = {}(%0, %1)
  %3: f32 = load(x, [4194304*i0 + 2048*i1 + r0])
  %4: f32 = exp(%3)
  %5: f32 = constant(-inf, f32)
  %6: f32 = where(%2, %4, %5)
  %7: f32 = reduction(f32, f32, 'max', %6)
  store_reduction(m, [2048*i0 + i1], %7)
"""


@pytest.mark.parametrize(("op", "seen"), [("le", (0, 1)), ("gt", (1, 2))])
def test_a_condition_over_row_and_column_is_settled_at_both_sides(op, seen):
    found = choose_passes(seams.find(parse(CAUSAL.format(op))), "seams", int)
    loads = ["load(x" in show(part.nest) for part in found.parts]
    open_ = ["where" in show(part.nest) for part in found.parts]
    assert loads == [k in seen for k in range(3)]
    assert open_ == [False, True, False]


def test_a_sign_that_is_given_settles_its_opposite_too():
    nest = parse(CAUSAL.format("gt"))
    bounds = Bounds.of(nest.axes, nest.symbols)
    (slant,) = seams.find(nest).slants
    for negative in (True, False):
        folded = fold(nest, within=Bounds(bounds.axes, bounds.sizes, {slant.expr: negative}))
        assert "where" not in show(folded)


@pytest.mark.parametrize(
    ("shift", "ends"),
    [
        ("r0 + 3", [(8189, -1, 0, 0), (0, 0, 8189, -1)]),
        ("r0 + 8189", [(8192, 0, 3, 1), (3, 1, 8192, 0)]),
    ],
)
def test_a_wrap_near_an_end_is_a_part_of_its_own(shift, ends):
    """The part with the first column comes first: a running mean starts there."""
    text = f"""
nest n (i0: 4096; r0: 8192)
buffers x: f32, m: f32
body op0 for i0, reduce r0:
  %0: f32 = load(x, [8192*i0 + ModularIndexing({shift}, 1, 8192)])
  %1: f32 = reduction(f32, f32, 'sum', %0)
  store_reduction(m, [i0], %1)
"""
    parts = choose_passes(seams.find(parse(text)), "seams", int).parts
    found = [
        (int(p.start.column), p.start.rounded, int(p.stop.column), p.stop.rounded) for p in parts
    ]
    expected = ends if ends[0][2] else ends[::-1]
    assert found == expected
    clean = next(p for p in parts if not p.ends)
    assert "%" not in show(clean.nest).split("load(x")[1].split("\n")[0]


def test_an_h200_hides_eight_instructions_behind_a_byte():
    assert H200.slots / H200.bytes == pytest.approx(8, abs=0.1)
