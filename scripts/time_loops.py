"""Times single loop nests whole and cut at every seam, beside what the cost model says of both.

    python scripts/time_loops.py [NAME ...]

The weights of `torch_piecewise.plan.cost` were fitted to such times: 1 thread, float32, a processor
with 8 floats in a vector. On another one the estimates are off by a common factor; what counts is
that the two gains of a line agree.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import arange, where

import torch_piecewise
from torch_piecewise.loops import boxes, find_seams, parse, restrict
from torch_piecewise.plan.cost import cost

H = W = 1024
LOOPS: dict[str, Callable[..., torch.Tensor]] = {
    "pad_inner": lambda x: F.pad(x, (1, 1))[:, :-2] * 2 + F.pad(x, (1, 1))[:, 2:],
    "pad_outer": lambda x: F.pad(x, (0, 0, 1, 1))[:-2] * 2 + F.pad(x, (0, 0, 1, 1))[2:],
    "pad_both": lambda x: F.pad(x, (1, 1, 1, 1))[:-2, :-2] + F.pad(x, (1, 1, 1, 1))[2:, 2:],
    "roll_inner": lambda x: x.roll(1, 1) + x,
    "roll_outer": lambda x: x.roll(1, 0) + x,
    "roll_both": lambda x: x.roll(1, 0) + x.roll(1, 1) + x.roll(-1, 0) + x.roll(-1, 1) - 4 * x,
    "cheap": lambda x: where(arange(W) < 300, x * 2 + 1, x - 1),
    "nested": lambda x: where(arange(W) < 9, x * 2, where(arange(W) >= W - 9, x * x, x + 3)),
    "exp": lambda x: where(arange(W) < 300, x.exp(), x),
    "exp_rows": lambda x: where(arange(H)[:, None] < 300, x.exp(), x),
    "tanh": lambda x: where(arange(W) < 900, x.tanh(), x * 2),
    "silu": lambda x: F.silu(x) * (arange(W) < 512),
    "sqrt": lambda x: where(arange(W) < 512, (x * x + 1).sqrt(), x),
    "sin": lambda x: where(arange(W) < 2, x.sin(), x.sin() + 1),
    "log": lambda x: where(arange(W) < 2, x, (x * x + 1).log()),
    "erf": lambda x: where(arange(W) < 2, x, F.gelu(x)),
    "pow": lambda x: where(arange(W) < 2, x, x.abs().pow(1.7)),
    "strided": lambda x: where(arange(W // 2) < 2, x[:, ::2], x[:, ::2] * 3),
    "transposed": lambda x: where(arange(W) < 2, x.t(), x.t() * 3) + x,
    "repeated": lambda x: x[:, : W // 4].repeat(1, 4) + 1,
    "short_rows": lambda x: F.pad(x.view(-1, 16), (1, 1))[..., :-2] + x.view(-1, 16),
}


def estimates(fn: Callable[..., torch.Tensor], x: torch.Tensor) -> tuple[float, float]:
    """Nanoseconds that the model gives the one nest of `fn`, whole and cut."""
    (planned,) = torch_piecewise.explain(fn, (x,), options={"split": "off"}).nests
    nest = parse(planned.text)
    pieces = (restrict(nest, box) for box in boxes(nest, find_seams(nest).cuts))
    return cost(nest, int), sum(cost(piece, int) for piece in pieces)


def times(fn: Callable[..., torch.Tensor], x: torch.Tensor) -> tuple[float, float]:
    """Nanoseconds of a call, whole and cut: medians of alternating rounds."""
    taken: dict[str, list[float]] = {"off": [], "seams": []}
    calls = {}
    for split in taken:
        # a frame of its own for each, so that they share no compiled code
        own = eval("lambda x: fn(x)", {"fn": fn})
        calls[split] = torch.compile(own, backend="piecewise", options={"split": split})
        calls[split](x)
    for _ in range(41):
        for split, call in calls.items():
            start = time.perf_counter()
            for _ in range(5):
                call(x)
            taken[split].append((time.perf_counter() - start) / 5 * 1e9)
    return statistics.median(taken["off"]), statistics.median(taken["seams"])


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    x = torch.randn(H, W)
    print(f"{'':12} {'whole µs':>16} {'cut µs':>16} {'gain':>12}   (measured, estimated)")
    for name, fn in LOOPS.items():
        if names and name not in names:
            continue
        (whole, cut), (whole_said, cut_said) = times(fn, x), estimates(fn, x)
        print(
            f"{name:12} {whole / 1e3:8.0f} {whole_said / 1e3:7.0f} {cut / 1e3:8.0f} "
            f"{cut_said / 1e3:7.0f} {whole / cut:6.2f} {whole_said / cut_said:5.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
