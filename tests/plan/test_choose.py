"""Which seams are cut: those that save something, together where one alone decides nothing."""

from __future__ import annotations

import sympy

from torch_piecewise.loops import seams
from torch_piecewise.loops.text import parse
from torch_piecewise.plan.choose import Cutting, choose


def size(expr: sympy.Expr) -> int:
    return int(expr)


def cutting(text: str, split: str = "auto", max_pieces: int = 16, threads: int = 1) -> Cutting:
    nest = parse(text)
    return choose(nest, seams.find(nest).cuts, split, max_pieces, threads, size)


def shift(by0: str, by1: str, rows: int = 2000, columns: int = 2000) -> str:
    return f"""nest op0 (i0: {rows}, i1: {columns})
buffers x: f32, y: f32
body op0 for i0, i1:
  %0: f32 = load(x, [{columns}*({by0}) + {by1}])
  %1: f32 = exp(%0)
  store(y, [{columns}*i0 + i1], %1, None)
"""


INNER = "(i1 + 1) % 2000"
OUTER = "(i0 + 1) % 2000"


def ranges(cut: Cutting) -> list[tuple[tuple[int, int], ...]]:
    return [tuple((int(a), int(b)) for a, b in box.ranges) for box, _ in cut.pieces]


def test_a_wrap_between_vectors_is_not_worth_a_cut() -> None:
    cut = cutting(shift(OUTER, "i1"))
    assert not cut.pieces and cut.reason.code == "no-gain"
    assert len(cutting(shift(OUTER, "i1"), "seams").pieces) == 2


def test_only_the_axis_that_pays_is_cut() -> None:
    cut = cutting(shift(OUTER, INNER))
    # the seam is at 1999; whole vectors end at 1984
    assert ranges(cut) == [((0, 2000), (0, 1984)), ((0, 2000), (1984, 2000))]
    assert cut.reason.code == "gain" and "ms whole" in cut.reason.text
    assert len(cutting(shift(OUTER, INNER), "seams").pieces) == 4


def test_a_small_nest_stays_whole() -> None:
    cut = cutting(shift("i0", "(i1 + 1) % 50", 10, 50))
    assert not cut.pieces


BLOCKS = """nest op0 (i0: 2000, i1: 2000)
buffers x: f32, y: f32
body op0 for i0, i1:
  %0: i64 = index_expr([i0 // 1000], i64)
  %1: i64 = index_expr([i1 // 1000], i64)
  %2: bool = eq(%0, %1)
  %3: f32 = load(x, [2000*i0 + i1])
  %4: f32 = tanh(%3)
  %5: f32 = constant(0.0, f32)
  %6: f32 = where(%2, %4, %5)
  store(y, [2000*i0 + i1], %6, None)
"""


def test_cuts_that_only_pay_together_are_kept() -> None:
    assert len(cutting(BLOCKS).pieces) == 4


def test_a_condition_that_stands_in_every_vector_is_a_jump() -> None:
    """Blocks of a multiple of a vector's length: the compiler jumps around the work itself."""
    assert not cutting(BLOCKS.replace("1000", "1024").replace("2000", "2048")).pieces


def test_neighbours_that_do_the_same_are_joined() -> None:
    thirds = BLOCKS.replace("1000]", "500]")
    pieces = cutting(thirds).pieces
    assert len(cutting(thirds, "seams").pieces) == 16
    # in each of four rows of boxes: the block itself, and what is left and right of it
    assert len(pieces) == 2 + 3 + 3 + 2


def test_the_cap_keeps_the_cuts_that_save_most() -> None:
    cut = cutting(shift(OUTER, INNER), "seams", max_pieces=2)
    assert ranges(cut) == [((0, 2000), (0, 1999)), ((0, 2000), (1999, 2000))]
    (note,) = cut.notes
    assert note.code == "joined" and "4 pieces at its seams, the cap is 2" in note.text
    nothing = cutting(shift(OUTER, INNER), "seams", max_pieces=1)
    assert not nothing.pieces and nothing.reason.code == "too-many-pieces"


def test_boundary_boxes_are_joined_where_they_are_short() -> None:
    """A heavy border of one row: its corners go with it, as they save less than they cost."""
    text = """nest op0 (i0: 2000, i1: 200)
buffers x: f32, y: f32
body op0 for i0, i1:
  %0: i64 = index_expr([i0], i64)
  %1: i64 = constant(1, i64)
  %2: bool = lt(%0, %1)
  %3: f32 = load(x, [200*i0 + (i1 + 1) % 200])
  %4: f32 = tanh(%3)
  %5: f32 = exp(%3)
  %6: f32 = where(%2, %4, %5)
  store(y, [200*i0 + i1], %6, None)
"""
    assert ranges(cutting(text)) == [
        ((0, 1), (0, 200)),
        ((1, 2000), (0, 199)),
        ((1, 2000), (199, 200)),
    ]
    assert len(cutting(text, "seams").pieces) == 4
