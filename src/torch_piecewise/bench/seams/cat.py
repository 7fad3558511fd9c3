"""The join of a concatenation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_piecewise.bench.seams.base import Source, Tensors, Workload, workload


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Tensors:
    def rotate(x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), -1)
        return x * cos + turned * sin

    return rotate(q), rotate(k)


def rotary_inputs(
    source: Source, batch: int, q_heads: int, k_heads: int, time_steps: int, head: int
) -> Tensors:
    rates = 10000.0 ** (-source.steps(head // 2) / (head // 2))
    angles = source.steps(time_steps)[:, None] * rates
    angles = torch.cat((angles, angles), -1)
    return (
        source.normal(batch, q_heads, time_steps, head),
        source.normal(batch, k_heads, time_steps, head),
        angles.cos().to(source.dtype),
        angles.sin().to(source.dtype),
    )


def merge_features(
    dense: Tensor, sparse: Tensor, crossed: Tensor, gain: Tensor, bias: Tensor
) -> Tensor:
    return F.gelu(torch.cat((dense, sparse, crossed), -1) * gain + bias)


def merge_features_inputs(
    source: Source, rows: int, dense: int, sparse: int, crossed: int
) -> Tensors:
    width = dense + sparse + crossed
    return (
        source.normal(rows, dense),
        source.normal(rows, sparse),
        source.normal(rows, crossed),
        source.normal(width),
        source.normal(width),
    )


def dense_block(
    stem: Tensor,
    grown1: Tensor,
    grown2: Tensor,
    grown3: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor,
    bias: Tensor,
) -> Tensor:
    features = torch.cat((stem, grown1, grown2, grown3), 1)
    return torch.relu(F.batch_norm(features, mean, var, weight, bias, training=False))


def dense_block_inputs(
    source: Source, batch: int, stem: int, growth: int, height: int, width: int
) -> Tensors:
    channels = stem + 3 * growth
    grown = (source.normal(batch, growth, height, width) for _ in range(3))
    return (
        source.normal(batch, stem, height, width),
        *grown,
        source.normal(channels),
        source.uniform(channels, low=0.5, high=2.0),
        source.normal(channels),
        source.normal(channels),
    )


def skip_merge(decoded: Tensor, skipped: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    features = torch.cat((decoded, skipped), 1)
    return F.silu(F.group_norm(features, 32, weight, bias))


def skip_merge_inputs(
    source: Source, batch: int, channels: int, height: int, width: int
) -> Tensors:
    # 2:1 as in a decoder step; the join falls inside one of the 32 groups
    return (
        source.normal(batch, 2 * channels, height, width),
        source.normal(batch, channels, height, width),
        source.normal(3 * channels),
        source.normal(3 * channels),
    )


def decode_boxes(raw: Tensor, anchors: Tensor) -> Tensor:
    height, width = raw.shape[-2:]
    column = torch.arange(width, device=raw.device, dtype=raw.dtype)
    row = torch.arange(height, device=raw.device, dtype=raw.dtype)[:, None]
    x = (2 * raw[:, :, 0:1].sigmoid() - 0.5 + column) / width
    y = (2 * raw[:, :, 1:2].sigmoid() - 0.5 + row) / height
    size = (2 * raw[:, :, 2:4].sigmoid()).square() * anchors[:, :, None, None]
    found = raw[:, :, 4:5].sigmoid()
    scores = raw[:, :, 5:].sigmoid() * found
    return torch.cat((x, y, size, found, scores), 2)


def decode_boxes_inputs(
    source: Source, batch: int, anchors: int, classes: int, height: int, width: int
) -> Tensors:
    return (
        source.normal(batch, anchors, 5 + classes, height, width),
        source.uniform(anchors, 2, low=0.1, high=0.9),
    )


def ensemble_spread(
    first: Tensor, second: Tensor, third: Tensor, fourth: Tensor, gain: Tensor
) -> Tensors:
    members = torch.stack((first, second * gain, torch.tanh(third), F.softplus(fourth)))
    return members.mean(0), members.amax(0) - members.amin(0)


def ensemble_spread_inputs(source: Source, rows: int, columns: int) -> Tensors:
    members = (source.normal(rows, columns) for _ in range(4))
    return (*members, source.normal(columns))


WORKLOADS: tuple[Workload, ...] = (
    workload(
        "cat",
        "rotary",
        rotary,
        rotary_inputs,
        "rotary position embedding by half rotation of queries and keys; language models",
        tiny=(1, 4, 2, 33, 16),
        small=(1, 16, 4, 64, 64),
        cpu=(2, 16, 4, 768, 128),
        gpu=(8, 32, 8, 4096, 128),
    ),
    workload(
        "cat",
        "merge_features",
        merge_features,
        merge_features_inputs,
        "feature concat, then affine and activation; recommenders, wide-and-deep models",
        tiny=(17, 24, 8, 13),
        small=(64, 512, 256, 200),
        cpu=(4096, 512, 256, 200),
        gpu=(65536, 1024, 640, 384),
    ),
    workload(
        "cat",
        "dense_block",
        dense_block,
        dense_block_inputs,
        "concat of all earlier maps, then batch norm and relu; DenseNet image classifiers",
        tiny=(2, 16, 8, 7, 7),
        small=(2, 48, 16, 22, 22),
        cpu=(16, 160, 32, 28, 28),
        gpu=(128, 192, 32, 56, 56),
    ),
    workload(
        "cat",
        "skip_merge",
        skip_merge,
        skip_merge_inputs,
        "skip concat, then group norm and silu; U-Net decoders of diffusion models",
        tiny=(1, 32, 6, 6),
        small=(1, 64, 32, 32),
        cpu=(4, 64, 56, 56),
        gpu=(32, 320, 64, 64),
    ),
    workload(
        "cat",
        "decode_boxes",
        decode_boxes,
        decode_boxes_inputs,
        "concat of pieces with unlike formulas along the channels; object detector heads",
        tiny=(1, 3, 4, 5, 7),
        small=(1, 3, 16, 16, 80),
        cpu=(2, 3, 80, 80, 80),
        gpu=(64, 3, 80, 80, 80),
    ),
    workload(
        "cat",
        "ensemble_spread",
        ensemble_spread,
        ensemble_spread_inputs,
        "stack of members, then reduction over the stack; forecast ensembles, early exits",
        tiny=(9, 31),
        small=(128, 512),
        cpu=(1024, 1536),
        gpu=(8192, 8192),
    ),
)
