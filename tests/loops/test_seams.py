"""Where seams are found, and what is left with a note. Nests are written as IR text."""

from __future__ import annotations

import pytest
import sympy

from torch_piecewise.loops import seams
from torch_piecewise.loops.split import boxes, restrict
from torch_piecewise.loops.text import parse, show


def condition(first: str, op: str, second: str, *, size: str = "100", symbols: str = "") -> str:
    """A nest over i0 (and j = i1) that stores one of two constants by a comparison."""
    return f"""\
nest n (i0: {size}, i1: 50){symbols}
buffers y: f32
body op0 for i0, i1:
  %0: i64 = index_expr([{first}], i64)
  %1: i64 = index_expr([{second}], i64)
  %2: bool = {op}(%0, %1)
  %3: f32 = constant(1.0, f32)
  %4: f32 = constant(2.0, f32)
  %5: f32 = where(%2, %3, %4)
  store(y, [50*i0 + i1], %5)
"""


def found(text: str) -> dict[str, tuple[str, ...]]:
    cuts = seams.find(parse(text)).cuts
    return {str(axis): tuple(map(str, at)) for axis, at in cuts.items()}


@pytest.mark.parametrize(
    ("first", "op", "second", "cuts"),
    [
        ("i0", "lt", "7", {"i0": ("7",)}),
        ("i0", "le", "7", {"i0": ("8",)}),
        ("i0", "gt", "7", {"i0": ("8",)}),
        ("i0", "ge", "7", {"i0": ("7",)}),
        ("i0", "eq", "7", {"i0": ("7", "8")}),
        ("i0", "ne", "0", {"i0": ("1",)}),
        ("7", "lt", "i0", {"i0": ("8",)}),
        ("99 - i0", "lt", "7", {"i0": ("93",)}),
        ("2*i0", "lt", "7", {"i0": ("4",)}),
        ("2*i0", "le", "8", {"i0": ("5",)}),
        ("-3*i0 + 30", "gt", "0", {"i0": ("10",)}),
        ("i0 // 8", "lt", "3", {"i0": ("24",)}),
        ("i0 // 8", "ge", "3", {"i0": ("24",)}),
        ("i1", "lt", "10", {"i1": ("10",)}),
        ("i0 % 40", "lt", "10", {"i0": ("10", "40", "50", "80", "90")}),
        ("Abs(i0 - 48)", "lt", "10", {"i0": ("39", "58")}),
        ("Abs(i0 - 48)", "ge", "10", {"i0": ("39", "58")}),
        ("Abs(i0 - 48)", "eq", "10", {"i0": ("38", "39", "58", "59")}),
        ("20 - 2*Abs(i0 - 48)", "gt", "0", {"i0": ("39", "58")}),
        ("Min(i0, 99 - i0)", "lt", "4", {"i0": ("4", "50", "96")}),
        ("Max(i0, 99 - i0)", "lt", "60", {"i0": ("40", "50", "60")}),
        ("Max(i0, 20)", "le", "30", {"i0": ("21", "31")}),
        ("Abs(Min(i0, 60) - 48)", "lt", "10", {"i0": ("39", "58", "61")}),
        ("i0", "lt", "0", {}),
        ("i0", "lt", "100", {}),
        ("i0", "lt", "1000", {}),
    ],
)  # fmt: skip
def test_a_comparison_is_cut_where_its_answer_changes(first, op, second, cuts) -> None:
    text = condition(first, op, second)
    assert found(text) == cuts
    nest = parse(text)
    for box in boxes(nest, seams.find(nest).cuts):
        assert "where" not in show(restrict(nest, box)), f"{box} does not decide the condition"


@pytest.mark.parametrize(
    ("first", "op", "second", "cuts"),
    [
        ("50*i0 + i1", "lt", "300", {"i0": ("6",)}),
        ("50*i0 + i1", "lt", "310", {"i0": ("6", "7"), "i1": ("10",)}),
        ("310", "lt", "50*i0 + i1", {"i0": ("6", "7"), "i1": ("11",)}),
        ("50*i0 + i1", "le", "4998", {"i0": ("99",), "i1": ("49",)}),
        ("50*i0", "lt", "i1", {"i0": ("1",), "i1": ("1",)}),
        ("(50*i0 + i1 + 3) % 5000", "lt", "3", {"i0": ("99",), "i1": ("47",)}),
    ],
)
def test_an_index_spread_over_two_axes_is_cut_on_the_leading_one(
    first: str, op: str, second: str, cuts: dict[str, tuple[str, ...]]
) -> None:
    text = condition(first, op, second)
    assert found(text) == cuts
    nest = parse(text)
    for box in boxes(nest, seams.find(nest).cuts):
        assert "where" not in show(restrict(nest, box)), f"{box} does not decide the condition"


@pytest.mark.parametrize(
    ("first", "op", "second", "code"),
    [
        ("i0", "lt", "i1", "two-axes"),
        ("i0 + i1", "ge", "30", "two-axes"),
        ("49*i0 + i1", "lt", "300", "two-axes"),  # i1 reaches into the next i0
        ("Abs(i0 - i1)", "lt", "9", "two-axes"),
        ("i0 % 3", "eq", "0", "periodic"),
    ],
)
def test_what_cannot_be_cut_is_noted(first: str, op: str, second: str, code: str) -> None:
    search = seams.find(parse(condition(first, op, second)))
    assert not search.cuts
    assert code in {note.code for note in search.notes}


def test_a_symbolic_position_is_cut_where_its_order_is_proven() -> None:
    sizes = "\nsymbols s0 in [2, inf)"
    text = condition("i0", "lt", "s0 - 1", size="s0", symbols=sizes)
    assert found(text) == {"i0": ("s0 - 1",)}
    nest = parse(text)
    for box in boxes(nest, seams.find(nest).cuts):
        assert "where" not in show(restrict(nest, box))


def test_a_symbolic_position_of_unknown_order_is_left() -> None:
    sizes = "\nsymbols s0 in [2, inf), s1 in [2, inf)"
    search = seams.find(parse(condition("i0", "lt", "s1", size="s0", symbols=sizes)))
    assert not search.cuts
    assert {note.code for note in search.notes} == {"order-unproven"}


def test_two_positions_of_unknown_order_keep_the_first() -> None:
    text = """\
nest n (i0: s0)
symbols s0 in [10, inf)
buffers y: f32
body op0 for i0:
  %0: i64 = index_expr([i0], i64)
  %1: i64 = constant(7, i64)
  %2: bool = lt(%0, %1)
  %3: i64 = index_expr([s0 - 4], i64)
  %4: bool = lt(%0, %3)
  %5: bool = and_(%2, %4)
  %6: f32 = to_dtype(%5, f32)
  store(y, [i0], %6)
"""
    search = seams.find(parse(text))
    (positions,) = search.cuts.values()
    assert positions == (sympy.Integer(7),)
    assert {note.code for note in search.notes} == {"order-unproven"}


def test_a_periodic_stencil_gives_nine_boxes() -> None:
    text = """\
nest n (i0: 12, i1: 20)
buffers x: f32, y: f32
body op0 for i0, i1:
  %0: f32 = load(x, [20*((i0 + 11) % 12) + i1])
  %1: f32 = load(x, [20*((i0 + 1) % 12) + i1])
  %2: f32 = load(x, [20*i0 + (i1 + 19) % 20])
  %3: f32 = load(x, [20*i0 + (i1 + 1) % 20])
  %4: f32 = add(%0, %1)
  %5: f32 = add(%2, %3)
  %6: f32 = add(%4, %5)
  store(y, [20*i0 + i1], %6)
"""
    nest = parse(text)
    search = seams.find(nest)
    assert found(text) == {"i0": ("1", "11"), "i1": ("1", "19")}
    pieces = [restrict(nest, box) for box in boxes(nest, search.cuts)]
    assert len(pieces) == 9
    assert all("%" not in line.split("[", 1)[1] for p in pieces for line in _loads(show(p)))


def _loads(text: str) -> list[str]:
    return [line for line in text.splitlines() if "load(" in line]


def test_a_reduction_axis_is_cut() -> None:
    text = """\
nest n (i0: 4; r0: 30)
buffers x: f32, y: f32
body op0 for i0, reduce r0:
  %0: i64 = index_expr([r0], i64)
  %1: i64 = constant(20, i64)
  %2: bool = lt(%0, %1)
  %4: f32 = masked(%2, {
    %3: f32 = load(x, [20*i0 + r0])
    yield %3
  }, 0.0)
  %5: f32 = reduction(f32, f32, 'sum', %4)
  store_reduction(y, [i0], %5)
"""
    assert found(text) == {"r0": ("20",)}
    nest = parse(text)
    first, second = (restrict(nest, b) for b in boxes(nest, seams.find(nest).cuts))
    assert "masked" not in show(first)
    assert "load" not in show(second)


def test_a_bound_in_a_float_dtype_counts_only_where_it_is_exact() -> None:
    text = condition("i0", "lt", "7", size="70000").replace(
        "index_expr([i0], i64)", "index_expr([i0], {})"
    )
    assert found(text.replace("{}", "f32")) == {"i0": ("7",)}
    assert found(text.replace("{}", "f16")) == {}  # 70000 is no float16, so i0 may be rounded


def test_an_axis_whose_index_leaves_int64_is_not_cut() -> None:
    """To count from another place a number would have to be added that C++ can't write."""
    nest = parse("""
nest far (i0: 40)
buffers y: f32
body op0 for i0:
  %0: i64 = index_expr([6364136223846793005*i0], i64)
  %1: i64 = index_expr([i0], i64)
  %2: i64 = constant(7, i64)
  %3: bool = lt(%1, %2)
  %4: i64 = where(%3, %1, %0)
  %5: f32 = to_dtype(%4, f32)
  store(y, [i0], %5)
""")
    search = seams.find(nest)
    assert not search.cuts
    assert [n.code for n in search.notes] == ["overflow"]


def test_an_empty_axis_that_wraps_at_zero_has_no_seam() -> None:
    text = """\
nest n (i0: 0)
buffers x: f32, y: f32
body op0 for i0:
  %0: f32 = load(x, [(i0 + 1) % 0])
  store(y, [i0], %0)
"""
    assert found(text) == {}


@pytest.mark.parametrize(
    ("first", "op", "second", "places"),
    [
        ("i0 + 16", "ge", "i1", {16, 32}),  # open from column 17 to 32: cut at whole vectors
        ("i1", "lt", "40 - i0", {16, 48}),
        ("2*i1", "gt", "i0 + 50", {16, 48}),
        ("i0", "eq", "i1", {16}),  # open from column 0 to 15
    ],
)
def test_in_a_block_a_condition_over_two_axes_is_settled_at_both_sides(
    first: str, op: str, second: str, places: set[int]
) -> None:
    nest = parse(condition(first, op, second, size="16"))
    search = seams.find(nest, in_block=True)
    assert {int(at) for cuts in search.cuts.values() for at in cuts} == places and not search.notes
    columns = boxes(nest, search.cuts)
    settled = ["where" not in show(restrict(nest, box)) for box in columns]
    assert settled.count(False) == 1, "one range of columns keeps the condition"
