"""Running a workload: its step, whether two results agree, and the bytes that a step must move.

args = workload.inputs("cpu", torch.float32, "cpu")
step = bind(workload, torch.compile(workload.fn), args)
outputs = step()  # forward, or forward and backward if workload.train
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torch_piecewise.bench.seams import GROUPS, SCALES, WORKLOADS, Source, Tensors, Workload

__all__ = [
    "GROUPS",
    "SCALES",
    "STENCILS",
    "WORKLOADS",
    "Step",
    "Workload",
    "as_tuple",
    "bind",
    "disagreement",
    "find",
    "largest_difference",
    "traffic",
]

Step = Callable[[], Tensors]

# Finite differences and lattices: what people run in float64 as well.
STENCILS = (
    "pad_heat_step",
    "pad_jacobi_step",
    "pad_total_variation",
    "pad_edge_smoothness",
    "roll_gray_scott",
    "roll_wave_step",
    "roll_lattice_boltzmann",
    "mask_edge_gradient",
    "slice_lid_driven",
)


def find(name: str) -> Workload:
    """The workload of this full name; KeyError where there is none."""
    for each in WORKLOADS:
        if each.name == name:
            return each
    raise KeyError(f"no workload is called {name!r}")


def as_tuple(outputs: Any) -> Tensors:
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def bind(workload: Workload, fn: Callable[..., Any], args: Tensors) -> Step:
    """A step without arguments: fn(*args), with its backward if workload.train.

    It returns the outputs, followed by the gradients of the arguments that require grad. The
    gradients that enter the backward are drawn here, once.
    """
    if not workload.train:

        def forward() -> Tensors:
            with torch.no_grad():
                return as_tuple(fn(*args))

        return forward

    leaves = [a for a in args if a.requires_grad]
    with torch.no_grad():
        results = as_tuple(workload.fn(*args))
    source = Source(leaves[0].device, leaves[0].dtype, seed=1)
    entering = [source.normal(*r.shape) if r.ndim else torch.ones_like(r) for r in results]
    del results

    def forward_backward() -> Tensors:
        outputs = as_tuple(fn(*args))
        gradients = torch.autograd.grad(outputs, leaves, entering)
        return tuple(output.detach() for output in outputs) + gradients

    return forward_backward


def disagreement(got: Sequence[Tensor], want: Sequence[Tensor]) -> str:
    """Why two results of a step differ, or '' if they agree to rounding."""
    if len(got) != len(want):
        return f"{len(got)} tensors instead of {len(want)}"
    for index, (a, b) in enumerate(zip(got, want)):
        loose = b.dtype in (torch.bfloat16, torch.float16)
        relative, absolute = (3e-2, 2e-2) if loose else (1e-4, 1e-5)
        size = b.abs().max().item() if b.is_floating_point() and b.numel() else 1.0
        try:
            torch.testing.assert_close(a, b, rtol=relative, atol=absolute * size)
        except AssertionError as error:
            return f"tensor {index}: " + " ".join(str(error).split())
    return ""


def largest_difference(got: Sequence[Tensor], want: Sequence[Tensor]) -> float:
    """The largest absolute difference of any two elements; 0.0 means equal in every value.

    Equal infinities, and not-a-number in the same place, count as equal.
    """
    largest = 0.0
    for a, b in zip(got, want, strict=True):
        x, y = a.double(), b.double()
        same = (x == y) | (x.isnan() & y.isnan())
        apart = (x - y).abs().masked_fill(same, 0.0)
        if apart.numel():
            largest = max(largest, float(apart.nan_to_num(nan=float("inf")).max()))
    return largest


def traffic(workload: Workload, dtype: torch.dtype, scale: str) -> int:
    """Bytes of one step that reads every input once and writes every result once."""
    args = workload.inputs("meta", dtype, scale)
    results = bind(workload, workload.fn, args)()
    return sum(t.numel() * t.element_size() for t in (*args, *results))
