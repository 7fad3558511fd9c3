"""Cuts near the ends of the vectorised axis stand at whole vectors; no others move."""

from __future__ import annotations

import pytest
import sympy
import torch
from tests.backend.harness import same_as_plain

from torch_piecewise import explain
from torch_piecewise.loops.split import boxes
from torch_piecewise.loops.text import parse
from torch_piecewise.plan.vectors import LONG, in_whole_vectors, moved


@pytest.mark.parametrize(
    ("position", "size", "place"),
    [
        (1, 512, 16),
        (15, 512, 16),
        (16, 512, 16),
        (17, 512, 17),
        (300, 512, 300),
        (495, 512, 495),
        (496, 512, 496),
        (497, 512, 496),
        (511, 512, 496),
        (999, 1000, 976),  # 16 to 31 elements are left
        (977, 1000, 976),
        (976, 1000, 976),
        (0, 512, 0),
        (512, 512, 512),
        (1000, 1000, 1000),
        (1, LONG - 1, 1),
        (1, LONG, 16),
    ],
)
def test_only_what_is_close_to_an_end_moves(position, size, place) -> None:
    assert moved(position, size) == place


@pytest.mark.parametrize("size", [256, 512, 515, 1000, 1001])
def test_pieces_stay_side_by_side(size) -> None:
    """An element in two pieces would be computed twice: wrong where it is written in place."""
    places = [moved(position, size) for position in range(size + 1)]
    assert places == sorted(places)
    loops = parse(nest(f"{size}*i0 + i1", columns=str(size)))
    at = tuple(map(sympy.Integer, range(size - 40, size, 5)))
    found = in_whole_vectors(boxes(loops, {I1: at}), loops)
    ends = [box.range(I1) for box in found]
    assert ends[0][0] == 0 and ends[-1][1] == size
    assert all(a[1] == b[0] for a, b in zip(ends, ends[1:]))


def nest(index: str, columns: str = "512") -> str:
    return f"""\
nest n (i0: 300, i1: {columns})
symbols s0 in [512, inf)
buffers x: f32, y: f32
body op0 for i0, i1:
  %0: f32 = load(x, [{index}])
  store(y, [{index}], %0)
"""


I0, I1 = (sympy.Symbol(f"i{k}", integer=True, nonnegative=True) for k in (0, 1))
CUTS = {I0: (sympy.S.One,), I1: (sympy.S.One, sympy.Integer(2), sympy.Integer(511))}


def starts(text: str, axis: sympy.Symbol) -> list[sympy.Expr]:
    loops = parse(text)
    found = in_whole_vectors(boxes(loops, CUTS), loops)
    covered = [box.ranges for box in found]
    assert len(covered) == len(set(covered))
    return list(dict.fromkeys(box.range(axis)[0] for box in found))


def test_the_vectorised_axis_only() -> None:
    text = nest("512*i0 + i1")
    assert starts(text, I0) == [0, 1]
    assert starts(text, I1) == [0, 16, 496]  # nothing is left of [1, 2)
    assert starts(nest("i0 + 300*i1"), I1) == [0, 1, 2, 511]  # vectors along i0


def test_an_axis_that_is_no_whole_number_of_vectors_ends_where_it_did() -> None:
    loops = parse(nest("515*i0 + i1", columns="515"))
    *_, last = in_whole_vectors(boxes(loops, CUTS), loops)
    assert last.range(I1) == (496, 515)


def test_an_unknown_size_is_left() -> None:
    assert starts(nest("s0*i0 + i1", columns="s0"), I1) == [0, 1, 2, 511]


def rolled(x: torch.Tensor) -> torch.Tensor:
    return x.roll(1, 1) * 2 + x.roll(-1, 1) + x


def test_pieces_of_the_default_are_whole_vectors_and_right() -> None:
    x = torch.randn(600, 520)
    (found,) = explain(rolled, (x,)).nests
    assert found.starts("i1") == ["0", "16", "496"]
    text = str(explain(rolled, (x,)))
    assert "seam at i1 = 1, cut at 16" in text and "seam at i1 = 519, cut at 496" in text
    (found,) = explain(rolled, (x,), options={"split": "seams"}).nests
    assert found.starts("i1") == ["0", "1", "519"]
    assert "seam at i1 = 1 (" in str(explain(rolled, (x,), options={"split": "seams"}))
    same_as_plain(rolled, x, splits=("auto",))
    same_as_plain(rolled, x.to(torch.float64), splits=("auto",))
    same_as_plain(rolled, x.to(torch.bfloat16), splits=("auto",))
