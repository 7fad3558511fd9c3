"""Times of single nests, for the bench: each in a kernel of its own, with a clock around its calls.

A wrapper of Inductor's calls its kernels by names of its module; a clock takes the place of each.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch._inductor.codecache import PyCodeCache

from torch_piecewise.plan.plan import Plan

from . import facts
from .compile import compile_graph, config_of


@dataclass(frozen=True)
class GraphClock:
    """The calls of one graph's kernels: `ms` has the milliseconds of each, in order."""

    plan: Plan
    ms: list[float] = field(default_factory=list)


def nests_apart(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, object] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """The backend "piecewise", with each nest in a kernel of its own; options and errors as there.

    Nests that Inductor put under one outer loop share a kernel.
    """
    return compile_graph(gm, example_inputs, config_of(options, mode), apart=True)


@contextmanager
def clocked() -> Iterator[list[GraphClock]]:
    """A clock for each of our graphs that is compiled, or loaded from a cache, inside.

    The list is filled at the end, in the order in which the graphs were loaded; calls count from
    then on.
    """
    before = len(PyCodeCache.modules)
    clocks: list[GraphClock] = []
    yield clocks
    for module in PyCodeCache.modules[before:]:
        plan = facts.read(inspect.getsource(module))
        if plan is not None:
            clocks.append(GraphClock(plan))
            _put_clocks(module, clocks[-1].ms)


def _put_clocks(module: ModuleType, ms: list[float]) -> None:
    for name, kernel in list(vars(module).items()):
        if name.startswith("cpp_") and callable(kernel):
            setattr(module, name, _timed(kernel, ms))


def _timed(kernel: Callable[..., Any], ms: list[float]) -> Callable[..., Any]:
    @functools.wraps(kernel)
    def call(*args: Any) -> Any:
        start = time.perf_counter()
        result = kernel(*args)
        ms.append(1e3 * (time.perf_counter() - start))
        return result

    return call
