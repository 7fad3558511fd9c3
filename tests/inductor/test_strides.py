"""The short way to an index's step gives what Inductor's own way gives."""

from __future__ import annotations

import itertools
import random

import pytest
import sympy
import torch
from torch._inductor.codegen import cpp
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from torch_piecewise.inductor import gate
from torch_piecewise.inductor.strides import linear_part

X0, X1, X2 = (sympy.Symbol(f"x{k}", integer=True, nonnegative=True) for k in range(3))
S0 = sympy.Symbol("s0", integer=True, positive=True)
TERMS = [
    X0,
    X1,
    X2,
    S0 * X1,
    FloorDiv(X0, 7),
    ModularIndexing(X1, 1, 64),
    ModularIndexing(X2, 3, 5),
]

# before or after ours was put in front of it; it moved to another module after 2.11
stride_at_vec_range = getattr(cpp.stride_at_vec_range, "inductors", cpp.stride_at_vec_range)


def test_steps_are_inductors() -> None:
    """Of random sums, as numbers where Inductor finds a number, else as equal expressions."""
    draw = random.Random(5)
    numbers = 0
    for _ in range(200):
        parts = draw.sample(TERMS, draw.randint(1, 4))
        index = sympy.Integer(draw.randint(0, 9))
        index += sum(draw.choice((-3, 1, 48, 150528)) * p for p in parts)
        for var, length in itertools.product((X0, X1, X2), (None, 16)):
            step, rest = linear_part(index, var)
            step += stride_at_vec_range(rest, var, length) if rest else 0
            whole = stride_at_vec_range(index, var, length)
            assert step.is_number == whole.is_number
            assert sympy.simplify(step - whole) == 0, (index, var)
            numbers += step.is_number
    assert 300 < numbers < 1200


def test_what_is_not_linear_is_left_to_inductor() -> None:
    wrapped = ModularIndexing(X0, 1, 9)
    assert linear_part(3 * X0 + 2 * wrapped + X1 + 7, X0) == (3, 2 * wrapped)
    assert linear_part(S0 * X0 + X0**2, X0) == (0, S0 * X0 + X0**2)
    assert linear_part(X1 * 5, X0) == (0, 0)


def test_only_compiles_of_ours_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gate.install()
    asked = []
    monkeypatch.setattr(
        "torch_piecewise.inductor.strides.linear_part",
        lambda index, var: asked.append(var) or (0, index),
    )
    x = torch.randn(64, 48)
    with torch.compiler.config.patch(force_disable_caches=True):
        torch.compile(lambda x: x * 2 + 1, backend="inductor")(x)
        assert not asked
        torch.compile(lambda x: x * 3 + 1, backend="piecewise")(x)
    assert asked
    gate.install()
    assert cpp.stride_at_vec_range.inductors is not cpp.stride_at_vec_range  # type: ignore[attr-defined]
    assert not hasattr(cpp.stride_at_vec_range.inductors, "inductors")  # type: ignore[attr-defined]
