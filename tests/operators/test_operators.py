"""torch's operator database behind seams that are all cut: equal to eager mode, gradients too.

The terminal summary says how many operators were compared, and how many of them were really cut.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from . import database
from .known import INDUCTORS_OWN, LEFT_OUT, OURS, RECORDED_ON, UNSET, UNSTEADY, VARIED
from .summary import covered
from .sweep import Call, Outcome, calls_of, compare, inductor

TOGETHER = 12  # operators in one graph
OTHERS = [name for name in database.swept() if name not in VARIED]

# Each compile of C++ reads headers for seconds, whatever is in it.
slow = pytest.mark.timeout(1800)


def groups(names: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(names[k : k + TOGETHER]) for k in range(0, len(names), TOGETHER)]


def ends(group: Sequence[str]) -> str:
    return f"{group[0]}..{group[-1]}"


def sweep(names: Sequence[str], record) -> list[Outcome]:
    """The outcomes of all operators but for what the tables name; what they cover is recorded."""
    calls = []
    for name in names:
        mine = calls_of(name)
        assert mine, f"{name}: no sample that a seam can be made in; LEFT_OUT is for these"
        calls += [call for call in mine if call.label not in INDUCTORS_OWN | UNSTEADY | OURS]
    outcomes = compare(calls)
    record("sweep", covered(outcomes))
    return outcomes


def recorded_here() -> bool:
    """Whether the table of plain Inductor's own faults holds for this machine."""
    return torch.backends.cpu.get_cpu_capability() == RECORDED_ON


def problems(outcomes: Sequence[Outcome]) -> str:
    """A line for each thing that is wrong, and what plain Inductor makes of the same."""
    lines = []
    for outcome in outcomes:
        if outcome.problem:
            (plain,) = compare([outcome.call], inductor)
            if kind(plain.problem) == kind(outcome.problem) and not recorded_here():
                continue
            verdict = plain.problem or "equals eager mode"
            lines.append(f"{outcome.call.label}: {outcome.problem}; plain Inductor: {verdict}")
    return "\n".join(lines)


def unsplit(outcomes: Sequence[Outcome]) -> set[str]:
    return {o.call.operator for o in outcomes} - {o.call.operator for o in outcomes if o.pieces}


@slow
@pytest.mark.parametrize("names", groups(VARIED), ids=ends)
def test_varied_operators(names, record_property):
    outcomes = sweep(names, record_property)
    assert not problems(outcomes)
    assert not unsplit(outcomes)


@slow
@pytest.mark.long
@pytest.mark.parametrize("names", groups(OTHERS), ids=ends)
def test_every_other_operator(names, record_property):
    assert not problems(sweep(names, record_property))


def call_named(label: str) -> Call:
    return next(c for c in calls_of(label.split()[0]) if c.label == label)


def kind(problem: str) -> str:
    """The error's type, or which result differs; the numbers after it may not be the same."""
    return problem.partition(":")[0]


@slow
@pytest.mark.long
@pytest.mark.parametrize("label", INDUCTORS_OWN)
def test_plain_inductor_is_no_better(label):
    """An expected failure, as long as plain Inductor fails in the same way."""
    call = call_named(label)
    (ours,), (theirs,) = compare([call]), compare([call], inductor)
    if not ours.problem and not recorded_here():
        return  # the pieces' code is another than plain Inductor's, and may be right here
    assert kind(ours.problem) == kind(theirs.problem)
    if not theirs.problem:
        assert not recorded_here(), "plain Inductor is right: the entry belongs away"
        return
    pytest.xfail(INDUCTORS_OWN[label])


@slow
@pytest.mark.parametrize(
    "label",
    [pytest.param(k, marks=pytest.mark.xfail(strict=True, reason=v)) for k, v in OURS.items()],
)
def test_known_fault_of_ours(label):
    assert not problems(compare([call_named(label)]))


def test_the_tables_name_operators_that_exist():
    assert set(LEFT_OUT) <= set(database.database())
    assert set(VARIED) <= set(database.swept())
    assert len(VARIED) == len(set(VARIED)) == 60
    assert {label.split()[0] for label in INDUCTORS_OWN | UNSTEADY | OURS} <= set(database.swept())
    assert len(database.swept()) >= 500


def test_what_is_left_out_gives_no_call():
    assert not [name for name, why in LEFT_OUT.items() if why != UNSET and calls_of(name)]
