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
import torch
from torch._inductor import config
from torch._inductor.codegen.common import BracesBuffer
from torch._inductor.codegen.cpp import CppKernelProxy, CppTile2DKernel, CppVecKernel
from torch._inductor.loop_body import LoopBody
from torch._inductor.utils import sympy_index_symbol
from torch._inductor.virtualized import NullKernelHandler, V, ops


class PieceVecKernel(CppVecKernel):
    """One vector a step; all of it may be added to one place of a scatter.

    Where threads add, Inductor wants a vector of places: that of a nest of its own is always one.
    """

    def store(self, name: Any, index: Any, value: Any, mode: Any = None) -> None:
        if mode == "atomic_add" and (config.cpp.dynamic_threads or self.num_threads != 1):
            place: Any = ops.index_expr(index, torch.int64).value
            if not place.is_vec:
                index = sympy_index_symbol(str(self.broadcast(place)))
        super().store(name, index, value, mode)  # type: ignore[no-untyped-call]


class PieceTileKernel(PieceVecKernel, CppTile2DKernel):
    """Blocks of two axes, transposed where that makes vectors."""


class PieceKernel(CppKernelProxy):
    """The loops of one piece.

    `tiled_like` are the bodies that the axis to vectorise is chosen for, if not for the piece's
    own. `comment` is written before the innermost code.
    """

    vec_kernel_cls = PieceVecKernel
    tile2d_kernel_cls = PieceTileKernel
    tiled_like: Sequence[LoopBody] = ()
    comment = ""

    def codegen_functions(self, fn_list: Any, var_sizes_list: Any) -> None:
        shown = shown_with_all_axes(fn_list, self.tiled_like)
        super().codegen_functions(shown, var_sizes_list)  # type: ignore[no-untyped-call]

    def gen_body(self, code: BracesBuffer | None = None) -> None:
        if self.comment and code is not None:
            code.writeline(self.comment)
        super().gen_body(code)  # type: ignore[no-untyped-call]


def shown_with_all_axes(functions: Sequence[Any], bodies: Sequence[LoopBody] = ()) -> list[Any]:
    """What `codegen_nodes` made of nodes, as functions in which every axis keeps its number.

    Where Inductor only looks it sees `bodies`, if any are given.
    """
    seen = bodies or [_body(fn) for fn in functions]
    return [_shown(fn, body) for fn, body in zip(functions, seen, strict=True)]


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
