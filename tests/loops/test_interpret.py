"""The interpreter against torch, operation by operation and in what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from torch_piecewise.loops import interpret, text

from .execute import data, execute

F64, I64 = torch.float64, torch.int64

# ---- pointwise


def test_roll() -> None:
    source = """
nest n (i0: 3, i1: s0)
symbols s0 in [1, inf)
buffers x: f64, y: f64
body b for i0, i1:
  %0: f64 = load(x, [s0*i0 + (i1 + s0 - 2) % s0])
  store(y, [s0*i0 + i1], %0)
"""
    x = data(3, 5)
    y = execute(source, {"s0": 5}, x=x, y=torch.zeros(15, dtype=F64))
    assert torch.equal(y.view(3, 5), x.roll(2, 1))


PADDED = """
nest n (i0: 8)
buffers x: f64, y: f64
body b for i0:
  %0: i64 = index_expr([i0 - 2], i64)
  %1: bool = ge(%0, 0)
  %2: bool = lt(%0, 4)
  %3: bool = and_(%1, %2)
  %5: f64 = masked(%3, {
    %4: f64 = load(x, [i0 - 2])
    yield %4
  }, 7.0)
  store(y, [i0], %5)
"""


def test_a_masked_load_is_out_of_bounds_only_where_the_mask_is_false() -> None:
    x = data(4)
    y = execute(PADDED, x=x, y=torch.zeros(8, dtype=F64))
    assert torch.equal(y, torch.nn.functional.pad(x, (2, 2), value=7.0))
    with pytest.raises(interpret.OutOfBounds) as caught:
        execute(PADDED, x=x[:3], y=torch.zeros(8, dtype=F64))
    error = caught.value
    assert (error.body, error.op.name, error.buffer, error.index, error.size) == (
        "b",
        "load",
        "x",
        3,
        3,
    )
    assert str(error) == "body b, op %4 = load: index 3 of x is outside [0, 3)"
    assert isinstance(error, IndexError)


def test_masks_nest_and_hold_stores_back() -> None:
    source = """
nest n (i0: 6)
buffers x: f64, y: f64
body b for i0:
  %0: i64 = index_expr([i0], i64)
  %1: bool = ge(%0, 1)
  %2: bool = lt(%0, 4)
  %6: f64 = masked(%1, {
    %5: f64 = masked(%2, {
      %3: f64 = load(x, [i0 - 1])
      %4 = store(y, [i0 - 1], %3)
      yield %3
    }, 0)
    yield %5
  }, 0)
"""
    x = data(3)
    y = execute(source, x=x, y=torch.full((4,), 9.0, dtype=F64))
    assert y.tolist() == [*x.tolist(), 9.0]


def test_numbers_are_operands_and_do_not_widen() -> None:
    source = """
nest n (i0: 4)
buffers x: f32, y: f32
body b for i0:
  %0: f32 = load(x, [i0])
  %1: f32 = mul(%0, 0.1)
  %2: f32 = maximum(%1, 0)
  %3: f32 = add(1, 2.5)
  %4: f32 = where(True, %2, %3)
  store(y, [i0], %4)
"""
    x = data(4).float()
    y = execute(source, x=x, y=torch.zeros(4))
    assert torch.equal(y, (x * 0.1).clamp(min=0))


def test_values_without_an_axis_still_promote_by_dtype() -> None:
    source = """
nest n ()
buffers x: f32, y: f64
body b:
  %0: f32 = load(x, [0])
  %1: f64 = constant(0.1, f64)
  %2: f64 = add(%0, %1)
  store(y, [0], %2)
"""
    y = execute(source, x=torch.ones(1), y=torch.zeros(1, dtype=F64))
    assert y.item() == 1.1


def test_a_later_body_sees_what_an_earlier_one_stored() -> None:
    source = """
nest n (i0: 3; r0: 4)
buffers x: f64, m: f64, y: f64
body mean for i0, reduce r0:
  %0: f64 = load(x, [4*i0 + r0])
  %1: f64 = reduction(f64, f64, 'sum', %0)
  %2: f64 = mul(%1, 0.25)
  store_reduction(m, [i0], %2)
body center for i0, r0:
  %4: f64 = load(x, [4*i0 + r0])
  %5: f64 = load(m, [i0])
  %6: f64 = sub(%4, %5)
  store(y, [4*i0 + r0], %6)
"""
    x = data(3, 4)
    y = execute(source, x=x, m=torch.zeros(3, dtype=F64), y=torch.zeros(12, dtype=F64))
    torch.testing.assert_close(y.view(3, 4), x - x.mean(1, keepdim=True))


def test_atomic_add_adds_every_point() -> None:
    source = """
nest n (i0: 10)
buffers y: f64
body b for i0:
  store(y, [i0 % 3], 1.0, 'atomic_add')
"""
    assert execute(source, y=torch.zeros(3, dtype=F64)).tolist() == [4.0, 3.0, 3.0]


# ---- indirect indices, checks, assertions

INDIRECT = """
nest n (i0: 4)
buffers j: i64, x: f64, y: f64
body b for i0:
  %0: i64 = load(j, [i0])
  indirect_indexing([t0], %0, [5], CHECK, WRAP)
  %2: f64 = load(x, [t0])
  store(y, [i0], %2)
"""


def indirect(check: bool, wrap: bool, index: list[int]) -> Any:
    source = INDIRECT.replace("CHECK", str(check)).replace("WRAP", str(wrap))
    return execute(source, j=torch.tensor(index), x=data(5), y=torch.zeros(4, dtype=F64))


def test_indirect_indices_wrap_and_are_checked() -> None:
    expected = data(5)[[0, -1, 4, -5]]
    assert torch.equal(indirect(True, True, [0, -1, 4, -5]), expected)
    assert torch.equal(indirect(False, False, [0, 4, 4, 0]), expected)
    for wrap, index in ((True, 5), (True, -6), (False, -1)):
        with pytest.raises(interpret.OutOfBounds, match="indirect_indexing: index"):
            indirect(True, wrap, [0, 0, index, 0])
    with pytest.raises(interpret.OutOfBounds, match="load: index -1 of x"):
        indirect(False, False, [0, 0, -1, 0])


@pytest.mark.parametrize(
    ("lower", "upper", "fails"),
    [(True, True, True), (False, True, True), (True, False, False), (False, False, False)],
)
def test_check_bounds(lower: bool, upper: bool, fails: bool) -> None:
    source = f"""
nest n (i0: 4)
buffers y: f64
body b for i0:
  check_bounds([i0 + 1], [4], {lower}, {upper})
"""
    if fails:
        with pytest.raises(
            interpret.OutOfBounds, match=r"check_bounds: index 4 is outside \[0, 4\)"
        ):
            execute(source, y=torch.zeros(1, dtype=F64))
    else:
        execute(source, y=torch.zeros(1, dtype=F64))
    source = source.replace("i0 + 1", "i0 - 1")
    if lower:
        with pytest.raises(interpret.OutOfBounds, match="index -1"):
            execute(source, y=torch.zeros(1, dtype=F64))
    else:
        execute(source, y=torch.zeros(1, dtype=F64))


def test_device_asserts() -> None:
    source = """
nest n (i0: 4)
buffers y: f64
body b for i0:
  %0: i64 = index_expr([i0], i64)
  %1: bool = lt(%0, LIMIT)
  %2 = device_assert_async(%1, 'too far')
  store(y, [0], %2)
"""
    assert execute(source.replace("LIMIT", "4"), y=torch.zeros(1, dtype=F64)).item() == 1
    with pytest.raises(interpret.AssertFailed, match="body b, op %2: too far"):
        execute(source.replace("LIMIT", "3"), y=torch.zeros(1, dtype=F64))


# ---- the rest


def test_a_body_over_nothing_does_nothing() -> None:
    source = PADDED.replace("i0: 8", "i0: 0").replace("[i0 - 2]", "[99]")
    y = execute(source, x=data(4), y=torch.full((8,), 5.0, dtype=F64))
    assert y.tolist() == [5.0] * 8


@pytest.mark.parametrize("right", [False, True])
def test_bucketize(right: bool) -> None:
    source = f"""
nest n (i0: 2, i1: 6)
buffers x: f64, edges: f64, order: i64, y: i64
body b for i0, i1:
  %0: f64 = load(x, [6*i0 + i1])
  %1: i64 = index_expr([4*i0], i64)
  %2: i64 = bucketize(%0, ('edges', [4], [8], [1]), %1, i64, {right}, SORTER)
  store(y, [6*i0 + i1], %2)
"""
    source = source.replace("'edges'", "edges")
    edges = data(2, 4)
    x = torch.cat([edges, data(2, 2)], 1)
    x[1, 5] = math.nan
    y, order = torch.zeros(12, dtype=I64), edges.argsort(1)
    ordered = edges.sort(1).values
    expected = torch.searchsorted(ordered, x, right=right)
    plain = source.replace(", SORTER", "")
    got = execute(plain, x=x, edges=ordered, order=order, y=y)
    assert torch.equal(got.view(2, 6), expected)
    sorted_by = source.replace("SORTER", "('order', [1]), %1")
    got = execute(sorted_by, x=x, edges=edges, order=order, y=y)
    assert torch.equal(got.view(2, 6), expected)


def test_frexp_gives_two_values() -> None:
    source = """
nest n (i0: 4)
buffers x: f64, y: f64
body b for i0:
  %0: f64 = load(x, [i0])
  %1 = frexp(%0)
  %2 = getitem(%1, 0)
  %3 = getitem(%1, 1)
  %4 = ldexp(%2, %3)
  store(y, [i0], %4)
"""
    x = data(4)
    assert torch.equal(execute(source, x=x, y=torch.zeros(4, dtype=F64)), x)


def test_what_cannot_be_run_is_refused() -> None:
    head = "nest n (i0: s0)\nsymbols s0 in [2, 9]\nbuffers y: f64\nbody b for i0:\n"
    store = head + "  store(y, [i0], 1.0)\n"
    y = torch.zeros(3, dtype=F64)
    assert execute(store, {"s0": 3}, y=y).tolist() == [1.0] * 3
    for sizes in ({}, {"s0": 1}, {"s0": 10}):
        with pytest.raises(ValueError, match=r"s0 must be in \[2, 9\]"):
            execute(store, sizes, y=y)
    with pytest.raises(ValueError, match="needs the buffer 'y'"):
        interpret.run(text.parse(store), {}, {"s0": 3})
    with pytest.raises(ValueError, match="'y' must be 1-D"):
        interpret.run(text.parse(store), {"y": y.reshape(1, 3)}, {"s0": 3})
    with pytest.raises(ValueError, match="'y' must be 1-D torch.float64"):
        interpret.run(text.parse(store), {"y": y.float()}, {"s0": 3})
    random = head + "  %0: f32 = rand(1, 2)\n"
    with pytest.raises(interpret.NoEvaluator, match="nest n, body b: op %0: rand has no evaluator"):
        execute(random, {"s0": 3}, y=y)
    with pytest.raises(interpret.OutOfBounds, match="store: index 3 of y"):
        execute(store, {"s0": 4}, y=y)
