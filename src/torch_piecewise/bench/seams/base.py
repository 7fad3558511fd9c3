"""What a workload is: a kernel, its seeded inputs at four scales, and a note.

At scale small its largest input or result has about 64K elements: starting the work is what takes
time.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

GROUPS = ("cat", "pad", "roll", "mask", "slice", "control")
SCALES = ("tiny", "small", "cpu", "gpu")

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Workload:
    """`inputs(device, dtype, scale)` draws the arguments of `fn`, the same ones every time.

    `train` means that a step is the forward and the backward to the inputs that require grad.
    """

    name: str
    group: str
    fn: Callable[..., Any]
    inputs: Callable[[torch.device | str, torch.dtype, str], Tensors]
    train: bool
    note: str


class Source:
    """Seeded random tensors of one device and one floating dtype."""

    def __init__(self, device: torch.device | str, dtype: torch.dtype, seed: int) -> None:
        self.device = torch.device(device)
        self.dtype = dtype
        self.generator: torch.Generator | None = None  # the meta device has none
        if self.device.type != "meta":
            self.generator = torch.Generator(self.device).manual_seed(seed)

    def normal(self, *shape: int, grad: bool = False) -> Tensor:
        values = torch.randn(shape, generator=self.generator, device=self.device, dtype=self.dtype)
        return values.requires_grad_(grad)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        values = torch.rand(shape, generator=self.generator, device=self.device, dtype=self.dtype)
        return values * (high - low) + low

    def steps(self, count: int) -> Tensor:
        return torch.arange(count, device=self.device, dtype=torch.float32)


def workload(
    group: str,
    name: str,
    fn: Callable[..., Any],
    build: Callable[..., Tensors],
    note: str,
    *,
    tiny: tuple[int, ...],
    small: tuple[int, ...],
    cpu: tuple[int, ...],
    gpu: tuple[int, ...],
    train: bool = False,
) -> Workload:
    """One row of a table: `build(source, *sizes)` draws the arguments at the sizes of a scale."""
    sizes = {"tiny": tiny, "small": small, "cpu": cpu, "gpu": gpu}
    seed = zlib.crc32(name.encode())

    def inputs(device: torch.device | str, dtype: torch.dtype, scale: str) -> Tensors:
        return build(Source(device, dtype, seed), *sizes[scale])

    return Workload(f"{group}_{name}", group, fn, inputs, train, note)
