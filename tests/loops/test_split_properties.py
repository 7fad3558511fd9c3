"""Cutting a nest never changes what it computes: random nests, at their seams and elsewhere.

Examples that once failed are kept below as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import pytest
import sympy
import torch
from hypothesis import currently_in_test_context, given, note

from torch_piecewise.loops import interpret, ops, seams, split, text
from torch_piecewise.loops.ir import LoopNest

from .frames import Case
from .nests import cases
from .same import alike, differing

Cuts = Mapping[sympy.Symbol, Sequence[sympy.Expr]]
Tensors = dict[str, torch.Tensor]

# Operations whose failure the pieces must report too; a load that nothing uses may be dropped.
MUST_FAIL = ("check_bounds", "indirect_indexing", "store", "store_reduction")


def tell(what: str) -> None:
    """Shown with the example that hypothesis reports, if this runs under hypothesis."""
    if currently_in_test_context():
        note(what)


def pieces(nest: LoopNest, cuts: Cuts) -> Iterator[LoopNest]:
    """The nest limited to each box, well-formed and with a text that reads back."""
    for box in split.boxes(nest, cuts):
        tell(f"box {box}")
        piece = split.restrict(nest, box)
        written = text.show(piece)
        tell(written)
        ops.check(piece)
        assert alike(text.parse(written), piece)
        yield piece


def run_pieces(case: Case, cuts: Cuts) -> Tensors:
    """Section after section; the parts of one reduce into the same values."""
    tensors = case.tensors()
    parts = pieces(case.nest, cuts)
    for section in split.sections(case.nest, split.boxes(case.nest, cuts)):
        interpret.run_parts(list(islice(parts, len(section))), tensors, case.symbols)
    return tensors


def assert_same(case: Case, cuts: Cuts) -> None:
    tell(text.show(case.nest))
    tell(f"sizes {case.symbols}, cuts {dict(cuts)}")
    whole = case.tensors()
    interpret.run(case.nest, whole, case.symbols)
    wrong = differing(whole, run_pieces(case, cuts), case.exact)
    assert not wrong, f"the pieces give other values for {', '.join(wrong)}"


@given(cases())
def test_pieces_at_seams_give_what_the_nest_gives(case: Case) -> None:
    assert_same(case, seams.find(case.nest).cuts)


@given(cases())
def test_pieces_at_random_places_give_what_the_nest_gives(case: Case) -> None:
    assert_same(case, case.cuts)


@given(cases(faulty=True))
def test_a_check_that_fails_fails_in_the_pieces_too(case: Case) -> None:
    tell(text.show(case.nest))
    whole = case.tensors()
    try:
        interpret.run(case.nest, whole, case.symbols)
    except interpret.OutOfBounds as error:
        if error.op.name not in MUST_FAIL:
            return
    except interpret.AssertFailed:
        pass
    else:
        assert_same(case, case.cuts)
        return
    with pytest.raises((interpret.OutOfBounds, interpret.AssertFailed)):
        run_pieces(case, case.cuts)


# ---- nests that once failed, or that show one kind of seam each ------------------------------

ROLL = """
    nest n (i0: 3, i1: 8)
    buffers x: f64, y: f64
    body op for i0, i1:
      %0: f64 = load(x, [8*i0 + (i1 + 3) % 8])
      store(y, [8*i0 + i1], %0)
    """
PADDING = """
    nest n (i0: 9)
    buffers x: f64, y: f64
    body op for i0:
      %0: i64 = index_expr([i0 - 2], i64)
      %1: i64 = constant(0, i64)
      %2: bool = ge(%0, %1)
      %3: i64 = constant(5, i64)
      %4: bool = lt(%0, %3)
      %5: bool = and_(%2, %4)
      %7: f64 = masked(%5, {
        %6: f64 = load(x, [i0 - 2])
        yield %6
      }, 0.0)
      store(y, [i0], %7)
    """
LAST_OF_A_SIZE = """
    nest n (i0: s0 + 2)
    symbols s0 in [2, inf)
    buffers x: f64, y: f64
    body op for i0:
      %0: i64 = index_expr([i0], i64)
      %1: i64 = index_expr([s0 - 1], i64)
      %2: bool = lt(%0, %1)
      %3: f64 = load(x, [Min(i0, s0 - 1)])
      %4: f64 = constant(-1.0, f64)
      %5: f64 = where(%2, %3, %4)
      store(y, [i0], %5)
    """
ZEROS_OF_BOTH_SIGNS = """
    nest n (i0: 1)
    buffers x: f64, y: f64
    body op for i0:
      %0: f64 = constant(-0.0, f64)
      %1: i64 = index_expr([i0], i64)
      %2: i64 = constant(0, i64)
      %3: bool = lt(%1, %2)
      %5: f64 = masked(%3, {
        %4: f64 = constant(0.5, f64)
        yield %4
      }, 0.0)
      %6: f64 = add(%0, %5)
      store(y, [i0], %6)
    """
WRAP_OF_AN_EMPTY_AXIS = """
    nest n (i0: 0)
    buffers x: f64, y: f64
    body op for i0:
      %0: f64 = load(x, [(i0 + 1) % 0])
      store(y, [i0], %0)
    """
UNCHECKED_INDEX = """
    nest n (i0: 6)
    buffers x: f64, y: f64
    body op for i0:
      %0: i64 = index_expr([i0], i64)
      indirect_indexing([t0], %0, [3], False, False)
      %2: i64 = index_expr([t0], i64)
      %3: i64 = constant(3, i64)
      %4: bool = lt(%2, %3)
      %5: f64 = load(x, [t0])
      %6: f64 = where(%4, %5, -1.0)
      store(y, [i0], %6)
    """
BYTES_WRAP = """
    nest n (i0: 6)
    buffers x: f64, y: f64
    body op for i0:
      %0: i64 = index_expr([i0 - 3], i64)
      %1: u8 = to_dtype(%0, u8)
      %2: u8 = constant(5, u8)
      %3: bool = lt(%1, %2)
      %4: f64 = load(x, [i0])
      %5: f64 = to_dtype(%1, f64)
      %6: f64 = where(%3, %4, %5)
      store(y, [i0], %6)
    """
# ties: the least position in the whole wins, in whichever part it is
ARGMAX_OF_TWO_AXES = """
    nest n (i0: 2; r0: 3, r1: 4)
    buffers x: f64, y: f64
    body op for i0, reduce r0, r1:
      %0: f64 = load(x, [12*i0 + 4*r0 + r1])
      %1: i64 = to_dtype(%0, i64)
      %2: i64 = mod(%1, 5)
      %3: i64 = reduction(i64, i64, 'argmax', %2)
      %4: f64 = to_dtype(%3, f64)
      store_reduction(y, [i0], %4)
    """
PADDED_VARIANCE = """
    nest n (i0: 2; r0: 9)
    buffers x: f64, y: f64
    body op for i0, reduce r0:
      %0: i64 = index_expr([r0 - 2], i64)
      %1: i64 = constant(0, i64)
      %2: bool = ge(%0, %1)
      %4: f64 = masked(%2, {
        %3: f64 = load(x, [7*i0 + r0 - 2])
        yield %3
      }, 1.0)
      %5 = reduction(f64, f64, 'welford_reduce', %4)
      %6: f64 = getitem(%5, 1)
      store_reduction(y, [i0], %6)
    body after for i0:
      %8: f64 = load(y, [i0])
      %9: f64 = add(%8, 1.0)
      store(y, [i0 + 2], %9)
    """


def everywhere(nest: LoopNest) -> list[Cuts]:
    """The seams, and one cut at each place of each axis."""
    cuts: list[Cuts] = [seams.find(nest).cuts]
    for axis in nest.axes:
        known = axis.size.is_Integer
        places = map(sympy.Integer, range(1, int(axis.size))) if known else [axis.size - 1]
        cuts += [{axis.symbol: [place]} for place in places]
    return cuts


def run_text(source: str, cuts: Cuts | None = None) -> tuple[Tensors, list[LoopNest]]:
    nest = text.parse(source)
    ops.check(nest)
    tensors = {"x": torch.arange(24.0, dtype=torch.float64), "y": torch.zeros(24).double()}
    cuts = cuts or {}
    parts = list(pieces(nest, cuts)) if cuts else [nest]
    rest = iter(parts)
    for section in split.sections(nest, split.boxes(nest, cuts)):
        together = list(islice(rest, len(section)))
        interpret.run_parts(together, tensors, {"s0": 4} if nest.symbols else {})
    return tensors, parts


KNOWN = {
    "roll": ROLL,
    "padding": PADDING,
    "last of a size": LAST_OF_A_SIZE,
    "zeros of both signs": ZEROS_OF_BOTH_SIGNS,
    "wrap of an empty axis": WRAP_OF_AN_EMPTY_AXIS,
    "unchecked index": UNCHECKED_INDEX,
    "bytes wrap": BYTES_WRAP,
    "argmax of two axes": ARGMAX_OF_TWO_AXES,
    "padded variance": PADDED_VARIANCE,
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_nests(name: str) -> None:
    whole, _ = run_text(KNOWN[name])
    for cuts in everywhere(text.parse(KNOWN[name])):
        assert not differing(whole, run_text(KNOWN[name], cuts)[0])


@pytest.mark.parametrize("name", ["roll", "padding", "last of a size", "padded variance"])
def test_no_condition_is_left_between_seams(name: str) -> None:
    cuts = seams.find(text.parse(KNOWN[name])).cuts
    assert cuts, "no seam was found"
    for piece in run_text(KNOWN[name], cuts)[1]:
        written = text.show(piece)
        assert not any(left in written for left in ("where", "masked", " % ", "Min")), written
