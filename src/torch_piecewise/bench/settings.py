"""What a benchmark run was asked for, as plain values that go to a worker and into the results."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

import torch

SUITES = ("seams", "models", "programs")
DTYPES = ("float32", "bfloat16", "float64")


@dataclass(frozen=True)
class Settings:
    """`rounds` is the least count, `seconds` the budget of one subject: rounds go on until then.

    `threads` are those of a step; `compile_workers` those that build C++ code, the same number for
    every variant. `backend` is what is measured against Inductor. `seed` and `count` are those of
    the programs suite: which programs are drawn, and how many. `only` holds words with commas
    between them. `choices` measures too what cutting always and never would give; see `nests`.
    """

    suite: str = "seams"
    scale: str = "cpu"
    dtype: str = "float32"
    device: str = "cpu"
    threads: int = 1
    rounds: int = 15
    seconds: float = 2.0
    only: str = ""
    choices: bool = False
    fresh: bool = True
    compile_workers: int = os.cpu_count() or 1
    compile_repeats: int = 3
    backend: str = "piecewise"
    seed: int = 0
    count: int = 50

    @property
    def torch_dtype(self) -> torch.dtype:
        found = getattr(torch, self.dtype)
        assert isinstance(found, torch.dtype)
        return found

    @property
    def words(self) -> tuple[str, ...]:
        """The words of `only`; one that every name has where there are none."""
        return tuple(word for word in self.only.split(",") if word) or ("",)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Task:
    """One subject of a suite; a model's training step is a subject of its own."""

    suite: str
    name: str
    train: bool = False

    @property
    def label(self) -> str:
        return f"{self.name} (train)" if self.train and self.suite == "models" else self.name
