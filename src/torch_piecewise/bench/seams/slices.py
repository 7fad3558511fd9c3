"""Parts of one tensor with formulas of their own."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from torch_piecewise.bench.seams.base import Source, Tensors, Workload, workload


def swiglu(x: Tensor) -> Tensor:
    gate, value = x.chunk(2, -1)
    return F.silu(gate) * value


def swiglu_inputs(source: Source, rows: int, width: int) -> Tensors:
    return (source.normal(rows, 2 * width, grad=True),)


def linear_attention_heads(qkv: Tensor, heads: Tensor) -> Tensors:
    batch, time_steps, width = qkv.shape
    count = heads.shape[0]
    head = width // (3 * count)
    q, k, v = (
        part.view(batch, time_steps, count, head).transpose(1, 2) for part in qkv.chunk(3, -1)
    )
    gate = heads[:, None, None]
    return F.elu(q * head**-0.5) + 1, F.elu(k) + 1, v * gate


def linear_attention_heads_inputs(
    source: Source, batch: int, time_steps: int, heads: int, head: int
) -> Tensors:
    return (
        source.normal(batch, time_steps, 3 * heads * head, grad=True),
        source.normal(heads),
    )


def lid_driven_step(u: Tensor, v: Tensor) -> Tensors:
    def advance(field: Tensor) -> Tensor:
        inside = field[1:-1, 1:-1]
        west, east = field[1:-1, :-2], field[1:-1, 2:]
        north, south = field[:-2, 1:-1], field[2:, 1:-1]
        drift = u[1:-1, 1:-1] * (east - west) + v[1:-1, 1:-1] * (south - north)
        spread = west + east + north + south - 4 * inside
        moved = field.clone()
        moved[1:-1, 1:-1] = inside - 0.05 * drift + 0.1 * spread
        return moved

    new_u, new_v = advance(u), advance(v)
    for field, lid in ((new_u, 1.0), (new_v, 0.0)):
        field[:, 0] = 0.0
        field[:, -1] = 0.0
        field[-1] = 0.0
        field[0] = lid
    return new_u, new_v


def lid_driven_step_inputs(source: Source, height: int, width: int) -> Tensors:
    return source.normal(height, width), source.normal(height, width)


WORKLOADS: tuple[Workload, ...] = (
    workload(
        "slice",
        "swiglu",
        swiglu,
        swiglu_inputs,
        "gated unit on two halves, forward and backward; language model feed-forward layers",
        tiny=(6, 20),
        small=(128, 512),
        cpu=(768, 2048),
        gpu=(8192, 8192),
        train=True,
    ),
    workload(
        "slice",
        "qkv_heads",
        linear_attention_heads,
        linear_attention_heads_inputs,
        "chunk of a fused projection into three, forward and backward; linear attention",
        tiny=(1, 7, 2, 8),
        small=(1, 80, 4, 64),
        cpu=(2, 512, 8, 64),
        gpu=(8, 4096, 16, 128),
        train=True,
    ),
    workload(
        "slice",
        "lid_driven",
        lid_driven_step,
        lid_driven_step_inputs,
        "slice assignment of interior and four walls; lid-driven cavity flow",
        tiny=(12, 14),
        small=(256, 256),
        cpu=(1024, 1024),
        gpu=(8192, 8192),
    ),
)
