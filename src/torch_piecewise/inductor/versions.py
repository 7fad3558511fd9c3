"""Everything that differs between the torch versions that are supported (2.11 to 2.14)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch._inductor import compile_fx as _compile_fx
from torch._inductor import lowering
from torch._inductor.codegen.cpp import CppKernel
from torch._inductor.virtualized import V


def size_hint(expr: sympy.Expr, fallback: int = 8192) -> int:
    """A likely value of a size, for estimates only (2.11 calls it `size_hint`)."""
    sizevars: Any = V.graph.sizevars
    if hasattr(sizevars, "optimization_hint"):
        return int(sizevars.optimization_hint(expr, fallback=fallback))
    return int(sizevars.size_hint(expr, fallback=fallback))


def lower_first(target: Any, lower: Callable[..., Any]) -> None:
    """Ask `lower` before Inductor's lowering of an operator; its None means Inductor's. Once only.

    A lowering that the user registered for the operator keeps its place.
    """
    if hasattr(lowering, "user_lowerings"):
        lowering.user_lowerings.setdefault(target, lower)
        return
    theirs = lowering.lowerings[target]  # 2.11
    if getattr(theirs, "first", None) is lower:
        return

    def lowered(*args: Any, **kwargs: Any) -> Any:
        mine = lower(*args, **kwargs)
        return theirs(*args, **kwargs) if mine is None else mine

    lowered.first = lower  # type: ignore[attr-defined]
    lowering.lowerings[target] = lowered


def argmax_takes_positions() -> bool:
    """Whether the C++ of an argmax can be given each element's position (2.11: it counts them)."""
    return "logical_index" in inspect.getsource(CppKernel.reduction)


def compiles_in_child_process() -> bool:
    """Whether TORCHINDUCTOR_FX_COMPILE_MODE has graphs lowered in another process."""
    mode = getattr(_compile_fx, "fx_compile_mode", None)
    return getattr(mode, "name", "NORMAL") == "SUBPROCESS" or bool(
        getattr(_compile_fx, "fx_compile_async", False)
    )


def compile_apart(fn: Any, backend: Callable[..., Any]) -> Any:
    """torch.compile whose compiles do not count towards the limit of recompiles of `fn`.

    2.11 can't keep them apart: there what was compiled for this call is counted as any other.
    """
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
        options: dict[str, Any] = {"isolate_recompiles": True}
        return torch.compile(fn, backend=backend, **options)
    return torch.compile(fn, backend=backend)


def original(fn: Any) -> Any:
    """The function or module behind what torch.compile returned; anything else is given back."""
    if isinstance(fn, torch._dynamo.eval_frame.OptimizedModule):
        return fn._orig_mod
    return getattr(fn, "_torchdynamo_orig_callable", fn)
