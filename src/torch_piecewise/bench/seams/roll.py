"""The wrap of a periodic axis."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_piecewise.bench.seams.base import Source, Tensors, Workload, workload


def gray_scott_step(u: Tensor, v: Tensor) -> Tensors:
    def diffuse(x: Tensor) -> Tensor:
        sides = x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1)
        corners = 0.0
        for rows in (1, -1):
            for columns in (1, -1):
                corners = corners + x.roll((rows, columns), (0, 1))
        return 0.2 * sides + 0.05 * corners - x

    reaction = u * v * v
    return (
        u + 0.8 * diffuse(u) - reaction + 0.04 * (1 - u),
        v + 0.4 * diffuse(v) + reaction - 0.1 * v,
    )


def gray_scott_step_inputs(source: Source, height: int, width: int) -> Tensors:
    return source.uniform(height, width), source.uniform(height, width)


def wave_step(now: Tensor, before: Tensor, speed: Tensor) -> Tensor:
    bend = -5.0 * now
    for axis in (0, 1):
        near = now.roll(1, axis) + now.roll(-1, axis)
        far = now.roll(2, axis) + now.roll(-2, axis)
        bend = bend + (4 / 3) * near - (1 / 12) * far
    return 2 * now - before + speed.square() * bend


def wave_step_inputs(source: Source, height: int, width: int) -> Tensors:
    return (
        source.normal(height, width),
        source.normal(height, width),
        source.uniform(height, width, low=0.1, high=0.5),
    )


# (columns, rows) moved by each of the nine populations, and its rest share
LATTICE = tuple((dx, dy) for dy in (-1, 0, 1) for dx in (-1, 0, 1))
SHARES = tuple((4 / 9, 1 / 9, 1 / 36)[abs(dx) + abs(dy)] for dx, dy in LATTICE)


def lattice_boltzmann_step(populations: Tensor) -> Tensor:
    moved = [populations[i].roll((dy, dx), (0, 1)) for i, (dx, dy) in enumerate(LATTICE)]
    density = sum(moved)
    flow_x = sum(dx * f for (dx, _), f in zip(LATTICE, moved) if dx) / density
    flow_y = sum(dy * f for (_, dy), f in zip(LATTICE, moved) if dy) / density
    energy = 1.5 * (flow_x.square() + flow_y.square())
    relaxed = []
    for (dx, dy), share, f in zip(LATTICE, SHARES, moved):
        along = 3 * (dx * flow_x + dy * flow_y)
        rest = share * density * (1 + along + 0.5 * along.square() - energy)
        relaxed.append(f + (rest - f) / 0.7)
    return torch.stack(relaxed)


def lattice_boltzmann_step_inputs(source: Source, height: int, width: int) -> Tensors:
    return (source.uniform(9, height, width, low=0.5, high=1.5),)


WINDOW = 7


def shift_windows(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    batch, height, width, channels = x.shape
    shifted = (x * weight + bias).roll((-(WINDOW // 2), -(WINDOW // 2)), (1, 2))
    tiles = shifted.view(batch, height // WINDOW, WINDOW, width // WINDOW, WINDOW, channels)
    return tiles.transpose(2, 3).reshape(-1, WINDOW * WINDOW, channels)


def shift_windows_inputs(source: Source, batch: int, tiles: int, channels: int) -> Tensors:
    side = tiles * WINDOW
    return (
        source.normal(batch, side, side, channels),
        source.normal(channels),
        source.normal(channels),
    )


def circular_correlation(signal: Tensor, probe: Tensor) -> Tensor:
    lags = [(signal * probe.roll(lag, -1)).mean(-1) for lag in range(-4, 5)]
    return torch.stack(lags, -1)


def circular_correlation_inputs(source: Source, rows: int, length: int) -> Tensors:
    return source.normal(rows, length), source.normal(rows, length)


WORKLOADS: tuple[Workload, ...] = (
    workload(
        "roll",
        "gray_scott",
        gray_scott_step,
        gray_scott_step_inputs,
        "periodic 9-point Laplacian of two fields; reaction-diffusion, pattern formation",
        tiny=(12, 15),
        small=(256, 256),
        cpu=(1024, 1280),
        gpu=(8192, 8192),
    ),
    workload(
        "roll",
        "wave_step",
        wave_step,
        wave_step_inputs,
        "leapfrog wave equation, fourth-order periodic Laplacian; acoustics, seismics",
        tiny=(11, 14),
        small=(256, 256),
        cpu=(1280, 1536),
        gpu=(8192, 8192),
    ),
    workload(
        "roll",
        "lattice_boltzmann",
        lattice_boltzmann_step,
        lattice_boltzmann_step_inputs,
        "D2Q9 streaming and collision; lattice Boltzmann fluid flow",
        tiny=(10, 13),
        small=(80, 96),
        cpu=(448, 512),
        gpu=(3072, 3072),
    ),
    workload(
        "roll",
        "shift_windows",
        shift_windows,
        shift_windows_inputs,
        "cyclic shift of an NHWC image, then window partition; Swin transformers",
        tiny=(1, 2, 6),
        small=(1, 3, 144),
        cpu=(5, 8, 192),
        gpu=(192, 8, 192),
    ),
    workload(
        "roll",
        "circular_correlation",
        circular_correlation,
        circular_correlation_inputs,
        "circular cross-correlation at nine lags; delay estimation, holographic memories",
        tiny=(5, 41),
        small=(64, 1024),
        cpu=(512, 3072),
        gpu=(16384, 8192),
    ),
)
