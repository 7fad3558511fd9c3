"""A nest whose inner axes are cut: one kernel, in which all parts add to the same accumulators.

    for x0:                                # the outer axes, as Inductor has them
      float tmp_acc0 = 0; ...              # one set of accumulators
      // piece 1 of 2: ...
      for x1 in the first range: ...       # the body folded for that range
      // piece 2 of 2: ...
      for x1 in the second range: ...
      store(tmp_acc0)                      # and what follows the reduction

The inner axes are those of a reduction, or those that a nest does not share with the nests that
Inductor put under the same outer loop. Inductor writes the bodies, accumulators and suffixes; only
the inner loops are written here. The parts fit together since all of them name an operation's
accumulators alike (`accumulate.py`) and are vectorised along the same axis (`tiling.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import sympy
from torch._inductor import metrics
from torch._inductor.codegen.common import BracesBuffer
from torch._inductor.codegen.cpp import (
    CppKernelProxy,
    LoopLevel,
    LoopNest,
    move_code_under_inner_loop,
)
from torch._inductor.codegen.cpp_utils import cexpr_index
from torch._inductor.scheduler import SchedulerNode
from torch._inductor.utils import parallel_num_threads

from torch_piecewise.loops.idle import adds_nothing

from .accumulate import Accumulators, VectorKernel
from .limited import comment, limited
from .part import Limited, PartKernel, Run, Sizes
from .planning import Section, first_inner
from .tiling import common
from .versions import size_hint


@dataclass(frozen=True)
class Part:
    """One part to generate: its nodes' bodies, and the comment before its loops.

    A part that is `idle` adds nothing to any accumulator, as zeros do to a sum: it has no loops.
    """

    limited: Limited
    comment: str
    idle: bool = False


class PartsKernel(CppKernelProxy):
    """The parts of one section as one kernel, for `KernelGroup.finalize_kernel`.

    `sizes` are those of the whole section: iteration and reduction axes; the axes from number
    `inner` on are cut. `inplace`: the first part decides which buffers are written in place.
    """

    def __init__(self, group: Any, parts: Sequence[Part], sizes: Sizes, inner: int, inplace: bool):
        super().__init__(group)  # type: ignore[no-untyped-call]
        self.set_ranges(*sizes)
        self.points = (*sizes[0], *sizes[1])  # as `ranges`, before Inductor renames size symbols
        self.given, self.inner, self.inplace = parts, inner, inplace
        self.sharing: Any = None  # where threads share one reduction

    def codegen_nodes(self, nodes: list[Any]) -> None:
        """Generate the bodies of all parts, with the tiling that suits the largest."""
        total = sympy.Mul(*self.points[self.reduction_depth :])
        self.parts = [PartKernel(self.kernel_group, total) for _ in self.given]
        for number, (part, kernel) in enumerate(zip(self.given, self.parts, strict=True)):
            with part.limited(self.inplace and number == 0):
                kernel.codegen_nodes(nodes)
        self.tiling = common(self.parts, self.inner)
        for part, kernel in zip(self.given, self.parts, strict=True):
            with part.limited(False):
                kernel.vectorise(self.tiling)
        self.kernels = [part.main or part.scalar for part in self.parts]
        self.loop_nest = self._loops(self.inner)

    def _loops(self, count: int) -> LoopNest:
        """The first loops of the whole, before any cut."""
        loops = [LoopLevel(v, s) for v, s in zip(self.itervars[:count], self.ranges[:count])]
        for loop in loops[self.reduction_depth :]:
            loop.is_reduction = True
        nest = LoopNest(loops or None)
        if self.tiling.factor and self.tiling.axis < count:
            nest.tile(self.tiling.axis, self.tiling.factor)
        nest.set_kernel(self)
        return nest

    def size_hint(self) -> int:
        """Points of the nest, from which Inductor decides about threads."""
        return size_hint(sympy.Mul(*self.points))

    def codegen_loops(self, code: Any, worksharing: Any) -> None:
        """As Inductor, but where threads share the elements of a reduction."""
        threads, nest = parallel_num_threads(), cast(Any, self.loop_nest)
        # where nests share loops, the first of them holds those of all
        if nest.kernel is not self or not self._threads_share_reduction(threads):
            self.codegen_loops_impl(self.loop_nest, code, worksharing)
            return
        metrics.parallel_reduction_count += 1
        worksharing.close()
        self.sharing = (worksharing, threads)
        with code.indent():
            for loop in nest.loops or ():
                code.writelines(loop.lines())
            with code.indent():
                self.gen_body(code)

    def _threads_share_reduction(self, threads: int) -> bool:
        """Whether Inductor would, for the whole nest: few outer points, a long reduction."""
        whole = self._loops(len(self.ranges))
        at = self.decide_parallel_depth(whole.max_parallel_depth(), threads)
        return bool(at.parallel_depth and whole.loops and whole.loops[at.start_depth].is_reduction)

    def gen_body(self, code: BracesBuffer | None = None) -> BracesBuffer:
        """The inner loops: Inductor calls this inside the outer ones that it wrote."""
        assert code is not None
        tiling = self.tiling
        if not tiling.factor or tiling.axis >= self.inner:
            self._section(code, False, self.sharing)
            return code
        size, var = self.ranges[tiling.axis], self.itervars[tiling.axis]
        tiled = tiling.whole_vectors(size)
        if tiled != 0:
            code.writeline(f"if (C10_LIKELY({var} < {cexpr_index(tiled)}))")
            with code.indent():
                self._section(code, False, self.sharing)
        if tiled != size:
            code.writeline(f"if (C10_UNLIKELY({var} >= {cexpr_index(tiled)}))")
            with code.indent():
                self._tail(code, var, tiled, size)
        return code

    def _tail(
        self, code: BracesBuffer, var: sympy.Symbol, start: sympy.Expr, stop: sympy.Expr
    ) -> None:
        """What is left of a tiled outer axis: one masked vector, or one element at a time."""
        if all(part.tail for part in self.parts):
            self._section(code, True, self.sharing)
            return
        inner = BracesBuffer()
        self._section(inner, True, None)
        code.splice(move_code_under_inner_loop(inner, var, f"{var}_tail", start, stop))

    def _section(self, code: BracesBuffer, tail: bool, sharing: Any) -> None:
        """Accumulators, the loops of every part, and what follows the reduction.

        `sharing` is None, or the work sharing and number of threads that share the reduction.
        """
        used = [(part.tail if tail else part.main) or part.scalar for part in self.parts]
        lead = next((k for k in used if isinstance(k, VectorKernel)), used[0])
        shared = Accumulators.of(lead, used, sharing[1] if sharing else 0)
        with code.indent():
            code.splice(shared.prefix())
            if sharing:
                sharing[0].parallel(sharing[1])
                code.splice(shared.local_prefix())
            self._part_loops(code, tail, shared)
            if sharing:
                code.splice(shared.local_suffix())
                sharing[0].close()
            code.splice(shared.suffix())

    def _part_loops(self, code: BracesBuffer, tail: bool, shared: Accumulators) -> None:
        tails = 0
        for given, part in zip(self.given, self.parts, strict=True):
            code.writeline(given.comment)
            if given.idle:
                continue
            for run in part.runs(self.tiling, tail, self.inner):
                masked = run.tail and isinstance(run.kernel, VectorKernel)
                with shared.fresh_tail(code) if masked and tails else nullcontext():
                    self._write_loops(code, run, shared.threads)
                tails += masked

    def _write_loops(self, code: BracesBuffer, run: Run, threads: int) -> None:
        """`for` after `for`, and the kernel's body inside of them; `threads` share them."""
        reduce = self.inner == self.reduction_depth
        levels = [
            LoopLevel(var, stop, offset=start, steps=step, is_reduction=reduce)
            for var, (start, stop, step) in zip(
                self.itervars[self.inner :], run.ranges, strict=True
            )
        ]
        if threads and levels:
            levels[0].parallel = len(levels)
            for level in levels[1:]:
                level.collapsed = True
            run.kernel.update_stores_with_parallel_reduction()
        lines = [level.lines() for level in levels]
        if None in lines:
            return  # an empty range
        for line in lines:
            code.writelines(line)
        with code.indent():
            code.splice(run.kernel.gen_body())


def together(
    group: Any,
    nodes: Sequence[SchedulerNode],
    section: Section,
    first: int,
    count: int,
    inplace: bool,
    fused: int | None = None,
) -> PartsKernel:
    """The kernel of a section; its first piece has number `first` of `count`.

    `inplace`: it decides which buffers are written in place. `fused` is the number of outer loops
    that are shared with other nests.
    """
    last_box, nest = section[-1]
    inner = first_inner(nest, fused)
    parts = [
        Part(limited(nodes, piece), comment(first + k, count, box), adds_nothing(piece))
        for k, (box, piece) in enumerate(section)
    ]
    # together the parts cover every inner axis; the last one ends where the axes do
    outer = [axis.size for axis in nest.axes[:inner]]
    sizes = (*outer, *(stop for _, stop in last_box.ranges[inner:]))
    depth = sum(not axis.reduce for axis in nest.axes)
    return PartsKernel(group, parts, (sizes[:depth], sizes[depth:]), inner, inplace)
