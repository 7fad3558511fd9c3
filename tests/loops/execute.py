"""Runs nests that tests give as text."""

from __future__ import annotations

from typing import Any

import torch

from torch_piecewise.loops import interpret, ops, text


def execute(source: str, sizes: dict[str, int] | None = None, **buffers: torch.Tensor) -> Any:
    """Runs a nest given as text; gives the buffer `y`, zeros unless it is given."""
    nest = text.parse(source)
    ops.check(nest)
    flat = {name: tensor.reshape(-1).clone() for name, tensor in buffers.items()}
    interpret.run(nest, flat, sizes)
    return flat["y"]


def data(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
