"""The interpreter's reductions against torch's."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from torch_piecewise.loops import text

from .execute import data, execute

F64, I64 = torch.float64, torch.int64

REDUCE = """
nest n (i0: 3; r0: 2, r1: 4)
buffers x: f64, y: DTYPE
body b for i0, reduce r0, r1:
  %0: f64 = load(x, [8*i0 + 4*r0 + r1])
  %1: DTYPE = reduction(DTYPE, f64, 'KIND', %0)
  %2: DTYPE = ITEM
  store_reduction(y, [i0], %2)
"""


def reduced(kind: str, x: torch.Tensor, dtype: str = "f64", item: str = "identity(%1)") -> Any:
    source = REDUCE.replace("DTYPE", dtype).replace("KIND", kind).replace("ITEM", item)
    return execute(source, x=x, y=torch.zeros(3, dtype=text.DTYPES[dtype]))


SPECIAL = data(3, 8)
SPECIAL[1, [3, 5]] = math.nan
SPECIAL[2, [2, 6]] = 4.0
SPECIAL[2, [1, 7]] = -4.0


@pytest.mark.parametrize("x", [data(3, 8), SPECIAL], ids=["plain", "nan and ties"])
@pytest.mark.parametrize("kind", ["sum", "prod", "amax", "amin", "argmax", "argmin"])
def test_reductions(kind: str, x: torch.Tensor) -> None:
    got = reduced(
        kind.removeprefix("a") if "m" == kind[1] else kind, x, "i64" if "arg" in kind else "f64"
    )
    torch.testing.assert_close(got, getattr(torch, kind)(x, 1), equal_nan=True)


def test_more_reductions() -> None:
    x = (data(3, 8) > 1.0).to(F64)
    assert torch.equal(reduced("any", x, "bool"), x.any(1))
    assert torch.equal(reduced("fmax", SPECIAL), SPECIAL.nan_to_num(-9).amax(1))
    y = data(3, 8)
    parts = [reduced("welford_reduce", y, item=f"getitem(%1, {k})") for k in range(3)]
    torch.testing.assert_close(parts[0], y.mean(1))
    torch.testing.assert_close(parts[1], y.var(1, correction=0) * 8)
    assert parts[2].tolist() == [8.0] * 3
    soft = [reduced("online_softmax_reduce", y, item=f"getitem(%1, {k})") for k in range(2)]
    torch.testing.assert_close(soft[0] + soft[1].log(), y.logsumexp(1))


def test_xor_sum() -> None:
    source = REDUCE.replace("f64", "i64").replace("DTYPE", "i64").replace("KIND", "xor_sum")
    x = torch.arange(24) * 7
    y = execute(source.replace("ITEM", "identity(%1)"), x=x, y=torch.zeros(3, dtype=I64))
    assert y[0] == 0 ^ 7 ^ 14 ^ 21 ^ 28 ^ 35 ^ 42 ^ 49


def test_argmax_gives_the_index_beside_the_value() -> None:
    source = (
        REDUCE.replace("DTYPE", "i64").replace("KIND", "argmax").replace("ITEM", "identity(%1)")
    )
    source = source.replace("%1: i64", "%9: i64 = index_expr([100*r1 + r0], i64)\n  %1: i64")
    x = data(3, 8)
    y = execute(source.replace(", %0)", ", (%0, %9))"), x=x, y=torch.zeros(3, dtype=I64))
    assert y.tolist() == [100 * (k % 4) + k // 4 for k in x.argmax(1).tolist()]


def test_welford_combine() -> None:
    source = """
nest n (; r0: 4)
buffers x: f64, y: f64
body b for reduce r0:
  %0: f64 = load(x, [r0])
  %1: f64 = load(x, [r0 + 4])
  %2 = reduction(f64, f64, 'welford_combine', (%0, %1, 2.0))
  %3: f64 = getitem(%2, 0)
  store_reduction(y, [0], %3)
  %5: f64 = getitem(%2, 1)
  store_reduction(y, [1], %5)
"""
    pairs = data(4, 2)
    x = torch.cat([pairs.mean(1), pairs.var(1, correction=0) * 2])
    mean, m2 = execute(source.replace("%2 =", "%2: f64 ="), x=x, y=torch.zeros(2, dtype=F64))
    torch.testing.assert_close(mean, pairs.mean())
    torch.testing.assert_close(m2, pairs.var(correction=0) * 8)


@pytest.mark.parametrize(
    ("kind", "dtype", "start"),
    [("sum", "f64", 0), ("prod", "f64", 1), ("max", "f64", -math.inf), ("min", "i64", 2**63 - 1),
     ("any", "bool", False), ("argmax", "i64", 0)],
)  # fmt: skip
def test_a_reduction_over_nothing_gives_its_start(kind: str, dtype: str, start: float) -> None:
    source = REDUCE.replace("r1: 4", "r1: 0").replace("DTYPE", dtype).replace("KIND", kind)
    source = source.replace("8*i0 + 4*r0 + r1", "99").replace("ITEM", "identity(%1)")
    y = execute(source, x=data(3, 8), y=torch.full((3,), 5, dtype=text.DTYPES[dtype]))
    assert y.tolist() == [start] * 3
