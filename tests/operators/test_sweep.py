"""The sweep itself: its seams are seams, and it sees what is wrong."""

from __future__ import annotations

import pytest
import torch

from .database import DTYPES, database, samples, tolerance
from .seams import SEAMS, Facts, can_be_cut
from .sweep import calls_of, compare


def tensor(dtype: torch.dtype) -> torch.Tensor:
    values = torch.randn(7, 40, generator=torch.Generator().manual_seed(0)) * 5
    return values > 0 if dtype == torch.bool else values.to(dtype)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.uint8], ids=str)
@pytest.mark.parametrize("kind", SEAMS)
def test_seams_keep_the_form_and_the_range(kind, dtype):
    x = tensor(dtype)
    facts = Facts.of(x)
    strong, neutral = SEAMS[kind]
    changed = strong(x, facts)
    assert changed.shape == x.shape and changed.dtype == x.dtype
    assert not changed.equal(x)
    assert changed.max() <= x.max() and changed.min() >= x.min()
    assert neutral(x, facts).equal(x)


@pytest.mark.parametrize("seam", [seam for pair in SEAMS.values() for seam in pair])
def test_a_seam_rounds_nothing_in_a_low_precision(seam):
    """Else eager mode, which rounds after every step, differs before the operator is reached."""
    x = tensor(torch.bfloat16)
    facts = Facts.of(x)
    assert seam(x.double(), facts).equal(seam(x, facts).double())


def test_what_is_too_small_is_not_cut():
    assert not can_be_cut(torch.ones(2, 2))
    assert not can_be_cut(torch.ones(0, 5))
    assert can_be_cut(torch.ones(1, 3))


@pytest.mark.parametrize("name", ["sin", "amax", "matmul", "add", "softmax"])
def test_samples_are_long_enough_for_vectors(name):
    found = next(samples(database()[name], torch.float32, grad=True))
    assert found.input.numel() >= 400 and max(found.input.shape) >= 37
    assert found.input.requires_grad


def test_a_sample_is_the_same_every_time():
    first, again = calls_of("add"), calls_of("add")
    assert [c.label for c in first] == [
        *("add float32 pad", "add float32 cat"),
        *("add bfloat16 both", "add int64 both", "add bool both"),
    ]
    assert all(a.equal(b) for x, y in zip(first, again) for a, b in zip(x.tensors, y.tensors))


def test_a_domain_is_kept():
    """A Cholesky factor needs a positive definite matrix: parts of it must not change places."""
    assert [c.seam.__name__ for c in calls_of("linalg.cholesky")][1] == "joined_zeros"
    assert [c.seam.__name__ for c in calls_of("log")][:3] == ["padded", "joined", "both"]


def test_tolerances_are_the_operators_own():
    assert tolerance(database()["add"], torch.float32) == (1.3e-6, 1e-5)
    assert tolerance(database()["nn.functional.softplus"], torch.bfloat16) == (1.6e-2, 1e-2)


def wrong(change):
    """A compiler that runs in eager mode and changes the first result."""

    def compiler(fn, noted, whole):
        noted.graphs += 1

        def run(*tensors):
            first, *rest = fn(*tensors)
            return [change(first), *rest]

        return run

    return compiler


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t + 1e-3, "result 0: Tensor-likes are not close"),
        (lambda t: t.double(), "result 0: The values for attribute 'dtype' do not match"),
        (lambda t: t[:1], "result 0: The values for attribute 'shape' do not match"),
        (lambda t: t.detach() + 2 * (t - t.detach()), "gradient 0: Tensor-likes are not close"),
        (lambda t: [t, t], "2 results instead of 1"),
        (lambda t: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_what_is_wrong_is_said(change, said):
    calls = calls_of("sin")[:1]
    (outcome,) = compare(calls, wrong(change))
    assert outcome.problem.startswith(said)


def test_what_is_wrong_in_a_group_is_found():
    """The first of the group and, once it is alone, each that is compiled alone: all are first."""
    calls = calls_of("sin")[:2]
    outcomes = compare(calls, wrong(lambda t: t if t.numel() == 0 else t * 1.01))
    assert [bool(o.problem) for o in sorted(outcomes, key=lambda o: o.call.kind)] == [False, True]


def test_a_call_that_is_not_compiled_is_a_problem():
    (outcome,) = compare(calls_of("sin")[:1], lambda fn, noted, whole: fn)
    assert outcome.problem == "nothing was compiled"


def test_pieces_and_gradients_are_counted():
    outcomes = {o.call.label: o for o in compare(calls_of("sin"))}
    assert len(outcomes) == 5
    assert all(o.pieces >= 2 and not o.problem for o in outcomes.values())
    assert [o.gradients for o in outcomes.values()] == [1, 1, 0, 0, 0]
    assert sum(o.backward_pieces for o in outcomes.values()) > 0
