"""A graph compiled as one, with the loops of its kernels cut at the user's ranges."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch._inductor.compile_fx import compile_fx_inner
from torch.fx import GraphModule, Node

from torch_piecewise.config import Config
from torch_piecewise.errors import RangeError
from torch_piecewise.graph.axes import Range, named, shape
from torch_piecewise.graph.cutting import gradients, returned, target_of
from torch_piecewise.graph.ranges import undivided
from torch_piecewise.plan.plan import NestPlan, Reason

from . import facts, scope
from .along import Along, as_expr
from .given import GIVEN, LEFT


def compile_inside(
    gm: GraphModule, inputs: Sequence[Any], config: Config, **kwargs: Any
) -> Callable[..., Any]:
    """The graph as Inductor compiles it, its loops cut along the dim of its first output.

    A backward is cut along the same dim of the gradient of that output where it has it. Raises
    RangeError where ranges do not fit, or where no loop of a forward could be cut.
    """
    mine = scope.current()
    assert mine is not None and config.ranges is not None
    backward = bool(kwargs.get("is_backward"))
    results = gradients(gm) if backward else returned(gm.graph)
    try:
        target, dim, ranges = target_of(results, config.ranges, config.dim)
    except RangeError as error:
        if not backward:
            raise
        return _as_it_is(gm, inputs, str(error), **kwargs)
    why = undivided(ranges, dim)
    if why is not None:
        return _as_it_is(gm, inputs, why, **kwargs)
    output = None if backward else next(k for k, r in enumerate(results) if r is target)
    bounds = (*(as_expr(r.start) for r in ranges), as_expr(shape(target)[dim]))
    mine.along = Along(bounds, dim, output, target.name if backward else "")
    compiled: Callable[..., Any] = compile_fx_inner(gm, inputs, **kwargs)
    if not backward:
        _check_cut(compiled, _call_of(target), dim, ranges, config)
    return compiled


def _call_of(node: Node) -> Node:
    """The call that a node takes one of several values of, or the node itself."""
    source = node.args[0] if node.target is operator.getitem else node
    return source if isinstance(source, Node) else node


def _as_it_is(
    gm: GraphModule, inputs: Sequence[Any], why: str, **kwargs: Any
) -> Callable[..., Any]:
    mine = scope.current()
    assert mine is not None
    mine.notes.append(Reason(LEFT, "graph", f"no loop is cut at the ranges given: {why}"))
    compiled: Callable[..., Any] = compile_fx_inner(gm, inputs, **kwargs)
    return compiled


def _check_cut(
    compiled: Any, target: Node, dim: int, ranges: Sequence[Range], config: Config
) -> None:
    """That a loop was cut is asked of the code, which may be from a cache."""
    source = getattr(compiled, "source_code", None)
    if not isinstance(source, str):
        return  # what was compiled is a file, for another process
    plan = facts.read(source)
    nests = plan.nests if plan is not None else ()
    if any(nest.reason.code == GIVEN for nest in nests):
        return
    where, why = named(target), Reason("no-loop", "", "no loop of Inductor's computes it")
    if nests:
        own = (nest for nest in nests if target.name in nest.origins)
        where, why = _in_the_way(next(own, nests[-1]))
    hint = "Take another dim"
    raise RangeError.in_the_way(config.ranges, dim, ranges, where, why.text, why.code, hint)


def _in_the_way(nest: NestPlan) -> tuple[str, Reason]:
    operators = f" of {', '.join(nest.origins)}" if nest.origins else ""
    note = next((note for note in nest.notes if note.code == LEFT), nest.reason)
    return f"nest {nest.name}{operators}", note
