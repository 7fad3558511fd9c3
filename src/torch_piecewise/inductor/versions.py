"""Everything that differs between the torch versions that are supported (2.11 to 2.14)."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MethodType
from typing import Any

import sympy
import torch
from torch._dynamo import convert_frame, eval_frame, pgo
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


def accepted(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments that a function has in this version."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in given.items() if name in known}


def argmax_takes_positions() -> bool:
    """Whether the C++ of an argmax can be given each element's position (2.11: it counts them)."""
    return "logical_index" in inspect.getsource(CppKernel.reduction)


def compiles_in_child_process() -> bool:
    """Whether TORCHINDUCTOR_FX_COMPILE_MODE has graphs lowered in another process."""
    mode = getattr(_compile_fx, "fx_compile_mode", None)
    return getattr(mode, "name", "NORMAL") == "SUBPROCESS" or bool(
        getattr(_compile_fx, "fx_compile_async", False)
    )


COMPILES_APART = "isolate_recompiles" in inspect.signature(torch.compile).parameters


def compile_apart(fn: Any, backend: Callable[..., Any], dynamic: bool | None = None) -> Any:
    """torch.compile as if nothing had been compiled yet, and with no trace of it afterwards.

    The sizes seen in other calls, which let Dynamo make a size dynamic, are set aside for each
    call, and other threads' compiles wait. Compiles do not count towards the limit of recompiles
    of `fn` where torch has COMPILES_APART; 2.11 counts them as any other.
    """
    apart: dict[str, Any] = {"isolate_recompiles": True} if COMPILES_APART else {}
    compiled: Callable[..., Any] = torch.compile(fn, backend=backend, dynamic=dynamic, **apart)

    def call(*args: Any, **kwargs: Any) -> Any:
        with _no_sizes_seen():
            return compiled(*args, **kwargs)

    return call


@contextmanager
def _no_sizes_seen() -> Iterator[None]:
    with convert_frame.compile_lock:
        saved = pgo._CODE_STATE, pgo._INIT_CODE_STATE
        # one object for both: Dynamo then finds no change to write to a profile
        pgo._CODE_STATE = pgo._INIT_CODE_STATE = defaultdict(pgo.CodeState)
        try:
            yield
        finally:
            pgo._CODE_STATE, pgo._INIT_CODE_STATE = saved


def original(fn: Any) -> Any:
    """The function, method or module behind what torch.compile returned; else `fn` itself.

    A module that was compiled in place would run what that compiled: here it is a method of its.
    """
    if isinstance(fn, eval_frame.OptimizedModule):
        fn = fn._orig_mod
    if isinstance(fn, torch.nn.Module):
        return fn if fn._compiled_call_impl is None else fn._call_impl
    if isinstance(fn, MethodType):
        return MethodType(original(fn.__func__), fn.__self__)
    return eval_frame.innermost_fn(fn)


@dataclass(frozen=True)
class Settings:
    """What torch.compile was told for an object; None is what it was not told."""

    options: Mapping[str, object] | None = None
    mode: str | None = None
    dynamic: bool | None = None


def settings(fn: Any) -> Settings:
    """How an object was compiled, as far as our backends can take it over.

    Those of Inductor's backend are options that ours passes on. Another backend's are not taken.
    """
    context = _context(fn)
    if context is None:
        return Settings()
    backend: Any = eval_frame.innermost_backend(context.callback)
    name = getattr(backend, "compiler_name", None)
    if name == "inductor":
        return Settings(dict(backend.config), None, context._dynamic)
    told = backend.kwargs if name in ("piecewise", "piecewise_debug") else {}
    return Settings(told.get("options"), told.get("mode"), context._dynamic)


def _context(fn: Any) -> Any:
    """Dynamo's record of one torch.compile, None where `fn` is not compiled."""
    if isinstance(fn, eval_frame.OptimizedModule):
        return fn.dynamo_ctx
    if isinstance(fn, torch.nn.Module):
        return _context(fn._compiled_call_impl)
    if isinstance(fn, MethodType):
        return _context(fn.__func__)
    if eval_frame.innermost_fn(fn) is fn:
        return None
    told = getattr(fn, "get_compiler_config", None)  # absent from what is only disabled
    cells = getattr(told, "__closure__", None) or ()
    contexts = (cell.cell_contents for cell in cells)
    return next((c for c in contexts if isinstance(c, eval_frame._TorchDynamoContext)), None)
