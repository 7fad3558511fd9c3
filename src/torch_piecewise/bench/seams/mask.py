"""A condition on the index."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_piecewise.bench.seams.base import Source, Tensors, Workload, workload


def partial_coupling(x: Tensor, log_scale: Tensor, shift: Tensor) -> Tensor:
    width = x.shape[-1]
    changed = torch.arange(width, device=x.device) < width // 4
    return torch.where(changed, x * torch.exp(torch.tanh(log_scale)) + shift, x)


def partial_coupling_inputs(source: Source, rows: int, width: int) -> Tensors:
    return tuple(source.normal(rows, width) for _ in range(3))


def causal_softmax(scores: Tensor) -> Tensor:
    length = scores.shape[-1]
    seen = torch.ones(length, length, dtype=torch.bool, device=scores.device).tril()
    return scores.masked_fill(~seen, -math.inf).softmax(-1)


def causal_softmax_inputs(source: Source, batch: int, heads: int, length: int) -> Tensors:
    return (source.normal(batch, heads, length, length),)


def grouped_covariance(distance: Tensor, amplitude: Tensor) -> Tensor:
    size = distance.shape[-1]
    block = -(-size // 4)
    group = torch.arange(size, device=distance.device) // block
    same = group[:, None] == group[None, :]
    kernel = amplitude * torch.exp(-0.5 * distance.square())
    return torch.where(same, kernel, 0.0)


def grouped_covariance_inputs(source: Source, batch: int, size: int) -> Tensors:
    return source.normal(batch, size, size), source.uniform(batch, 1, 1, low=0.5)


def edge_aware_gradient(u: Tensor) -> Tensor:
    length = u.shape[-1]
    place = torch.arange(length, device=u.device)
    ahead1, ahead2 = u.roll(-1, -1), u.roll(-2, -1)
    behind1, behind2 = u.roll(1, -1), u.roll(2, -1)
    first = -1.5 * u + 2 * ahead1 - 0.5 * ahead2
    last = 1.5 * u - 2 * behind1 + 0.5 * behind2
    inside = 0.5 * (ahead1 - behind1)
    return torch.where(place == 0, first, torch.where(place == length - 1, last, inside))


def edge_aware_gradient_inputs(source: Source, rows: int, length: int) -> Tensors:
    return (source.normal(rows, length),)


def taper(signal: Tensor) -> Tensor:
    length = signal.shape[-1]
    ramp = length // 10
    place = torch.arange(length, device=signal.device, dtype=torch.float32)

    def rise(x: Tensor) -> Tensor:
        return 0.5 - 0.5 * torch.cos(math.pi * x / ramp)

    window = torch.where(
        place < ramp,
        rise(place),
        torch.where(place >= length - ramp, rise(length - 1 - place), 1.0),
    )
    return signal * window.to(signal.dtype)


def taper_inputs(source: Source, batch: int, channels: int, length: int) -> Tensors:
    return (source.normal(batch, channels, length),)


WORKLOADS: tuple[Workload, ...] = (
    workload(
        "mask",
        "partial_coupling",
        partial_coupling,
        partial_coupling_inputs,
        "costly formula only for the first quarter of the columns; normalizing flows",
        tiny=(7, 45),
        small=(128, 512),
        cpu=(2048, 1536),
        gpu=(16384, 4096),
    ),
    workload(
        "mask",
        "causal_softmax",
        causal_softmax,
        causal_softmax_inputs,
        "triangular mask, then softmax; explicit causal attention",
        tiny=(1, 2, 19),
        small=(1, 4, 128),
        cpu=(1, 12, 512),
        gpu=(2, 16, 2048),
    ),
    workload(
        "mask",
        "grouped_covariance",
        grouped_covariance,
        grouped_covariance_inputs,
        "block-diagonal mask of four blocks; multi-group Gaussian processes, local attention",
        tiny=(2, 22),
        small=(1, 256),
        cpu=(3, 1024),
        gpu=(32, 2048),
    ),
    workload(
        "mask",
        "edge_gradient",
        edge_aware_gradient,
        edge_aware_gradient_inputs,
        "one-sided differences at both ends, central inside; finite difference solvers",
        tiny=(5, 39),
        small=(256, 256),
        cpu=(2048, 2048),
        gpu=(16384, 8192),
    ),
    workload(
        "mask",
        "taper",
        taper,
        taper_inputs,
        "cosine ramps at both ends of a signal; audio and seismic preprocessing",
        tiny=(1, 2, 57),
        small=(1, 2, 32768),
        cpu=(4, 8, 131072),
        gpu=(32, 32, 131072),
    ),
)
