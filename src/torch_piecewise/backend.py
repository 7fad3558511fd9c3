"""What `torch.compile(backend="piecewise")` calls. Found by entry point, with no import.

Inductor is imported when the first graph arrives, so that listing backends stays cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .plan.plan import Plan


def piecewise(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, object] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph range by range; see the README for the options.

    Raises OptionError for an option that is unknown or ill-typed, UnsupportedTorch,
    UnsupportedSetting and CompilerMissing; Dynamo wraps them in BackendCompilerFailed.
    """
    from .inductor.compile import compile_graph, config_of

    return compile_graph(gm, example_inputs, config_of(options, mode))


def piecewise_debug(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, object] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """The smallest complete backend, to learn from: it shows a graph and its plan, no more.

    Dynamo hands over the graph of a piece of Python, with example inputs; a backend returns a
    callable that takes the same inputs and gives the same outputs. Here the graph is printed, then
    the plan of every forward and backward made from it, and the callable is plain Inductor's.
    """
    from .inductor.compile import compile_graph, config_of
    from .report.explanation import plan_text

    config = config_of(options, mode)
    print(gm.graph)

    def show(plan: Plan) -> None:
        print(plan_text(plan))

    return compile_graph(gm, example_inputs, config, show, apply=False)
