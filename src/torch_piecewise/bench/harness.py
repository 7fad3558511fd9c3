"""Measures one subject: every variant checked, then timed in turns in this process.

Each variant has a code object of its own, is compiled before any is timed, and is never reset; see
`variants` and `timing` for how.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from torch_piecewise.bench.nests import Heaviest, NestTimes, measure_nests
from torch_piecewise.bench.plans import PlanFacts, count, plans_of
from torch_piecewise.bench.seams import Tensors
from torch_piecewise.bench.settings import Settings, Task
from torch_piecewise.bench.subjects import Subject, prepare
from torch_piecewise.bench.timing import Samples, take_turns, waiter
from torch_piecewise.bench.variants import AGAIN, PLAIN, Variant, compiled, variants
from torch_piecewise.bench.workloads import Step, disagreement, largest_difference

COPY = "copy"
WRITTEN = "an input was written to"


@dataclass(frozen=True)
class VariantResult:
    """`speed` is how many times faster than plain Inductor it is, `ms` the median of `samples`.

    `first_s` is the first call, compiling included (with warm caches, often). `problem` says why
    the result is wrong, '' if it is right; `difference` is the largest from the reference's.
    """

    name: str
    ms: float
    speed: float
    gb_per_s: float | None
    first_s: float
    problem: str
    difference: float | None
    samples: tuple[float, ...]


@dataclass(frozen=True)
class Record:
    """All that was measured on one subject; `error` where it could not be.

    `noise` is what A/A shows: a speed nearer to 1 than that says nothing. `difference` is the
    largest between the piecewise and the plain Inductor result, 0.0 if they are equal. `nests` are
    those that can be cut, timed apart, and `heaviest` is what takes most, where `settings.choices`
    asks for it. `inductors_own` is where plain Inductor itself differs from the reference.
    """

    suite: str
    name: str
    train: bool
    variants: tuple[VariantResult, ...] = ()
    noise: float = 0.0
    rounds: int = 0
    calls: int = 0
    bytes: int | None = None
    copy_ms: float | None = None
    copy_gb_per_s: float | None = None
    difference: float | None = None
    plan: PlanFacts | None = None
    nests: tuple[NestTimes, ...] = ()
    heaviest: Heaviest | None = None
    inductors_own: str = ""
    error: str = ""

    def variant(self, name: str) -> VariantResult | None:
        return next((v for v in self.variants if v.name == name), None)

    @property
    def problems(self) -> tuple[str, ...]:
        """Every reason why this subject counts as failed."""
        wrong = tuple(f"{v.name}: {v.problem}" for v in self.variants if v.problem)
        return ((self.error,) if self.error else ()) + wrong


@dataclass
class _Checked:
    """What the first calls gave, while a subject is checked."""

    steps: dict[str, Step] = field(default_factory=dict)
    results: dict[str, Tensors] = field(default_factory=dict)
    first_s: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def differences(self, reference: str) -> dict[str, float]:
        """The largest difference of each result of the right form from the reference's."""
        want = self.results[reference]
        form = [t.shape for t in want]
        return {
            name: largest_difference(got, want)
            for name, got in self.results.items()
            if [t.shape for t in got] == form
        }


def measure(task: Task, settings: Settings) -> Record:
    """The record of one task. Errors of a compile or a step are raised."""
    if torch.device(settings.device).type == "cpu":
        torch.set_num_threads(settings.threads)
    torch.manual_seed(0)
    subject = prepare(task, settings)
    record = measure_subject(subject, settings, variants(settings.backend, settings.choices))
    if not settings.choices:
        return record
    with torch.set_grad_enabled(task.train):
        nests, heaviest = measure_nests(subject, settings, record.calls)
    return dataclasses.replace(record, nests=nests, heaviest=heaviest)


def measure_subject(
    subject: Subject, settings: Settings, chosen: Sequence[Variant], plans: bool = True
) -> Record:
    """Checks and times the chosen variants, of which plain Inductor has to be one."""
    checked = _check(subject, chosen, waiter(settings.device))
    inductors_own = _inductors_own(checked)
    from_reference = checked.differences(subject.reference)
    from_plain = checked.differences(PLAIN.name)
    checked.results.clear()  # nothing but the steps' own results is alive while they are timed
    steps = dict(checked.steps)
    if subject.bytes is not None:
        steps[COPY] = copy_step(subject.bytes, settings.device)
    samples = take_turns(
        steps, rounds=settings.rounds, seconds=settings.seconds, device=settings.device
    )
    copied = samples.median(COPY) if COPY in samples.ms else None
    return Record(
        suite=subject.task.suite,
        name=subject.task.name,
        train=subject.task.train,
        variants=_variant_results(subject, checked, samples, from_reference),
        noise=samples.noise(PLAIN.name, AGAIN.name) if AGAIN.name in samples.ms else 0.0,
        rounds=len(samples.ms[PLAIN.name]),
        calls=samples.calls,
        bytes=subject.bytes,
        copy_ms=copied,
        copy_gb_per_s=_rate(subject.bytes, copied) if copied else None,
        difference=from_plain.get("piecewise"),
        inductors_own=inductors_own,
        plan=_plan(subject) if plans and settings.backend == "piecewise" else None,
    )


def copy_step(moved: int, device: str) -> Step:
    """A copy that reads and writes `moved` bytes in all, into new memory as the steps do."""
    source = torch.ones(max(1, moved // 2), dtype=torch.uint8, device=device)
    return lambda: (source.clone(),)


def _check(subject: Subject, chosen: Sequence[Variant], wait: Callable[[], None]) -> _Checked:
    """Runs every variant once, the reference first, and compares."""
    checked = _Checked()
    for variant in sorted(chosen, key=lambda v: v.name != subject.reference):
        versions = [t._version for t in subject.tensors]
        start = time.perf_counter()
        step = subject.bind(compiled(variant, subject.fn))
        got = step()
        wait()
        checked.first_s[variant.name] = time.perf_counter() - start
        written = versions != [t._version for t in subject.tensors]
        checked.problems[variant.name] = _problem(
            variant.name, got, checked.results.get(subject.reference, got), written
        )
        checked.steps[variant.name], checked.results[variant.name] = step, got
    return checked


def _inductors_own(checked: _Checked) -> str:
    """Where plain Inductor differs from the reference and the backend gives the same as it.

    Then nothing is said against any variant that does. A gradient through a softmax that is all but
    one-hot, for one, is rounding alone, and so is the difference.
    """
    said = checked.problems.get(PLAIN.name, "")
    if not said:
        return ""
    plain = checked.results[PLAIN.name]
    for name, problem in checked.problems.items():
        if problem not in ("", WRITTEN) and not disagreement(checked.results[name], plain):
            checked.problems[name] = ""
    return said


def _problem(name: str, got: Tensors, want: Tensors, written: bool) -> str:
    # eager mode of a model differs from Inductor by the rounding of all its layers: not a fault
    said = "" if name == "eager" else disagreement(got, want)
    return WRITTEN if written else said


def _variant_results(
    subject: Subject, checked: _Checked, samples: Samples, differing: dict[str, float]
) -> tuple[VariantResult, ...]:
    found = []
    for name in checked.steps:
        ms = statistics.median(samples.ms[name])
        found.append(
            VariantResult(
                name=name,
                ms=ms,
                speed=samples.ratio(PLAIN.name, name),
                gb_per_s=_rate(subject.bytes, ms),
                first_s=checked.first_s[name],
                problem=checked.problems[name],
                difference=differing.get(name),
                samples=samples.ms[name],
            )
        )
    return tuple(found)


def _rate(moved: int | None, ms: float) -> float | None:
    return None if moved is None else moved / ms / 1e6


def _plan(subject: Subject) -> PlanFacts:
    with torch.set_grad_enabled(subject.task.train):
        return count(plans_of(*subject.explained))
