"""Single nests timed apart: as the default chose, whole, and cut at every seam.

A subject's time says little about one of its nests. Here each nest is a kernel of its own with a
clock around it, and the three ways differ in its pieces alone: a concatenation is stored, or
computed by its readers, as by default in all three. (`split="off"` leaves it to Inductor.)
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch_piecewise.bench.plans import lines_of
from torch_piecewise.bench.seams import Tensors
from torch_piecewise.bench.settings import Settings
from torch_piecewise.bench.subjects import Subject
from torch_piecewise.bench.timing import WARM_UP, Samples, take_turns
from torch_piecewise.bench.variants import Variant, compiled
from torch_piecewise.bench.workloads import Step, disagreement
from torch_piecewise.inductor.clock import GraphClock, clocked, nests_apart
from torch_piecewise.plan.plan import NestPlan, Plan

CHOSEN = Variant("chosen", nests_apart)
AGAIN = Variant("chosen_again", nests_apart)  # A/A, as for whole subjects
WHOLE = Variant("off", nests_apart, (("split", "seams"), ("max_pieces", 1)))
CUT = Variant("seams", nests_apart, (("split", "seams"),))
WAYS = (CHOSEN, AGAIN, WHOLE, CUT)

TOLERANCE = 0.03  # a choice that is slower than the best one by less is right


@dataclass(frozen=True)
class NestTimes:
    """One nest that can be cut; several of them in a kernel (under one outer loop) count as one.

    `others` that can't be cut are in the same kernel. `ms` are medians by the name of the way.
    `pieces` are those of the choice, `pieces_at_seams` those of all seams; `gain` is how many times
    faster the latter are than the whole. `loss` is how many times faster the better of the two is
    than the choice, 1.0 where the choice has the same pieces; `noise` is what A/A shows. Both are
    medians over the rounds. `reason` is why the nest was left or cut, `estimate` what the cost
    model says of cutting it at all seams.
    """

    graph: str
    name: str
    others: int
    pieces: int
    pieces_at_seams: int
    ms: dict[str, float]
    gain: float
    loss: float
    noise: float
    reason: str
    estimate: str

    @property
    def right(self) -> bool:
        return is_right(self.loss, self.noise)

    @property
    def unclear(self) -> bool:
        """Whether it counts as right only because of the noise."""
        return self.right and not is_right(self.loss, 0.0)


@dataclass(frozen=True)
class Heaviest:
    """The kernel that takes most of the time of all that have nests, as the default chose.

    `nests` are their names, `share` is its part of that time, `lines` the user's code behind it.
    """

    nests: str
    share: float
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return f"{100 * self.share:.0f}% in {self.nests}, from {'; '.join(self.lines) or 'no line'}"


def is_right(loss: float, noise: float) -> bool:
    """Whether a choice is the best one, within the tolerance or what the noise could have made."""
    return loss <= 1.0 + max(TOLERANCE, noise)


def measure_nests(
    subject: Subject, settings: Settings, calls: int
) -> tuple[tuple[NestTimes, ...], Heaviest | None]:
    """The nests of a subject that can be cut, with `calls` steps a sample, and the heaviest of all.

    Raises RuntimeError where the ways don't have the same nests, or a result differs.
    """
    steps, clocks = _ready(subject)
    if not any(graph.plan.nests for graph in clocks[CHOSEN.name]):
        return (), None
    samples = take_turns(
        steps, rounds=settings.rounds, seconds=settings.seconds, device=settings.device, calls=calls
    )
    rounds = len(samples.ms[CHOSEN.name])
    found: list[NestTimes] = []
    takes: dict[str, tuple[Plan, int, float]] = {}
    for graphs in zip(*clocks.values(), strict=True):
        if not graphs[0].plan.nests:
            continue
        plans = {way: graph.plan for way, graph in zip(clocks, graphs, strict=True)}
        times = [kernel_times(graph, rounds, calls) for graph in graphs]
        for number, kernels in enumerate(zip(*times, strict=True)):
            ms = dict(zip(clocks, kernels, strict=True))
            found += nest_times(plans, number, Samples(ms, calls))
            plan = plans[CHOSEN.name]
            names = " ".join(nest.name for nest in _of_kernel(plan, number))
            takes[f"{plan.kind} {names}"] = plan, number, statistics.median(ms[CHOSEN.name])
    return tuple(found), _heaviest(subject, takes)


def _heaviest(subject: Subject, takes: Mapping[str, tuple[Plan, int, float]]) -> Heaviest:
    """Of the kernels by their nests: plan, number in it, milliseconds."""
    name = max(takes, key=lambda name: takes[name][2])
    plan, number, ms = takes[name]
    lines = lines_of(*subject.explained)
    own = [lines.get((plan.kind, nest.name), ()) for nest in _of_kernel(plan, number)]
    share = ms / sum(each for _, _, each in takes.values())
    return Heaviest(name, share, tuple(dict.fromkeys(line for some in own for line in some)))


def _ready(subject: Subject) -> tuple[dict[str, Step], dict[str, list[GraphClock]]]:
    """Each way's step, compiled, and the clocks of its graphs."""
    steps: dict[str, Step] = {}
    clocks: dict[str, list[GraphClock]] = {}
    want: Tensors | None = None
    for way in WAYS:
        with clocked() as graphs:
            step = subject.bind(compiled(way, subject.fn))
            got = step()
        want = got if want is None else want
        if problem := disagreement(got, want):
            raise RuntimeError(f"nests apart, {way.name}: {problem}")
        steps[way.name], clocks[way.name] = step, graphs
    return steps, clocks


def kernel_times(graph: GraphClock, rounds: int, calls: int) -> list[tuple[float, ...]]:
    """For each kernel of a graph and each round, the mean milliseconds of the round's calls."""
    count = 1 + max(nest.kernel for nest in graph.plan.nests)
    if len(graph.ms) != count * (WARM_UP + rounds * calls):
        raise RuntimeError(f"{count} kernels with nests, but {len(graph.ms)} calls of kernels")
    timed = graph.ms[count * WARM_UP :]

    def means(of_kernel: Sequence[float]) -> tuple[float, ...]:
        starts = range(0, rounds * calls, calls)
        return tuple(statistics.fmean(of_kernel[start : start + calls]) for start in starts)

    return [means(timed[k::count]) for k in range(count)]


def nest_times(plans: Mapping[str, Plan], kernel: int, samples: Samples) -> list[NestTimes]:
    """What to say of the nests in one kernel; nothing where no seam can be cut."""
    chosen, whole, cut = (_of_kernel(plans[w.name], kernel) for w in (CHOSEN, WHOLE, CUT))
    if len({tuple(nest.name for nest in nests) for nests in (chosen, whole, cut)}) > 1:
        raise RuntimeError(f"kernel {kernel} has other nests where it is cut")
    seamed = [k for k, nest in enumerate(cut) if nest.split]
    if not seamed:
        return []
    rivals = {WHOLE.name: whole, CUT.name: cut}
    losses = [
        1.0 if _boxes(nests) == _boxes(chosen) else samples.ratio(CHOSEN.name, name)
        for name, nests in rivals.items()
    ]
    return [
        NestTimes(
            graph=plans[CHOSEN.name].kind,
            name=" ".join(cut[k].name for k in seamed),
            others=len(cut) - len(seamed),
            pieces=sum(len(chosen[k].pieces) for k in seamed),
            pieces_at_seams=sum(len(cut[k].pieces) for k in seamed),
            ms={name: samples.median(name) for name in samples.ms},
            gain=samples.ratio(WHOLE.name, CUT.name),
            loss=max(losses),
            noise=samples.noise(CHOSEN.name, AGAIN.name),
            reason="; ".join(str(chosen[k].reason) for k in seamed),
            estimate="; ".join(str(cut[k].reason) for k in seamed),
        )
    ]


def _of_kernel(plan: Plan, kernel: int) -> list[NestPlan]:
    return [nest for nest in plan.nests if nest.kernel == kernel]


def _boxes(nests: Sequence[NestPlan]) -> list[tuple[str, ...]]:
    return [tuple(piece.where for piece in nest.pieces) for nest in nests]
