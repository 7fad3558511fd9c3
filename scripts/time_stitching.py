"""Times how pieces become one result, and what the entry that calls them costs.

    python scripts/time_stitching.py [--threads 1,2] [--rounds 15]

"global" writes into slices of one buffer, "cat" joins what the pieces return with `torch.cat`;
both run the same pieces. "loops" has the same ranges inside each kernel. "beside", for two threads,
runs half of the pieces in each of two threads of Python, on one core each. The entry's cost is that
of its calls with pieces that do nothing. The chain is what Inductor can't fuse: softmax, layer_norm
and cumsum of a row, three times.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.nn.functional as F
from torch._inductor import config as inductor_config

import torch_piecewise.inductor.composite as composite
from torch_piecewise.bench.timing import take_turns
from torch_piecewise.bench.variants import own_code
from torch_piecewise.graph.cutting import returning
from torch_piecewise.graph.parts import Part
from torch_piecewise.graph.pieces import Into


def chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = F.layer_norm(torch.softmax(x, -1), (1024,)).cumsum(-1)
    return x


def light(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * 2 + 1


def heavy(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(torch.exp(x)).sin()


def in_ranges(fn: Callable[..., Any], count: int, stitch: str = "global") -> Callable[..., Any]:
    options = {"ranges": count, "stitch": stitch}
    return torch.compile(own_code(fn, f"{stitch}{count}"), backend="piecewise", options=options)


def joined(fn: Callable[..., Any], count: int, x: torch.Tensor) -> Callable[..., Any]:
    """The same pieces, each with a result of its own, and `torch.cat`."""
    heard: list[Sequence[Part]] = []
    kept = composite.compile_parts

    def compile_parts(parts: Sequence[Part], **kwargs: Any) -> Any:
        heard.append(parts)
        return kept(parts, **kwargs)

    composite.compile_parts = compile_parts
    try:
        with inductor_config.patch(force_disable_caches=True):  # what is cached has no parts
            in_ranges(own_code(fn, "heard"), count)(x)
    finally:
        composite.compile_parts = kept
    (parts,) = heard
    pieces = []
    for part in parts:
        (into,) = part.written
        inputs = tuple(each for each in part.inputs if not isinstance(each, Into))
        own = Part(part.name, returning(part), inputs, (into.node,), part.stage, part.range)
        with torch_piecewise_scope():
            pieces.append((composite.compile_part(own, is_inference=True), part.range))

    def call(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([piece([x[r.start : r.stop]])[0] for piece, r in pieces])

    return call


def beside(fn: Callable[..., Any], count: int, x: torch.Tensor) -> Callable[..., Any]:
    """Halves of the rows in threads of Python, each on one core, their results left apart."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    halves, half = x.chunk(2), in_ranges(own_code(fn, "half"), count // 2)
    for each in halves:
        half(each)
    torch.set_num_threads(threads)
    workers = ThreadPoolExecutor(2)
    return lambda _: list(workers.map(half, halves))


def step_of(way: Callable[..., Any], x: torch.Tensor) -> Callable[[], tuple[Any, ...]]:
    return lambda: (way(x),)


def torch_piecewise_scope() -> Any:
    from torch_piecewise.config import Config
    from torch_piecewise.inductor import scope

    return scope.entered(scope.Scope(Config()))


def entry_cost(count: int) -> float:
    """Microseconds that one piece costs beyond its own time: all of them do nothing."""
    x = torch.randn(4096, 64)
    kept = composite.compile_parts
    composite.compile_parts = lambda parts, **_: {p.name: lambda given: () for p in parts}
    try:
        step = in_ranges(light, count)
        one = in_ranges(own_code(light, "one"), 1)
        steps = {"many": lambda: (step(x),), "one": lambda: (one(x),)}
        with inductor_config.patch(force_disable_caches=True):
            taken = take_turns(steps, rounds=31)
    finally:
        composite.compile_parts = kept
    return 1e3 * (taken.median("many") - taken.median("one")) / (count - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    print(f"entry: {entry_cost(33):.2f} us a piece")
    for threads in map(int, asked.threads.split(",")):
        torch.set_num_threads(threads)
        for fn, rows in ((light, 256), (light, 8192), (heavy, 256), (heavy, 8192), (chain, 8192)):
            torch._dynamo.reset()
            x = torch.randn(rows, 1024)
            count = 64 if fn is chain else 8
            ways = {
                "inductor": torch.compile(own_code(fn, "plain")),
                "inductor again": torch.compile(own_code(fn, "again")),
                "global": in_ranges(fn, count),
                "streaming": in_ranges(fn, count, "streaming"),
                "loops": in_ranges(fn, count, "loops"),
                "cat": joined(fn, count, x),
            }
            want = ways["inductor"](x)
            for way in ways.values():
                torch.testing.assert_close(way(x), want)
            if threads == 2:
                ways["beside"] = beside(fn, count, x)
            steps = {name: step_of(way, x) for name, way in ways.items()}
            taken = take_turns(steps, rounds=asked.rounds)
            speeds = ", ".join(f"{n} {taken.ratio('inductor', n):.2f}" for n in list(ways)[1:])
            ms = taken.median("inductor")
            what = f"{fn.__name__} of {rows} rows in {count} ranges"
            print(f"{threads} threads, {what}: inductor {ms:.3f} ms; {speeds}", flush=True)


if __name__ == "__main__":
    main()
