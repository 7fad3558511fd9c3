"""`explain`: what was cut in a function or model, where, and why the rest was left."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from torch_piecewise.plan.plan import NestPlan, Plan

LINE = re.compile(r'File "(?P<file>.+)", line (?P<line>\d+), in (?P<where>.+)\n\s+(?P<code>.+)')


@dataclass(frozen=True)
class SourceLine:
    """A line of the user's code."""

    file: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.code}"


@dataclass(frozen=True)
class Explanation:
    """The plans of all graphs of one call, forward before backward.

    `lines` gives for each plan, and in it for each nest, the lines of the user's code behind it.
    """

    plans: tuple[Plan, ...]
    lines: tuple[tuple[tuple[SourceLine, ...], ...], ...] = field(repr=False)

    @property
    def nests(self) -> tuple[NestPlan, ...]:
        return tuple(n for p in self.plans for n in p.nests)

    @property
    def pieces(self) -> int:
        """Pieces of all nests together; a whole nest is one."""
        return sum(len(n.pieces) for n in self.nests)

    def __str__(self) -> str:
        return "\n".join(self._text())

    def _text(self) -> Iterator[str]:
        cut = sum(n.split for n in self.nests)
        yield (
            f"{len(self.plans)} graphs, {len(self.nests)} loop nests: {cut} cut, "
            f"{len(self.nests) - cut} whole; {self.pieces} pieces"
        )
        for number, (plan, lines) in enumerate(zip(self.plans, self.lines, strict=True)):
            yield f"\ngraph {number} ({plan.kind})"
            yield from (f"  {note.where}: {note}" for note in plan.notes)
            for nest, own in zip(plan.nests, lines, strict=True):
                yield from nest_text(nest, own)


def nest_text(nest: NestPlan, lines: tuple[SourceLine, ...] = ()) -> Iterator[str]:
    """One nest for reading: axes, what was done and why, seams, pieces, source lines."""
    axes = ", ".join(f"{a.name} in [0, {a.size}){' reduced' * a.reduce}" for a in nest.axes)
    yield f"  nest {nest.name}: {axes or 'no axes'}"
    done = f"cut into {len(nest.pieces)} pieces" if nest.split else "whole"
    yield f"    {done}: {nest.reason}"
    for seam in nest.seams:
        yield f"    seam at {seam.axis} = {seam.position} ({seam.cause})"
    if nest.split:
        for piece in nest.pieces:
            yield f"    piece {piece.name}: {piece.where}, by {piece.target}"
    for note in nest.notes:
        yield f"    left: {note}"
    for line in lines:
        yield f"    from {line}"


def plan_text(plan: Plan) -> str:
    """A plan alone, without source lines."""
    notes = (f"  {note.where}: {note}" for note in plan.notes)
    return "\n".join(
        [f"plan ({plan.kind})", *notes, *(t for n in plan.nests for t in nest_text(n))]
    )


def explain(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    options: Mapping[str, object] | None = None,
) -> Explanation:
    """Compile `fn(*args, **kwargs)` with the piecewise backend and say what was cut and why.

    `fn` may be a function, a module, or either compiled already. It is compiled and run once on
    copies of `args` and `kwargs`; where its result needs gradients the backward is run too, into
    nothing: no `.grad` changes. A module's buffers and the random state are put back. Raises what
    the compile raises, as OptionError for a wrong option.
    """
    from torch_piecewise.inductor.compile import compile_graph, config_of
    from torch_piecewise.inductor.versions import compile_apart, original

    fn = original(fn)
    config = config_of(options, None)
    plans: list[Plan] = []
    graphs: list[Mapping[str, SourceLine]] = []  # of the graph behind each plan

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        lines = _source_lines(gm)

        def report(plan: Plan) -> None:
            plans.append(plan)
            graphs.append(lines)

        return compile_graph(gm, inputs, config, report)

    compiled = compile_apart(fn, backend)
    with torch.random.fork_rng(devices=[]), _buffers_kept(fn):
        result = compiled(*_copied(tuple(args)), **_copied(dict(kwargs or {})))
        _run_backward(result)
    order = sorted(range(len(plans)), key=lambda k: plans[k].kind == "backward")
    return Explanation(
        tuple(plans[k] for k in order),
        tuple(tuple(_lines_of(n, graphs[k]) for n in plans[k].nests) for k in order),
    )


def _copied(tree: Any) -> Any:
    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or isinstance(leaf, torch.nn.Parameter):
            return leaf
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)

    return tree_map(one, tree)


class _buffers_kept:
    """Puts a module's buffers back: the same tensors under the same names, with their values."""

    def __init__(self, fn: Any):
        self.modules = list(fn.modules()) if isinstance(fn, torch.nn.Module) else []

    def __enter__(self) -> None:
        copies: dict[torch.Tensor, torch.Tensor] = {}
        self.saved = [dict(module._buffers) for module in self.modules]
        for buffer in (b for buffers in self.saved for b in buffers.values() if b is not None):
            copies.setdefault(buffer, buffer.detach().clone())
        self.copies = copies

    def __exit__(self, *_: object) -> None:
        for module, buffers in zip(self.modules, self.saved, strict=True):
            module._buffers.clear()
            module._buffers.update(buffers)
        with torch.no_grad():
            for buffer, value in self.copies.items():
                buffer.copy_(value)


def _run_backward(result: Any) -> None:
    """Run the backward of every output that has one, without touching any `.grad`."""
    outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    leaves = _leaves([t.grad_fn for t in outputs if t.grad_fn is not None])
    if outputs and leaves:
        ones = [torch.ones_like(t) for t in outputs]
        torch.autograd.grad(outputs, leaves, ones, allow_unused=True)


def _leaves(roots: list[Any]) -> list[torch.Tensor]:
    """The tensors at which the autograd graph would accumulate gradients."""
    found: list[torch.Tensor] = []
    seen: set[Any] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        stack.extend(parent for parent, _ in node.next_functions)
    return found


def _source_lines(gm: torch.fx.GraphModule) -> dict[str, SourceLine]:
    """For each node of Dynamo's graph the innermost line of the user's code that made it."""
    found = {}
    for node in gm.graph.nodes:
        frames = list(LINE.finditer(node.stack_trace or ""))
        own = [f for f in frames if "/torch/" not in f["file"].replace("\\", "/")] or frames
        if own:
            last = own[-1]
            found[node.name] = SourceLine(last["file"], int(last["line"]), last["code"].strip())
    return found


def _lines_of(nest: NestPlan, lines: Mapping[str, SourceLine]) -> tuple[SourceLine, ...]:
    wanted = {lines[name] for name in nest.origins if name in lines}
    return tuple(sorted(wanted, key=lambda s: (s.file, s.line)))
