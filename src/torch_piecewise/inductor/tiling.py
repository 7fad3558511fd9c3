"""The kernel of a piece: Inductor's, with the axis to vectorise chosen as for a whole nest.

Inductor chooses that axis from the indices in a body, with axes of size 1 left out: no nest of its
own has one. A box may be one row wide, so here every axis keeps its number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import sympy
from torch._inductor.codegen.cpp import CppKernelProxy
from torch._inductor.loop_body import LoopBody
from torch._inductor.utils import sympy_index_symbol
from torch._inductor.virtualized import NullKernelHandler, V


class PieceKernel(CppKernelProxy):
    """The loops of one piece.

    `chosen_from`: bodies of the whole nest to choose the vectorised axis from, in place of the
    piece's own. A piece has fewer indices, so the choice may differ: fine by itself, not inside an
    outer loop that other nests share.
    """

    chosen_from: Sequence[LoopBody] | None = None

    def codegen_functions(self, fn_list: Any, var_sizes_list: Any) -> None:
        bodies = self.chosen_from or [_body(fn) for fn in fn_list]
        shown = [_shown(fn, body) for fn, body in zip(fn_list, bodies, strict=True)]
        super().codegen_functions(shown, var_sizes_list)  # type: ignore[no-untyped-call]


def _body(fn: Any) -> LoopBody:
    """The body behind what `codegen_nodes` made of a node, with local buffers or without."""
    body = getattr(fn, "original_fn", fn).args[0]._body
    assert isinstance(body, LoopBody)
    return body


def _shown(fn: Callable[..., Any], body: LoopBody) -> Callable[..., Any]:
    """Generates with `fn`; where Inductor only looks, without a kernel, it sees `body`."""

    def run(_: Any, *index: Sequence[sympy.Expr]) -> Any:
        if not isinstance(V.kernel, NullKernelHandler):
            return fn(*index)
        first = len(index[0])
        numbered = [sympy_index_symbol(f"d{k}") for k in range(sum(map(len, index)))]
        return body(numbered[:first], *([numbered[first:]] if len(index) > 1 else ()))

    return functools.partial(run, SimpleNamespace(_body=body))
