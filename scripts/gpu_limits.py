"""What limits each kernel of the workloads on a GPU, by its hardware counters.

    python scripts/gpu_limits.py [--dtype float32] [--output FILE] [NAME ...]

Runs one step of each workload, compiled by plain Inductor and by ranges, under Nsight Compute
(`ncu`). A kernel is limited by the unit that is busy the longest: memory, the L2 cache, the L1
cache with its load and store units, the issue of instructions, or the unit for transcendental
functions. Where none is busy for 60% of the time, it waits: the warps stall, mostly for what is
named.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# percent of what the unit can do at best
UNITS = {
    "memory": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "functions": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
}
# warps that wait for this, for each instruction issued
STALLS = {
    name: f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio"
    for name in (
        "long_scoreboard",
        "short_scoreboard",
        "lg_throttle",
        "mio_throttle",
        "math_pipe_throttle",
        "barrier",
        "wait",
        "not_selected",
        "no_instruction",
        "branch_resolve",
    )
}
OTHERS = {
    "us": "gpu__time_duration.sum",
    "registers": "launch__registers_per_thread",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "bytes": "dram__bytes.sum",
    "instructions": "smsp__inst_executed.sum",
}
METRICS = {**UNITS, **STALLS, **OTHERS}
BUSY = 60.0  # percent of the time, from which a unit is what limits
SCALES = {"us": 1.0, "usecond": 1.0, "ns": 1e-3, "nsecond": 1e-3, "ms": 1e3, "msecond": 1e3}
SCALES |= {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
MARK = "limits:"


def measured(dtype: str, names: Sequence[str], backends: Sequence[str]) -> None:
    """One step of each after it was compiled and timed; this is what ncu runs."""
    import torch

    from torch_piecewise.bench.variants import own_code
    from torch_piecewise.bench.workloads import WORKLOADS, bind

    for workload in WORKLOADS:
        if names and not any(name in workload.name for name in names):
            continue
        args = workload.inputs("cuda", getattr(torch, dtype), "gpu")
        for backend in backends:
            fn = torch.compile(own_code(workload.fn, backend), backend=backend, dynamic=False)
            step = bind(workload, fn, args)
            for _ in range(3):
                step()
            torch.cuda.synchronize()
            torch.cuda.nvtx.range_push(f"{workload.name} {backend}")
            torch.cuda.profiler.start()
            step()
            torch.cuda.synchronize()
            torch.cuda.profiler.stop()
            torch.cuda.nvtx.range_pop()


def counters(dtype: str, names: Sequence[str], backends: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each kernel, in the order of `measured`."""
    own = [sys.executable, __file__, "--steps", "--dtype", dtype]
    own += ["--backends", ",".join(backends), *names]
    asked = ",".join(METRICS.values())
    how = ["--profile-from-start", "off", "--clock-control", "none", "--nvtx", "--csv"]
    ended = subprocess.run(
        ["ncu", *how, "--page", "raw", "--print-nvtx-rename", "kernel", "--metrics", asked, *own],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = ended.stdout.splitlines()
    start = next((k for k, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise SystemExit(f"ncu gave no counters: {ended.stdout[-2000:]} {ended.stderr[-2000:]}")
    return list(csv.DictReader(lines[start:]))


def rows(raw: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    units, *kernels = raw
    for each in kernels:
        values = {}
        for name, metric in METRICS.items():
            text = each.get(metric, "").replace(",", "")
            values[name] = float(text or "nan") * SCALES.get(units.get(metric, ""), 1.0)
        pushed = next((v for k, v in each.items() if k and "Push" in k and v), "")
        yield {"kernel": each["Kernel Name"], "step": pushed, **values, "limit": limit(values)}


def limit(values: dict[str, float]) -> str:
    busiest = max(UNITS, key=lambda unit: values[unit])
    if values[busiest] >= BUSY:
        return busiest
    return "waits: " + max(STALLS, key=lambda stall: values[stall])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--backends", default="inductor,piecewise")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--steps", action="store_true", help="run the steps only, under ncu")
    parser.add_argument("names", nargs="*", help="parts of the names of workloads; none: all")
    asked = parser.parse_args()
    backends = asked.backends.split(",")
    if asked.steps:
        measured(asked.dtype, asked.names, backends)
        return
    found = list(rows(counters(asked.dtype, asked.names, backends)))
    for row in found:
        busy = " ".join(f"{unit} {row[unit]:.0f}%" for unit in UNITS)
        print(f"{row['step']} {row['kernel'][:50]}: {row['us']:.0f} us, {row['limit']} ({busy},")
        print(f"    {row['registers']:.0f} registers, {row['warps']:.0f}% of the warps)")
    if asked.output:
        asked.output.write_text(json.dumps({"dtype": asked.dtype, "kernels": found}, indent=1))


if __name__ == "__main__":
    main()
