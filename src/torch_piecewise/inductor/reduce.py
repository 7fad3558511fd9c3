"""A nest whose reduction axes are cut: one kernel, in which every part adds to the same accumulators.

    for x0:                                # the iteration axes, as Inductor has them
      float tmp_acc0 = 0; ...              # one set of accumulators
      // piece 1 of 2: ...
      for x1 in the first range: ...       # the body folded for that range
      // piece 2 of 2: ...
      for x1 in the second range: ...
      store(tmp_acc0)                      # and what follows the reduction

Inductor writes the bodies, accumulators and suffixes; only the loops are written here. What makes
the parts fit together is that all of them name an operation's accumulators alike (`accumulate.py`)
and are vectorised along the same axis (`tiling.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import sympy
from torch._inductor import metrics
from torch._inductor.codegen.common import BracesBuffer
from torch._inductor.codegen.cpp import (
    CppKernel,
    CppKernelProxy,
    LoopLevel,
    LoopNest,
    cexpr_index,
    move_code_under_inner_loop,
)
from torch._inductor.virtualized import V

from .accumulate import Accumulators, ScalarKernel, VectorKernel
from .tiling import NO_TILING, Tiling, common, preferred, vectorisable
from .versions import size_hint

Sizes = tuple[tuple[sympy.Expr, ...], tuple[sympy.Expr, ...]]
Limited = Callable[[bool], AbstractContextManager[None]]  # the nodes with a part's bodies


@dataclass
class Run:
    """Loops over the reduction axes with one kernel inside; `ranges` are (start, stop, step)."""

    kernel: CppKernel
    ranges: list[tuple[sympy.Expr, sympy.Expr, sympy.Expr]]
    tail: bool = False


class PartKernel(CppKernelProxy):
    """What one part of the reduction needs: a scalar kernel, and vector kernels where that fits."""

    def __init__(self, group: Any, total: sympy.Expr):
        super().__init__(group)  # type: ignore[no-untyped-call]
        self.total = total  # elements of the whole reduction, all parts together
        self.tiling: Tiling = NO_TILING
        self.vectorisable = False
        self.main: Any = None
        self.tail: Any = None
        self.functions: list[Any] = []
        self.var_sizes: list[Sizes] = []

    def codegen_functions(self, fn_list: list[Any], var_sizes_list: list[Sizes]) -> None:
        """The scalar kernel, and which tiling this part would like. Called by `codegen_nodes`."""
        self.functions, self.var_sizes = fn_list, var_sizes_list
        group, reduction_group = max(var_sizes_list, key=lambda sizes: len(sizes[1]))
        self.set_ranges(group, reduction_group)
        # first, as in Inductor: it decides about buffers, for all others too
        self.scalar = self.generate(ScalarKernel)
        V.graph.removed_buffers |= self.scalar.removed_buffers
        V.graph.inplaced_to_remove |= self.scalar.inplaced_to_remove
        if self.picked_vec_isa and self.itervars:
            self.tiling = preferred(fn_list, var_sizes_list)
            self.vectorisable = vectorisable(fn_list)

    def generate(self, cls: type[CppKernel], *args: Any) -> Any:
        """One kernel over this part's bodies (as `run` in `CppKernelProxy.codegen_functions`)."""
        group, reduction_group = max(self.var_sizes, key=lambda sizes: len(sizes[1]))
        everywhere = ((group, reduction_group), ((*group, *reduction_group), ()))
        kernel = self.kernel_group.new_kernel(cls, *args)
        kernel.total = self.total
        with kernel:
            metrics.generated_kernel_count -= 1  # only the whole counts
            iterate, reduce = kernel.set_ranges(group, reduction_group)
            for fn, sizes in zip(self.functions, self.var_sizes, strict=True):
                if sizes in everywhere:
                    fn(iterate, reduce)
                else:
                    assert sizes == (group, ()), f"{sizes} beside {group}, {reduction_group}"
                    with kernel.write_to_suffix():
                        fn(iterate, ())
        return kernel

    def vectorise(self, tiling: Tiling) -> None:
        """Generate the kernels for a tiling that all parts share."""
        if not (tiling.factor and self.vectorisable):
            return
        metrics.generated_cpp_vec_kernel_count += 1
        size = self.ranges[tiling.axis]
        self.main = self.generate(VectorKernel, tiling.factor, tiling.axis)
        rest = size - tiling.whole_vectors(size)
        if rest != 0 and tiling.vector_tail(rest):
            self.tail = self.generate(VectorKernel, tiling.factor, tiling.axis, rest)

    def runs(self, tiling: Tiling, tail: bool) -> Iterator[Run]:
        """This part's loops; `tail` says which end of a tiled iteration axis they are in."""
        depth = self.reduction_depth or 0
        zero, one = sympy.S.Zero, sympy.S.One
        ranges = [(zero, size, one) for size in self.ranges[depth:]]
        if self.main is None:
            yield Run(self.scalar, ranges)
        elif tiling.axis < depth:
            yield Run((self.tail or self.scalar) if tail else self.main, ranges)
        else:
            size, place = self.ranges[tiling.axis], tiling.axis - depth
            tiled = tiling.whole_vectors(size)
            step = sympy.Integer(tiling.factor)
            if tiled != 0:
                ranges[place] = (zero, tiled, step)
                yield Run(self.main, list(ranges))
            if tiled != size:
                ranges[place] = (tiled, size, step if self.tail else one)
                yield Run(self.tail or self.scalar, list(ranges), tail=True)


@dataclass(frozen=True)
class Part:
    """One part to generate: its kernel, its nodes' bodies, and the comment before its loops."""

    limited: Limited
    comment: str


class ReductionKernel(CppKernelProxy):
    """The parts of one section as one kernel, for `KernelGroup.finalize_kernel`."""

    def __init__(
        self,
        group: Any,
        nodes: Sequence[Any],
        parts: Sequence[Part],
        sizes: Sizes,
        inplace: bool,
    ):
        """`sizes` are those of the whole section: iteration and reduction axes.

        `inplace`: its first part decides which buffers are written in place.
        """
        super().__init__(group)  # type: ignore[no-untyped-call]
        self.set_ranges(*sizes)
        self.comments = [part.comment for part in parts]
        total = sympy.Mul(*sizes[1])
        self.parts = [PartKernel(group, total) for _ in parts]
        for number, (part, kernel) in enumerate(zip(parts, self.parts, strict=True)):
            with part.limited(inplace and number == 0):
                kernel.codegen_nodes(list(nodes))
        self.tiling = common(self.parts, len(sizes[0]))
        for part, kernel in zip(parts, self.parts, strict=True):
            with part.limited(False):
                kernel.vectorise(self.tiling)
        self._make_loops(len(sizes[0]))

    def _make_loops(self, depth: int) -> None:
        loops = [LoopLevel(v, s) for v, s in zip(self.itervars[:depth], self.ranges[:depth])]
        self.loop_nest = LoopNest(loops or None)
        if self.tiling.factor and self.tiling.axis < depth:
            self.loop_nest.tile(self.tiling.axis, self.tiling.factor)
        self.loop_nest.set_kernel(self)
        self.kernels = [part.main or part.scalar for part in self.parts]

    def size_hint(self) -> int:
        """Points of the nest, from which Inductor decides about threads."""
        return size_hint(sympy.Mul(*self.ranges))

    def gen_body(self, code: BracesBuffer | None = None) -> BracesBuffer:
        """The loops over the reduction axes: Inductor calls this inside those it wrote."""
        assert code is not None
        tiling, depth = self.tiling, self.reduction_depth or 0
        if not tiling.factor or tiling.axis >= depth:
            self._section(code, tail=False)
            return code
        size, var = self.ranges[tiling.axis], self.itervars[tiling.axis]
        tiled = tiling.whole_vectors(size)
        if tiled != 0:
            code.writeline(f"if (C10_LIKELY({var} < {cexpr_index(tiled)}))")
            with code.indent():
                self._section(code, tail=False)
        if tiled != size:
            code.writeline(f"if (C10_UNLIKELY({var} >= {cexpr_index(tiled)}))")
            with code.indent():
                self._tail(code, var, tiled, size)
        return code

    def _tail(
        self, code: BracesBuffer, var: sympy.Symbol, start: sympy.Expr, stop: sympy.Expr
    ) -> None:
        """What is left of a tiled iteration axis: one masked vector, or one element at a time."""
        if all(part.tail for part in self.parts):
            self._section(code, tail=True)
            return
        inner = BracesBuffer()
        self._section(inner, tail=True)
        code.splice(move_code_under_inner_loop(inner, var, f"{var}_tail", start, stop))

    def _section(self, code: BracesBuffer, tail: bool) -> None:
        """Accumulators, the loops of every part, and what follows the reduction."""
        parts = [list(part.runs(self.tiling, tail)) for part in self.parts]
        used = [(part.tail if tail else part.main) or part.scalar for part in self.parts]
        lead = next((k for k in used if isinstance(k, VectorKernel)), used[0])
        shared = Accumulators.of(lead, used)
        with code.indent():
            code.splice(shared.prefix())
            tails = 0
            for comment, runs in zip(self.comments, parts, strict=True):
                code.writeline(comment)
                for run in runs:
                    masked = run.tail and isinstance(run.kernel, VectorKernel)
                    with shared.fresh_tail(code, masked and tails > 0):
                        _loops(code, run, self.itervars[self.reduction_depth or 0 :])
                    tails += masked
            code.splice(shared.suffix())


def _loops(code: BracesBuffer, run: Run, variables: Sequence[sympy.Symbol]) -> None:
    """`for` after `for`, and the kernel's body inside of them."""
    lines = []
    for var, (start, stop, step) in zip(variables, run.ranges, strict=True):
        level = LoopLevel(var, stop, offset=start, steps=step, is_reduction=True)
        lines.append(level.lines())
    if None in lines:
        return  # an empty range
    for line in lines:
        code.writelines(line)
    with code.indent():
        code.splice(run.kernel.gen_body())
