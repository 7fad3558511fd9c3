"""A kernel for a piece that is vectorised along the same axis as its whole nest.

Inductor chooses that axis from the indices it finds in a body. A piece has fewer of them, so it may
be vectorised along another axis: fine by itself, not inside an outer loop that other nests share.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from torch._inductor.codegen.cpp import CppKernelProxy
from torch._inductor.loop_body import LoopBody
from torch._inductor.virtualized import NullKernelHandler, V


def tiled_as(base: type[CppKernelProxy], bodies: Sequence[LoopBody]) -> type[CppKernelProxy]:
    """A class of kernels that shows Inductor `bodies`, of whole nodes, where it chooses tiles."""

    class Tiled(base):  # type: ignore[valid-type, misc]
        def codegen_functions(self, fn_list: Any, var_sizes_list: Any) -> None:
            shown = [_shown(fn, body) for fn, body in zip(fn_list, bodies, strict=True)]
            super().codegen_functions(shown, var_sizes_list)

    return Tiled


def _shown(fn: Callable[..., Any], body: LoopBody) -> Callable[..., Any]:
    """Generates with `fn`; where Inductor only looks, without a kernel, it sees `body`."""

    def run(_: Any, *index: Any) -> Any:
        return body(*index) if isinstance(V.kernel, NullKernelHandler) else fn(*index)

    return functools.partial(run, SimpleNamespace(_body=body))
