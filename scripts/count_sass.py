"""How well `torch_piecewise.plan.instructions` counts: its estimates beside machine code.

    python scripts/count_sass.py [--dtype float32] [NAME ...]

Compiles the launches of the workloads for an H200, which need not be there, and counts what the
assembler made of them: for each way to run a launch the instructions of one lane in all ranges,
and the estimate. Code that runs only for rare values, as that of a sine for a large angle, is
counted too. Needs the tests' fake GPU: run it in a checkout, with Triton installed.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import sympy
import torch

from torch_piecewise.bench.workloads import WORKLOADS
from torch_piecewise.loops import parse
from torch_piecewise.loops.ir import Box, LoopNest
from torch_piecewise.loops.split import restrict
from torch_piecewise.plan.instructions import LANES, work

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.gpu.fake import code_of, compile_for_h200, kernels

INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+ )?([A-Z0-9_.]+)", re.M)


def instructions(compiled: Any) -> int:
    """Machine instructions of one lane, all branches of its code."""
    import triton

    disassembler = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        shown = subprocess.run(
            [disassembler, "-c", file.name], capture_output=True, text=True, check=True
        )
    return sum(1 for found in INSTRUCTION.findall(shown.stdout) if not found.startswith("NOP"))


def estimate(nests: Sequence[LoopNest], tiles: Sequence[int], warps: int, flat: bool) -> float:
    """The same by the estimate: `tiles` are the elements of a block for each nest."""
    total = 0.0
    for nest, elements in zip(nests, tiles, strict=True):
        points = math.prod(int(axis.size) for axis in nest.axes)
        lane = max(1, elements // (warps * LANES))
        total += lane * work(nest, int, lane, flat).issued / points
    return total


def launches(source: str) -> Iterator[tuple[str, LoopNest, list[LoopNest]]]:
    """The launches of a wrapper, each with its nest and its ranges."""
    lines = (line for line in source.splitlines() if "torch_piecewise plan of" in line)
    plans = [json.loads(line.split(": ", 1)[1]) for line in lines]
    cut = [p for p in plans if "axes" in p and p["reason"]["code"] == "gain"]
    cut = [p for p in cut if not any(axis["reduce"] for axis in p["axes"])]
    found = [kernel for kernel in kernels(source) if "def range_0" in kernel]
    for kernel, plan in zip(found, cut, strict=True):
        nest = parse(plan["text"])
        symbols = tuple(axis.symbol for axis in nest.axes)
        boxes = (
            Box(symbols, tuple((sympy.sympify(a), sympy.sympify(b)) for _, a, b in piece["box"]))
            for piece in plan["pieces"]
        )
        yield kernel, nest, [restrict(nest, box) for box in boxes]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("names", nargs="*", help="parts of the names of workloads; none: all")
    asked = parser.parse_args()
    for workload in WORKLOADS:
        if asked.names and not any(name in workload.name for name in asked.names):
            continue
        args = workload.inputs("meta", getattr(torch, asked.dtype), "gpu")
        for source in code_of(workload.fn, args, train=workload.train):
            for kernel, nest, ranges in launches(source):
                compare(workload.name, kernel, nest, ranges)


def compare(name: str, kernel: str, nest: LoopNest, ranges: Sequence[LoopNest]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for config, compiled in compile_for_h200(kernel, Path(folder)):
            tiles = config.kwargs
            size = [tiles[f"X{k}"] * tiles.get(f"Y{k}", 1) for k in range(len(ranges) + 1)]
            flat = size[-1] > 1  # ranges that a way does not use have tiles of one element
            counted = instructions(compiled)
            said = (
                estimate([nest], size[-1:], config.num_warps, True)
                if flat
                else estimate(ranges, size[:-1], config.num_warps, False)
            )
            how = "whole" if flat else f"{len(ranges)} ranges"
            print(f"{name}: {how}, {counted} counted, {said:.0f} estimated", flush=True)


if __name__ == "__main__":
    main()
