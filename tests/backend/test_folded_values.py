"""What folding brings to light in a piece is rounded, wrapped and signed as in the whole nest."""

import pytest
import torch
import torch.nn.functional as F

import torch_piecewise
from torch_piecewise.inductor.versions import COMPILES_APART

from .harness import assert_same, compiled, plain, raises_as_plain

A = torch.arange
H = torch.randn(40).bfloat16()
X, XI, D = torch.randn(40), torch.randint(-50, 50, (40,)), torch.randn(302)


CASES = {
    "integer_remainder": lambda: torch.fmod(F.pad(XI, (3, 2), value=-1), 3),
    "integer_remainder_where": lambda: torch.fmod(torch.where(A(40) < 3, -7, XI), 3),
    "overflow_to_inf": lambda: (F.pad(X, (3, 2), value=1e30) * 1e30) * 1e-30,
    "small_beside_large": lambda: ((F.pad(X, (2, 2), value=1.0) + 1e-8) - 1.0) * 1e8,
    "nan_clamped": lambda: F.pad(X, (3, 2), value=float("nan")).clamp(0, 1),
    "widened": lambda: F.pad(X, (3, 2), value=0.1).double(),
    "widened_after_sums": lambda: (F.pad(X, (2, 2)) * 0.1 + 0.2 - 0.3).double(),
    "narrowed_and_widened": lambda: F.pad(X.double(), (3, 2), value=16777217.0).float().double(),
    "compared_across_widths": lambda: (
        F.pad(X, (3, 2), value=0.1) == F.pad(X.double(), (3, 2), value=0.1)
    ),
    "wrapped_uint8": lambda: F.pad(A(300).to(torch.uint8), (1, 1)) + D,
    "wrapped_int8": lambda: F.pad(A(300).to(torch.int8), (1, 1)) + D,
    "wrapped_int32": lambda: F.pad(A(300, dtype=torch.int32) * 16777216, (1, 1)).double() + D,
    "negative_wrap": lambda: torch.where(A(40) < 2, X, torch.fmod(A(40) - 5, 3) + X),
    "negative_wrap_rolled": lambda: (
        torch.fmod(A(40) - 5, 3).roll(5) + X,
        torch.fmod((A(40) - 5).roll(-1), 3) + X,
    ),
    "zero_sign_of_pad": lambda: F.pad(X, (2, 3), value=-0.0).double(),
    "zero_sign_of_where": lambda: torch.where(A(40) < 3, torch.full((), -0.0), X).double(),
    "half_rounded_in_a_mask": lambda: F.pad(((H + 1.1) * 0.7).clamp(-1, 2), (3, 2)).double(),
    "half_rounded_in_a_reduction": lambda: (
        F.pad(((H + 1.1) * 0.7).clamp(-1, 2), (3, 2)).double().amax()
    ),
    "half_value_of_pad": lambda: F.pad(H, (3, 2), value=0.1).double(),
    "zero_sign_half": lambda: F.pad(X.half(), (2, 3), value=-0.0).float(),
}


@pytest.mark.parametrize("name", CASES)
def test_as_plain_inductor(name):
    fn = CASES[name]
    torch._dynamo.reset()
    assert_same(compiled(fn, "seams")(), plain(fn)(), what=name)


DIVIDED = """
n = 4096
a, b = torch.arange(n), torch.ones(n, dtype=torch.int64)
divided = lambda a, b: torch.where(torch.arange(n) < n // 2, a // b, 0)
call = compiled(divided)
assert call(a, b).equal(divided(a, b))
b[n // 2 :] = 0
print("so far fine", flush=True)
call(a, b)
print("the division by zero went unseen")
"""


def test_a_division_by_zero_is_raised_where_its_value_is_not_used():
    raises_as_plain(DIVIDED, "ZeroDivisionError")


@pytest.mark.skipif(not COMPILES_APART, reason="this torch counts every compile of a function")
def test_explaining_many_times_leaves_the_function_as_it_was():
    def rolled(x):
        return x.roll(1, 0) * 2

    x = torch.randn(64, 8)
    for _ in range(12):
        assert torch_piecewise.explain(rolled, (x,)).nests
    counted = torch._dynamo.testing.CompileCounter()
    torch.compile(rolled, backend=counted)(x)
    assert counted.frame_count == 1


def test_explaining_a_module_that_replaces_its_buffers():
    class Grows(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(2, 4))

        def forward(self, x):
            self.seen = torch.cat([self.seen, x.roll(1, 0)])
            return self.seen.sum()

    module = Grows()
    before = module.seen
    torch_piecewise.explain(module, (torch.randn(3, 4),))
    assert module.seen is before and torch.equal(before, torch.zeros(2, 4))
