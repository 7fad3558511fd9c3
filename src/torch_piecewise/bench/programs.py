"""Programs drawn from a seed, as readable source: what nobody thought of measuring.

`draw(seed, number, scale)` composes a few steps out of `steps`, each on the result of the one
before. The same three arguments give the same text. Every second program is measured with its
backward; its steps are smooth, so that rounding cannot change a gradient by more than rounding.
"""

from __future__ import annotations

import linecache
import random
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from torch_piecewise.bench.seams.base import Source, Tensors, Workload
from torch_piecewise.bench.steps import KINDS, Draw, reduced, second

# of an input, float32
MEGABYTES = {"tiny": (0.01, 0.02), "small": (0.2, 0.3), "cpu": (1.0, 8.0), "gpu": (32.0, 128.0)}
LEAST_STEPS, MOST_STEPS = 3, 6


@dataclass(frozen=True)
class Program:
    """`text` is the source of a function `program(x, y)`; both arguments have this shape."""

    name: str
    text: str
    shape: tuple[int, int]
    train: bool

    def function(self) -> Callable[..., Any]:
        """The function, with its lines where tracebacks and `explain` look for them."""
        file = f"<{self.name}>"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(True), file)
        names: dict[str, Any] = {"torch": torch, "F": F}
        exec(compile(self.text, file, "exec"), names)
        made: Callable[..., Any] = names["program"]
        return made


def name_of(number: int) -> str:
    return f"program_{number:03}"


def is_trained(number: int) -> bool:
    return number % 2 == 1


def draw(seed: int, number: int, scale: str = "cpu") -> Program:
    """Program `number` of a seed."""
    rng = random.Random(f"{seed} {number}")
    shape = _shape(rng, *MEGABYTES[scale])
    train = is_trained(number)
    state = Draw(rng, shape, most=2 * shape[0] * shape[1], smooth=train)
    for _ in range(rng.randint(LEAST_STEPS, MOST_STEPS)):
        rng.choice(KINDS)(state)
    if not any(re.search(r"\by\b", line) for line in state.lines):
        second(state)
    results = ["a"]
    if rng.random() < 0.3:
        results.append(reduced(state))
    text = _source(state, results, f"Program {number} of seed {seed}, {scale} scale.")
    return Program(name_of(number), text, shape, train)


def find(name: str, seed: int, scale: str = "cpu") -> Program:
    """The program of this name; KeyError where none can have it."""
    prefix, _, digits = name.rpartition("_")
    if prefix != "program" or not digits.isdecimal():
        raise KeyError(f"no program is called {name!r}")
    return draw(seed, int(digits), scale)


def workload(name: str, seed: int, scale: str) -> Workload:
    """A program as a workload, at this scale only; KeyError as in `find`."""
    made = find(name, seed, scale)

    def inputs(device: torch.device | str, dtype: torch.dtype, _: str) -> Tensors:
        source = Source(device, dtype, seed)
        return tuple(source.normal(*made.shape, grad=made.train) for _ in range(2))

    return Workload(made.name, "program", made.function(), inputs, made.train, made.text)


def _shape(rng: random.Random, least: float, most: float) -> tuple[int, int]:
    """Rows and columns of a matrix of that many megabytes; one is seldom much longer."""
    elements = rng.uniform(least, most) * 2**20 / 4
    columns = max(48, int(elements ** rng.uniform(0.4, 0.65)))
    return max(24, int(elements / columns)), columns


def _source(state: Draw, results: list[str], title: str) -> str:
    lines = ['"""' + title + '"""', *(["a = x"] + state.lines), f"return {', '.join(results)}"]
    return "def program(x, y):\n" + textwrap.indent("\n".join(lines), "    ") + "\n"
