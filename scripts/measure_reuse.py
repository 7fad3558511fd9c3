"""Compile times and speed of a model with equal layers: compiled once, and each by itself.

    python scripts/measure_reuse.py [--layers 24] [--repeats 3] [--rounds 15] [--device cpu]

A compile is that of a fresh process with empty caches: seconds from `torch.compile` to the end of
the first step. "deduplicated" is Inductor with `torch._dynamo.config.use_graph_deduplication`.
Speeds are medians of alternating rounds in one process, over plain Inductor's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

from torch_piecewise.bench.models import layered_llama
from torch_piecewise.bench.timing import take_turns, waiter
from torch_piecewise.bench.variants import own_code

WAYS = ("inductor", "piecewise", "reuse off", "deduplicated")


def compiled(way: str, module: Callable[..., Any]) -> Callable[..., Any]:
    if way in ("inductor", "inductor again", "deduplicated"):
        return torch.compile(module)
    return torch.compile(
        module, backend="piecewise", options={"reuse": "blocks" if way == "piecewise" else False}
    )


def seconds(way: str, asked: argparse.Namespace) -> float:
    """In a process of its own, with empty caches."""
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": cache}
        command = [sys.executable, __file__, "--once", way, "--layers", str(asked.layers)]
        command += ["--device", asked.device]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def once(way: str, asked: argparse.Namespace) -> None:
    torch._dynamo.config.use_graph_deduplication = way == "deduplicated"
    module, inputs = layered_llama(asked.layers, asked.device)
    wait = waiter(asked.device)
    with torch.no_grad():
        start = time.perf_counter()
        compiled(way, module)(*inputs)
        wait()
    print(json.dumps(time.perf_counter() - start))


def speeds(asked: argparse.Namespace) -> None:
    module, inputs = layered_llama(asked.layers, asked.device)

    def forward(*given: torch.Tensor) -> torch.Tensor:
        return module(*given)  # type: ignore[no-any-return]

    ways = {}
    with torch.no_grad():
        for way in ("inductor", "inductor again", "piecewise", "deduplicated"):
            torch._dynamo.config.use_graph_deduplication = way == "deduplicated"
            ways[way] = compiled(way, own_code(forward, way.replace(" ", "_")))
            ways[way](*inputs)
        want = ways["inductor"](*inputs)
        for way in ways.values():
            torch.testing.assert_close(way(*inputs), want)
        steps = {name: (lambda way=way: (way(*inputs),)) for name, way in ways.items()}
        taken = take_turns(steps, rounds=asked.rounds, device=asked.device)
    print(f"inductor {taken.median('inductor'):.1f} ms; speeds over it:")
    for way in list(ways)[1:]:
        print(f"  {way}: {taken.ratio('inductor', way):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--once", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.once:
        once(asked.once, asked)
        return
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(asked.repeats):
        for way in WAYS:
            taken[way].append(seconds(way, asked))
            print(f"{way}: {taken[way][-1]:.1f} s", flush=True)
    plain = statistics.median(taken["inductor"] or [1.0])
    for way, each in taken.items():
        if each:
            median = statistics.median(each)
            print(f"cold compile, {way}: {median:.1f} s, {median / plain:.2f} of plain Inductor")
    speeds(asked)


if __name__ == "__main__":
    main()
