"""What `torch.compile(backend="piecewise")` calls. Found by entry point, with no import.

Inductor is imported when the first graph arrives, so that listing backends stays cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


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
