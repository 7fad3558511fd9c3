"""Kernels without seams: there is nothing to split, so they must stay as they are."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from torch_piecewise.bench.seams.base import Source, Tensors, Workload, workload


def residual_gelu(x: Tensor, residual: Tensor, bias: Tensor) -> Tensor:
    return residual + F.gelu(x + bias)


def residual_gelu_inputs(source: Source, rows: int, columns: int) -> Tensors:
    return source.normal(rows, columns), source.normal(rows, columns), source.normal(columns)


def row_softmax(scores: Tensor) -> Tensor:
    return (scores * 0.125).softmax(-1)


def row_softmax_inputs(source: Source, rows: int, columns: int) -> Tensors:
    return (source.normal(rows, columns),)


def running_sum(rewards: Tensor, discount: Tensor) -> Tensor:
    return (rewards * discount).cumsum(-1)


def running_sum_inputs(source: Source, rows: int, columns: int) -> Tensors:
    return source.normal(rows, columns), source.uniform(columns)


WORKLOADS: tuple[Workload, ...] = (
    workload(
        "control",
        "residual_gelu",
        residual_gelu,
        residual_gelu_inputs,
        "plain pointwise chain without seams; transformer residual branches",
        tiny=(6, 33),
        small=(128, 512),
        cpu=(2048, 1536),
        gpu=(16384, 8192),
    ),
    workload(
        "control",
        "row_softmax",
        row_softmax,
        row_softmax_inputs,
        "softmax over whole rows, no mask; attention scores, classifiers",
        tiny=(6, 33),
        small=(128, 512),
        cpu=(2048, 1536),
        gpu=(16384, 8192),
    ),
    workload(
        "control",
        "running_sum",
        running_sum,
        running_sum_inputs,
        "scan along rows, every element needs all before it; returns in control, histograms",
        tiny=(6, 33),
        small=(128, 512),
        cpu=(2048, 1024),
        gpu=(16384, 8192),
    ),
)
