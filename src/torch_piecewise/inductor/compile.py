"""Run Inductor on one graph inside a scope of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch._inductor import config as inductor_config
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.exc import InductorError, InvalidCxxCompiler

from torch_piecewise.config import Config
from torch_piecewise.errors import CompilerMissing, UnsupportedSetting, UnsupportedTorch
from torch_piecewise.plan.plan import Plan

from . import again, gate, scope
from .blocks import compile_sharing
from .composite import compile_in_ranges
from .inside import compile_inside
from .versions import compiles_in_child_process

Report = Callable[[Plan], None]


def config_of(options: Mapping[str, object] | None, mode: str | None) -> Config:
    """The checked options of one compile; raises OptionError."""
    UnsupportedTorch.check(torch.__version__)
    return Config.of(
        options,
        mode,
        inductor_options=inductor_config.get_config_copy(),
        inductor_types=getattr(inductor_config, "get_type", None),
        modes=tuple(torch._inductor.list_mode_options()),
    )


def compile_graph(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    config: Config,
    report: Report | None = None,
    apply: bool = True,
    apart: bool = False,
) -> Callable[..., Any]:
    """Compile a graph of Dynamo's; `report` hears the plan of each graph made from it.

    A backward is compiled and reported when it is first needed. `apply` False only plans: the code
    is Inductor's own. `apart` makes a kernel of each nest. Raises UnsupportedSetting and
    CompilerMissing; what Inductor raises passes through.
    """
    if compiles_in_child_process():
        raise UnsupportedSetting.of(
            "TORCHINDUCTOR_FX_COMPILE_MODE",
            "SUBPROCESS",
            "graphs are lowered in a process that has no scope of ours",
            'unset it, or compile with backend="inductor"',
        )
    gate.install()
    traces = {n.name: n.stack_trace for n in gm.graph.nodes if n.stack_trace}

    def inner(gm: torch.fx.GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Any:
        gate.install()  # a backward may come after somebody put back what was there before
        mine = scope.Scope(config, report, apply, apart, traces)
        with scope.entered(mine), _compiler_named():
            if config.ranges is not None and config.stitch == "loops":
                return compile_inside(gm, inputs, config, **kwargs)
            if config.ranges is not None:
                return compile_in_ranges(gm, config, **kwargs)
            if config.reuse == "blocks":
                return compile_sharing(gm, inputs, **kwargs)
            return compile_fx_inner(gm, inputs, **kwargs)

    patches = {
        **(torch._inductor.list_mode_options(config.mode) if config.mode else {}),
        **({"aot_inductor.debug_symbols": True} if config.piece_functions else {}),
        **config.patches(),
    }
    # this scope is for the look-up in AOTAutograd's cache
    ranges = config.ranges is not None
    timed = again.counted(config.key() + gm.code, example_inputs) if ranges else nullcontext()
    with scope.entered(scope.Scope(config, report, apply, apart)), _compiler_named(), timed:
        compiled = compile_fx(gm, example_inputs, inner_compile=inner, config_patches=patches)
    assert callable(compiled)
    return compiled


@contextmanager
def _compiler_named() -> Iterator[None]:
    """Turns what Inductor raises for a missing compiler into CompilerMissing."""
    try:
        yield
    except InductorError as error:  # raised while code was generated, wrapped
        if isinstance(error.inner_exception, InvalidCxxCompiler):
            raise CompilerMissing.of(inductor_config.cpp.cxx, error.inner_exception) from error
        raise
    except InvalidCxxCompiler as error:  # raised while the cache key was made
        raise CompilerMissing.of(inductor_config.cpp.cxx, error) from error
