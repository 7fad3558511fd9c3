"""A graph that repeats blocks: one of them compiled, called with the inputs of each.

Parts have the strides of the traced graph at their ends, and every value is computed by the same
operators from the same values: results, their strides and memory they share are what they are where
the graph is compiled as one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch._inductor import config as inductor_config
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.virtualized import V
from torch.fx import GraphModule

from torch_piecewise.graph.blocks import CannotRepeat, parts
from torch_piecewise.graph.parts import Part
from torch_piecewise.graph.repeats import Repeats, find
from torch_piecewise.plan import sharing
from torch_piecewise.plan.plan import Reason

from . import scope
from .composite import stitched


@dataclass(frozen=True)
class Found:
    """The parts of a graph where some are equal, none where it stays whole; the reasons."""

    parts: Sequence[Part]
    notes: tuple[Reason, ...]


def compile_sharing(gm: GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    """The graph with equal blocks compiled once where that pays, else as Inductor compiles it."""
    found = _found(gm)
    if found.parts:
        return stitched(gm, found.parts, (), notes=found.notes, **kwargs)
    for note in found.notes:
        scope.note(note)
    compiled: Callable[..., Any] = compile_fx_inner(gm, inputs, **kwargs)
    return compiled


def _found(gm: GraphModule) -> Found:
    operators = sum(node.op == "call_function" for node in gm.graph.nodes)
    mine = scope.current()
    if mine is None or not mine.apply or mine.apart or sharing.too_small_to_look(operators):
        return Found((), ())
    repeats = find(gm.graph, sharing.LEAST_BLOCKS, sharing.LEAST_OPERATORS)
    if not repeats:
        return Found((), ())
    why = _setting()
    if why is not None:
        return Found((), sharing.not_shared("setting", repeats, why))
    left = {id(each): sharing.refused(each, _captured()) for each in repeats}
    notes = tuple(reason for reason in left.values() if reason is not None)
    chosen: list[Repeats] = [each for each in repeats if left[id(each)] is None]
    if not chosen:
        return Found((), notes)
    try:
        return Found(parts(gm, chosen), (*sharing.shared(chosen), *notes))
    except CannotRepeat as refused:
        return Found((), (*sharing.not_shared(refused.code, chosen, str(refused)), *notes))


def _setting() -> str | None:
    """A setting of Inductor's that is about the graph as a whole, in words; None without one."""
    if V.aot_compilation:
        return "what is packaged is one graph"
    for name in (
        "freezing",
        "cpp_wrapper",
        "fx_wrapper",
        "post_grad_custom_pre_pass",
        "post_grad_custom_post_pass",
    ):
        if getattr(inductor_config, name, None):
            return f"torch._inductor.config.{name} is for the graph as a whole"
    return None


def _captured() -> bool:
    """Whether the user asked for CUDA graphs, where calls cost nothing."""
    return bool(inductor_config.triton.cudagraphs)
