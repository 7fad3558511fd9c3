"""The edge of the data: zeros outside."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_piecewise.bench.seams.base import Source, Tensors, Workload, workload


def heat_step(u: Tensor) -> Tensor:
    padded = F.pad(u, (1, 1))
    return u + 0.2 * (padded[:, :-2] - 2 * u + padded[:, 2:])


def heat_step_inputs(source: Source, rows: int, columns: int) -> Tensors:
    return (source.normal(rows, columns),)


def jacobi_step(u: Tensor, load: Tensor) -> Tensor:
    padded = F.pad(u, (1, 1, 1, 1))
    north, south = padded[:, :-2, 1:-1], padded[:, 2:, 1:-1]
    west, east = padded[:, 1:-1, :-2], padded[:, 1:-1, 2:]
    return 0.25 * (north + south + west + east - load)


def jacobi_step_inputs(source: Source, batch: int, height: int, width: int) -> Tensors:
    return source.normal(batch, height, width), source.normal(batch, height, width)


def causal_taps(x: Tensor, taps: Tensor, bias: Tensor) -> Tensor:
    count, length = taps.shape[0], x.shape[1]
    padded = F.pad(x, (0, 0, count - 1, 0))
    total = bias + padded[:, :length] * taps[0]
    for tap in range(1, count):
        total = total + padded[:, tap : tap + length] * taps[tap]
    return F.silu(total)


def causal_taps_inputs(source: Source, batch: int, time_steps: int, channels: int) -> Tensors:
    return (
        source.normal(batch, time_steps, channels),
        source.normal(4, channels),
        source.normal(channels),
    )


def total_variation(image: Tensor) -> Tensor:
    down = image[..., 1:, :] - image[..., :-1, :]
    right = image[..., 1:] - image[..., :-1]
    smooth = 1e-3  # keeps the square root away from its kink
    return (down.square() + smooth).sqrt().mean() + (right.square() + smooth).sqrt().mean()


def total_variation_inputs(
    source: Source, batch: int, channels: int, height: int, width: int
) -> Tensors:
    return (source.normal(batch, channels, height, width, grad=True),)


def edge_aware_smoothness(disparity: Tensor, image: Tensor) -> Tensor:
    def ahead(x: Tensor) -> Tensors:
        return (
            F.pad(x[..., 1:] - x[..., :-1], (0, 1)),
            F.pad(x[..., 1:, :] - x[..., :-1, :], (0, 0, 0, 1)),
        )

    total = 0.0
    for change, contrast in zip(ahead(disparity), ahead(image)):
        total = total + change.abs() * torch.exp(-contrast.abs().mean(1, keepdim=True))
    return total.mean()


def edge_aware_smoothness_inputs(source: Source, batch: int, height: int, width: int) -> Tensors:
    return (
        source.normal(batch, 1, height, width, grad=True),
        source.uniform(batch, 3, height, width),
    )


WORKLOADS: tuple[Workload, ...] = (
    workload(
        "pad",
        "heat_step",
        heat_step,
        heat_step_inputs,
        "3-tap stencil with zeros outside; explicit heat equation, signal smoothing",
        tiny=(5, 37),
        small=(128, 512),
        cpu=(2048, 2048),
        gpu=(16384, 8192),
    ),
    workload(
        "pad",
        "jacobi_step",
        jacobi_step,
        jacobi_step_inputs,
        "5-point stencil with a zero boundary; Jacobi iteration for Poisson problems",
        tiny=(2, 11, 13),
        small=(1, 256, 256),
        cpu=(3, 1024, 1024),
        gpu=(16, 2048, 2048),
    ),
    workload(
        "pad",
        "causal_taps",
        causal_taps,
        causal_taps_inputs,
        "causal shifts in time, weighted and summed; short convolutions of state space models",
        tiny=(2, 9, 12),
        small=(1, 256, 256),
        cpu=(4, 1024, 768),
        gpu=(16, 4096, 2048),
    ),
    workload(
        "pad",
        "total_variation",
        total_variation,
        total_variation_inputs,
        "total variation loss, forward and backward; denoising, inverse problems",
        tiny=(1, 3, 9, 11),
        small=(1, 3, 144, 152),
        cpu=(4, 3, 384, 384),
        gpu=(32, 3, 1024, 1024),
        train=True,
    ),
    workload(
        "pad",
        "edge_smoothness",
        edge_aware_smoothness,
        edge_aware_smoothness_inputs,
        "image gradient loss with padded differences, forward and backward; depth estimation",
        tiny=(1, 9, 11),
        small=(1, 256, 256),
        cpu=(4, 320, 512),
        gpu=(64, 1024, 1024),
        train=True,
    ),
)
