"""Open workload suite: computations whose index ranges have seams.

A seam is a place along an axis where the formula for an element changes: the join of a
concatenation, the edge of a pad, the wrap of a roll, the limit of an index mask, the start of an
assigned slice. Each workload is one small kernel from a real field with at least one seam, written
the way a user would write it. The group 'control' holds kernels without seams: splitting must leave
those alone.

Scales: 'tiny' is for tests (< 50 ms, odd sizes), 'cpu' takes some milliseconds on two cores, 'gpu'
moves at least 256 MB in bfloat16.
"""

from __future__ import annotations

from torch_piecewise.bench.seams import cat, control, mask, pad, roll, slices
from torch_piecewise.bench.seams.base import GROUPS, SCALES, Source, Tensors, Workload

__all__ = ["GROUPS", "SCALES", "WORKLOADS", "Source", "Tensors", "Workload"]

WORKLOADS: tuple[Workload, ...] = (
    *cat.WORKLOADS,
    *pad.WORKLOADS,
    *roll.WORKLOADS,
    *mask.WORKLOADS,
    *slices.WORKLOADS,
    *control.WORKLOADS,
)
