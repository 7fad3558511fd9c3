"""Getting at the code that a compile generates."""

from __future__ import annotations

import hashlib
import re
import types
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor.utils import run_and_get_code


def fresh(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a code object of its own, so that Dynamo compiles it anew."""
    code = fn.__code__.replace(co_name=fn.__name__ + "_")
    return types.FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)


def generated(
    fn: Callable[..., Any], *args: Any, backend: Any = "piecewise", **options: Any
) -> str:
    """All code generated for one call of a function, past every cache."""
    compiled = torch.compile(fresh(fn), backend=backend, options=options)
    with torch.compiler.config.patch(force_disable_caches=True):
        _, codes = run_and_get_code(compiled, *args)
    return "\n".join(codes)


def digest(code: str) -> str:
    """A hash of generated code without what differs from compile to compile."""
    code = re.sub(r"^# (AOT ID|Topologically|kernel path).*$", "", code, flags=re.MULTILINE)
    return hashlib.sha256(code.encode()).hexdigest()
