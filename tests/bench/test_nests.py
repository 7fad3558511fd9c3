"""Single nests are timed in kernels of their own, and told apart."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch

from torch_piecewise.bench.harness import measure
from torch_piecewise.bench.nests import (
    CHOSEN,
    CUT,
    WAYS,
    WHOLE,
    kernel_times,
    measure_nests,
    nest_times,
)
from torch_piecewise.bench.settings import Settings, Task
from torch_piecewise.bench.subjects import Subject, tasks
from torch_piecewise.bench.timing import WARM_UP, Samples
from torch_piecewise.bench.variants import OFF, SEAMS, own_code
from torch_piecewise.inductor.clock import GraphClock, clocked, nests_apart
from torch_piecewise.plan.plan import NestPlan, Piece, Plan, Reason

QUICK = Settings(scale="tiny", rounds=2, seconds=0.0, fresh=False, choices=True)


def nest(name: str, pieces: int = 1, kernel: int = 0) -> NestPlan:
    made = tuple(Piece(f"{name}_{k}", (("i0", str(k), str(k + 1)),)) for k in range(pieces))
    return NestPlan(name, (), (), made, Reason("why", name, f"said of {name}"), kernel=kernel)


def plans(chosen: int, seams: int) -> dict[str, Plan]:
    counts = {CHOSEN.name: chosen, WHOLE.name: 1, CUT.name: seams}
    return {way: Plan("inference", (nest("op0", count),)) for way, count in counts.items()}


def samples(chosen: float, off: float, seams: float) -> Samples:
    times = {"chosen": chosen, "chosen_again": chosen, "off": off, "seams": seams}
    return Samples({way: (ms,) * 4 for way, ms in times.items()}, calls=1)


@pytest.mark.parametrize(
    ("pieces", "times", "loss"),
    [
        (1, (2.0, 2.0, 1.0), 2.0),
        (1, (2.0, 1.0, 4.0), 1.0),  # it is whole: that the same code was faster says nothing
        (3, (2.0, 1.0, 2.0), 2.0),
        (3, (2.0, 4.0, 1.0), 1.0),
        (2, (2.0, 4.0, 1.0), 2.0),  # some of the cuts: neither is the same code
        (2, (1.0, 2.0, 2.0), 0.5),
    ],
)
def test_a_choice_loses_to_other_code_only(pieces, times, loss):
    (found,) = nest_times(plans(pieces, seams=3), 0, samples(*times))
    assert found.loss == pytest.approx(loss)
    assert found.right == (loss <= 1.0)
    assert (found.pieces, found.pieces_at_seams) == (pieces, 3)
    assert found.gain == pytest.approx(times[1] / times[2])


def test_a_nest_without_a_cut_is_no_choice():
    assert nest_times(plans(1, seams=1), 0, samples(2.0, 1.0, 1.0)) == []


def test_nests_that_share_a_kernel_are_judged_together():
    def plan(*pieces):
        return Plan("inference", tuple(nest(f"op{k}", count) for k, count in enumerate(pieces)))

    by_way = {CHOSEN.name: plan(1, 2, 1), WHOLE.name: plan(1, 1, 1), CUT.name: plan(3, 2, 1)}
    (found,) = nest_times(by_way, 0, samples(2.0, 4.0, 1.0))
    assert (found.name, found.others) == ("op0 op1", 1)
    assert (found.pieces, found.pieces_at_seams) == (3, 5)
    assert found.loss == pytest.approx(2.0)
    assert "op2" not in found.reason


def test_other_nests_are_not_compared():
    other = plans(1, 3) | {CUT.name: Plan("inference", (nest("op1", 3),))}
    with pytest.raises(RuntimeError, match="other nests"):
        nest_times(other, 0, samples(1.0, 1.0, 1.0))


def test_calls_are_sorted_by_kernel_and_round():
    plan = Plan("inference", (nest("op0"), nest("op1", kernel=1), nest("op2", kernel=1)))
    warm = [99.0] * 2 * WARM_UP
    clock = GraphClock(plan, [*warm, 1, 10, 3, 30, 5, 50, 7, 70])
    assert kernel_times(clock, rounds=2, calls=2) == [(2, 6), (20, 60)]
    with pytest.raises(RuntimeError, match="2 kernels with nests, but 13 calls"):
        kernel_times(GraphClock(plan, clock.ms[1:]), rounds=2, calls=2)


def test_each_nest_has_a_kernel_and_a_clock():
    def two(x, y):
        return x.roll(1, 0) * 2, y.roll(1, 0) + 1

    args = torch.randn(64, 33), torch.randn(20, 7)

    def clock_of(name, backend):
        with clocked() as clocks:
            run = torch.compile(own_code(two, name), backend=backend)
            run(*args)
        (clock,) = clocks
        assert not clock.ms
        for got, want in zip(run(*args), two(*args), strict=True):
            assert torch.equal(got, want)
        return clock

    apart, together = clock_of("apart", nests_apart), clock_of("together", "piecewise")
    assert [n.kernel for n in apart.plan.nests] == [0, 1]
    assert [n.kernel for n in together.plan.nests] == [0, 0]
    assert len(apart.ms) == 2 and len(together.ms) == 1
    assert min(apart.ms) > 0


@pytest.mark.parametrize("name", ["roll_circular_correlation", "slice_swiglu", "cat_rotary"])
def test_the_nests_of_a_workload(name):
    (task,) = tasks(dataclasses.replace(QUICK, only=name))
    record = measure(task, QUICK)
    assert record.problems == ()
    assert {OFF.name, SEAMS.name} <= {v.name for v in record.variants}
    for found in record.nests:
        assert set(found.ms) == {way.name for way in WAYS}
        assert found.pieces_at_seams > 1 and found.estimate
    assert {found.graph for found in record.nests} <= {"inference", "forward", "backward"}
    heaviest = record.heaviest
    assert heaviest and 0 < heaviest.share <= 1
    assert heaviest.nests.split()[0] in ("inference", "forward", "backward")
    assert heaviest.lines and all(re.match(r"\w+\.py:\d+: \S", line) for line in heaviest.lines)


def test_the_heaviest_nest_is_the_one_that_takes_most():
    def two(x, y):
        small = y.roll(1, 0) + 1
        return small, torch.erf(torch.sin(x.roll(1, 0)))

    def bind(fn):
        return lambda: fn(*args)

    args = torch.randn(512, 512), torch.randn(20, 7)
    subject = Subject(Task("seams", "two"), two, args, bind, "eager")
    _, heaviest = measure_nests(subject, QUICK, calls=1)
    assert heaviest.share > 0.5
    (line,) = heaviest.lines
    assert "torch.erf" in line


def test_a_control_has_no_nest_to_cut():
    assert measure(Task("seams", "control_residual_gelu"), QUICK).nests == ()
