"""The main job on real input: a simulation over time and two blocks of networks, three backends."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from torch_piecewise.bench import machine, workloads
from torch_piecewise.bench.plans import plans_of
from torch_piecewise.bench.seams import Tensors
from torch_piecewise.bench.seams.roll import gray_scott_step
from torch_piecewise.bench.table import difference, speed, wide_console
from torch_piecewise.bench.timing import Samples, take_turns
from torch_piecewise.bench.variants import AGAIN, EAGER, PLAIN, compiled, piecewise
from torch_piecewise.bench.workloads import Step
from torch_piecewise.plan.plan import NestPlan, Plan

VARIANTS = (EAGER, PLAIN, AGAIN, piecewise())  # AGAIN is A/A: it gives the noise
TITLES = {"eager": "eager", "inductor": "torch.compile", "piecewise": "piecewise"}
SIDE = 512
ROUNDS = 25


@dataclass(frozen=True)
class Shown:
    """One computation as the demo shows it. `steps` are those that one sample takes."""

    name: str
    samples: Samples
    noise: float
    differences: dict[str, float]
    problems: tuple[str, ...]
    plans: tuple[Plan, ...]
    steps: int = 0


def run(steps: int = 1000, threads: int = 1, console: Console | None = None) -> bool:
    """Runs and prints all of it; False if a backend's result differs from eager mode's."""
    console = console or wide_console()
    torch.set_num_threads(threads)
    facts = machine.facts()
    cpu = facts["cpu"] or "unknown processor"
    console.print(f"torch {facts['torch']}, {cpu}, {facts['cores']} cores, {threads} thread(s)")
    started = time.perf_counter()
    with torch.no_grad():
        console.print(
            f"Gray-Scott reaction and diffusion, {SIDE} x {SIDE}, periodic: compiling ..."
        )
        simulation, concentration = simulate(steps)
        console.print(Text(picture(concentration)))
        console.print("rotary embedding and concat block: compiling ...")
        shown = (simulation, block("cat_rotary"), block("cat_dense_block"))
    console.print(_times(shown))
    console.print(_seams(shown))
    for each in shown:
        for problem in each.problems:
            console.print(Text(f"{each.name}: {problem}", style="red"))
    console.print(f"done in {time.perf_counter() - started:.0f} s")
    return not any(each.problems for each in shown)


def start(side: int) -> Tensors:
    """A calm field, with a square of the other substance seeded in the middle."""
    noise = 0.02 * torch.rand(side, side, generator=torch.Generator().manual_seed(0))
    middle = slice(side // 2 - side // 16, side // 2 + side // 16)
    u, v = 1.0 - noise, noise.clone()
    u[middle, middle] = 0.5
    v[middle, middle] += 0.25
    return u, v


def simulate(steps: int) -> tuple[Shown, Tensor]:
    """Each backend simulates the same steps from the same start, in turns of a few steps."""
    each_turn = max(1, steps // ROUNDS)
    began = start(SIDE)
    states: dict[str, Tensors] = {}

    def turns(name: str, step: Callable[..., Any]) -> Step:
        def advance() -> Tensors:
            u, v = states[name]
            for _ in range(each_turn):
                u, v = step(u, v)
            states[name] = (u, v)
            return u, v

        return advance

    runs = {}
    for variant in VARIANTS:
        step = compiled(variant, gray_scott_step)
        for _ in range(3):
            step(*began)  # compiles, and warms up
        states[variant.name] = began
        runs[variant.name] = turns(variant.name, step)
    # calls=1 and no warm-up: every call moves the simulation on
    samples = take_turns(runs, rounds=ROUNDS, warm_up=0, calls=1)
    shown = _shown("Gray-Scott step", samples, states, gray_scott_step, began, each_turn)
    return shown, states["piecewise"][1]


def block(name: str) -> Shown:
    """One workload at the scale of a CPU."""
    workload = workloads.find(name)
    args = workload.inputs("cpu", torch.float32, "cpu")
    runs = {v.name: workloads.bind(workload, compiled(v, workload.fn), args) for v in VARIANTS}
    results = {variant: run() for variant, run in runs.items()}
    samples = take_turns(runs, rounds=ROUNDS, seconds=4.0)
    title = {"cat_rotary": "rotary embedding", "cat_dense_block": "DenseNet concat block"}[name]
    return _shown(title, samples, results, workload.fn, args)


def _shown(
    name: str,
    samples: Samples,
    results: dict[str, Tensors],
    fn: Callable[..., Any],
    args: Tensors,
    steps: int = 0,
) -> Shown:
    want = results[EAGER.name]
    wrong = {v: workloads.disagreement(got, want) for v, got in results.items()}
    return Shown(
        name=name,
        samples=samples,
        noise=samples.noise(PLAIN.name, AGAIN.name),
        differences={v: workloads.largest_difference(r, want) for v, r in results.items()},
        problems=tuple(f"{v} differs from eager: {why}" for v, why in wrong.items() if why),
        plans=plans_of(fn, args),
        steps=steps,
    )


def picture(field: Tensor, rows: int = 24, columns: int = 64) -> str:
    """The middle of a field in shades of text, so that one sees what was simulated."""
    quarter = field.shape[0] // 4
    seen = field[quarter:-quarter, quarter:-quarter]
    small = torch.nn.functional.adaptive_avg_pool2d(seen[None, None], (rows, columns))[0, 0]
    shades = " .:-=+*#%@"
    levels = (small / small.max() * (len(shades) - 1)).round().long()
    return "\n".join("".join(shades[level] for level in row) for row in levels.tolist())


def _times(shown: Sequence[Shown]) -> Table:
    made = Table(
        title="three backends in turns; speed is over torch.compile, difference from eager"
    )
    for column in ("", "backend"):
        made.add_column(column, no_wrap=True)
    for column in ("ms", "speed", "pieces / nests", "difference", "steps/s"):
        made.add_column(column, justify="right")
    for each in shown:
        for name, title in TITLES.items():
            ms = each.samples.median(name) / max(1, each.steps)
            made.add_row(
                each.name if name == "eager" else "",
                title,
                f"{ms:.3f}",
                "1.00x" if name == PLAIN.name else speed(_speed(each, name), each.noise),
                _pieces(each.plans) if name == "piecewise" else "",
                "" if name == EAGER.name else difference(each.differences[name]),
                f"{1e3 / ms:.0f}" if each.steps else "",
            )
        made.add_section()
    return made


def _speed(shown: Shown, name: str) -> float:
    return shown.samples.ratio(PLAIN.name, name)


def _pieces(plans: Sequence[Plan]) -> str:
    nests = [nest for plan in plans for nest in plan.nests]
    return f"{sum(len(nest.pieces) for nest in nests)} / {len(nests)}"


def _seams(shown: Sequence[Shown]) -> Table:
    made = Table(title="where the seams were found", show_lines=True)
    for column in ("", "loop nest", "seams", "pieces", "why"):
        made.add_column(column)
    for each in shown:
        nests = [nest for plan in each.plans for nest in plan.nests]
        label = each.name
        for nest in nests:
            if nest.seams:
                made.add_row(*map(Text, (label, *_nest(nest))))
                label = ""
        for reason, count in Counter(str(n.reason) for n in nests if not n.seams).items():
            made.add_row(*map(Text, (label, f"{count} nests", "none", str(count), reason)))
            label = ""
    return made


def _nest(nest: NestPlan) -> tuple[str, str, str, str]:
    sizes = " x ".join(f"{axis.name}:{axis.size}" for axis in nest.axes)
    seams = "\n".join(f"{s.axis} = {s.position}: {s.cause}" for s in nest.seams)
    return sizes, seams, str(len(nest.pieces)), str(nest.reason)
