"""Cold compile times: each in a fresh process with empty caches, the two backends in turns."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch

from torch_piecewise.bench.settings import Settings, Task
from torch_piecewise.bench.subjects import prepare
from torch_piecewise.bench.timing import waiter
from torch_piecewise.bench.variants import PLAIN, Variant, compiled, piecewise


@dataclass(frozen=True)
class CompileRecord:
    """Seconds from `torch.compile` to the end of the first step, one a process.

    That holds all that a user waits for: loading the compilers' modules, compiling, the step.
    Starting Python, importing torch and drawing the weights come before it.
    """

    suite: str
    name: str
    train: bool
    inductor: tuple[float, ...] = ()
    piecewise: tuple[float, ...] = ()
    error: str = ""

    @property
    def ratio(self) -> float | None:
        """The piecewise backend's median over plain Inductor's; below 1 is faster."""
        if not self.inductor or not self.piecewise:
            return None
        return statistics.median(self.piecewise) / statistics.median(self.inductor)


def contestants(settings: Settings) -> tuple[Variant, Variant]:
    return PLAIN, piecewise(settings.backend)


def compile_once(task: Task, variant: str, settings: Settings) -> float:
    """Seconds that one variant takes in this process, which should have compiled nothing yet."""
    if torch.device(settings.device).type == "cpu":
        torch.set_num_threads(settings.threads)
    chosen = next(v for v in contestants(settings) if v.name == variant)
    subject, wait = prepare(task, settings), waiter(settings.device)
    start = time.perf_counter()
    subject.bind(compiled(chosen, subject.fn))()
    wait()
    return time.perf_counter() - start
