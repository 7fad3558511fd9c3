"""Which parts of a reduction need no loop."""

from __future__ import annotations

import pytest

from torch_piecewise.loops.idle import adds_nothing
from torch_piecewise.loops.text import parse

PART = """
nest n (i0: 4; r0: 8)
buffers m: f32
body op0 for i0, reduce r0:
  %0: bf16 = constant({value}, bf16)
  %1: f32 = to_dtype(%0, f32)
  %2: f32 = reduction(f32, f32, '{kind}', %1)
  store_reduction(m, [i0], %2)
"""


@pytest.mark.parametrize(
    ("kind", "value", "idle"),
    [
        ("sum", "0.0", True),
        ("sum", "-0.0", True),
        ("sum", "1.0", False),
        ("prod", "1.0", True),
        ("max", "-inf", True),
        ("max", "0.0", False),
        ("max", "inf", False),
        ("min", "inf", True),
        ("min", "-inf", False),
        ("sum", "0.1", False),
        ("argmax", "-inf", False),
        ("welford_reduce", "0.0", False),
    ],
)
def test_a_value_that_changes_no_accumulator(kind, value, idle):
    assert adds_nothing(parse(PART.format(kind=kind, value=value))) == idle
