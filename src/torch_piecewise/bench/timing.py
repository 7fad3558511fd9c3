"""Times of several steps, taken in turns, and the ratios that may be claimed from them."""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from torch_piecewise.bench.workloads import Step

MOST_ROUNDS = 101
WARM_UP = 3  # calls of each step before the first sample
SHORTEST_SAMPLE = 2e-3  # seconds; shorter steps are called several times a sample
SHORTEST_ON_GPU = 2e-2  # a sample begins with an empty queue, which should not count


@dataclass(frozen=True)
class Samples:
    """`ms[name][round]`: milliseconds of one call. A sample is the mean of `calls` calls."""

    ms: dict[str, tuple[float, ...]]
    calls: int

    def median(self, name: str) -> float:
        return statistics.median(self.ms[name])

    def ratio(self, base: str, name: str) -> float:
        """How many times faster `name` is than `base`: the median over the rounds.

        Each round's two times are divided first, so that a slow spell of the machine, which hits
        both, does not count.
        """
        return statistics.median(self._ratios(base, name))

    def noise(self, base: str, again: str) -> float:
        """How far from 1 the ratio of two equal variants can be on this machine, now.

        The larger of what their median ratio shows and the half width of its 95% interval (the
        notch of a box plot, 1.57 quartile distances over the square root of the count).
        """
        ratios = self._ratios(base, again)
        low, _, high = statistics.quantiles(ratios, n=4)
        notch = 1.57 * (high - low) / math.sqrt(len(ratios))
        return max(abs(statistics.median(ratios) - 1.0), notch)

    def _ratios(self, base: str, name: str) -> list[float]:
        return [b / t for b, t in zip(self.ms[base], self.ms[name], strict=True)]


def waiter(device: torch.device | str) -> Callable[[], None]:
    """What to call before reading the clock: work on a GPU returns before it is done."""
    if torch.device(device).type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    return lambda: None


def take_turns(
    steps: Mapping[str, Step],
    *,
    rounds: int,
    seconds: float = 0.0,
    device: torch.device | str = "cpu",
    warm_up: int = WARM_UP,
    calls: int | None = None,
) -> Samples:
    """Samples of every step, at least `rounds` of them (2 or more), more while `seconds` last.

    Every round runs each step once, in a new order. A result is dropped after the clock is read,
    for every step alike.
    """
    wait = waiter(device)
    for step in steps.values():
        for _ in range(warm_up):
            step()
    if calls is None:
        shortest = min(_sample(step, 1, wait) for step in steps.values())
        least = SHORTEST_SAMPLE if torch.device(device).type == "cpu" else SHORTEST_ON_GPU
        calls = max(1, math.ceil(least / shortest))
    taken: dict[str, list[float]] = {name: [] for name in steps}
    order = list(steps)
    shuffle = random.Random(0).shuffle
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()  # a collection would hit one variant of a round
    try:
        stop, done = time.perf_counter() + seconds, 0
        while done < rounds or (time.perf_counter() < stop and done < MOST_ROUNDS):
            shuffle(order)
            for name in order:
                taken[name].append(1e3 * _sample(steps[name], calls, wait))
            done += 1
    finally:
        if was_enabled:
            gc.enable()
    return Samples({name: tuple(times) for name, times in taken.items()}, calls)


def _sample(step: Step, calls: int, wait: Callable[[], None]) -> float:
    """Seconds of one call, as the mean of several."""
    wait()
    start = time.perf_counter()
    for _ in range(calls):
        kept = step()
    wait()
    taken = time.perf_counter() - start
    del kept
    return taken / calls


def geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(r) for r in ratios))
