"""One part of a nest: its kernels, and the loops around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import sympy
from torch._inductor import metrics
from torch._inductor.codegen.cpp import CppKernel, CppKernelProxy
from torch._inductor.virtualized import V

from .accumulate import ScalarKernel, VectorKernel
from .tiling import NO_TILING, Tiling, accesses, preferred, vectorisable

Sizes = tuple[tuple[sympy.Expr, ...], tuple[sympy.Expr, ...]]
# A context in which the nodes have a part's bodies; called with whether they may decide about
# buffers that are written in place.
Limited = Callable[[bool], AbstractContextManager[None]]


@dataclass
class Run:
    """Loops over the inner axes with one kernel inside; `ranges` are (start, stop, step)."""

    kernel: CppKernel
    ranges: list[tuple[sympy.Expr, sympy.Expr, sympy.Expr]]
    tail: bool = False


class PartKernel(CppKernelProxy):
    """What one part needs: a scalar kernel, and vector kernels where that fits."""

    def __init__(self, group: Any, total: sympy.Expr):
        super().__init__(group)  # type: ignore[no-untyped-call]
        self.total = total  # elements of the whole reduction, all parts together
        self.tiling: Tiling = NO_TILING
        self.vectorisable, self.accesses = False, 0
        self.main: Any = None
        self.tail: Any = None
        self.functions: list[Any] = []
        self.var_sizes: list[Sizes] = []

    def codegen_functions(self, fn_list: list[Any], var_sizes_list: list[Sizes]) -> None:
        """The scalar kernel, and which tiling this part would like. Called by `codegen_nodes`."""
        self.functions, self.var_sizes = fn_list, var_sizes_list
        iterate, reduce = self._sizes()
        self.set_ranges(iterate, reduce)
        self.points = (*iterate, *reduce)  # as `ranges`, before Inductor renames size symbols
        # first, as in Inductor: it decides about buffers, for all others too
        self.scalar = self.generate(ScalarKernel)
        V.graph.removed_buffers |= self.scalar.removed_buffers
        V.graph.inplaced_to_remove |= self.scalar.inplaced_to_remove
        if self.picked_vec_isa and self.itervars:
            self.tiling = preferred(fn_list, var_sizes_list)
            self.vectorisable = vectorisable(fn_list)
            self.accesses = accesses(fn_list)

    def _sizes(self) -> Sizes:
        return max(self.var_sizes, key=lambda sizes: len(sizes[1]))

    def generate(self, cls: type[CppKernel], *args: Any) -> Any:
        """One kernel over this part's bodies (as `run` in `CppKernelProxy.codegen_functions`)."""
        group, reduction_group = self._sizes()
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
        if rest != 0 and tiling.vector_tail(self.points[tiling.axis]):
            self.tail = self.generate(VectorKernel, tiling.factor, tiling.axis, rest)

    def runs(self, tiling: Tiling, tail: bool, inner: int) -> Iterator[Run]:
        """This part's loops over the axes from number `inner` on.

        `tail` says which end of a tiled outer axis they are in.
        """
        zero, one = sympy.S.Zero, sympy.S.One
        ranges = [(zero, size, one) for size in self.ranges[inner:]]
        if self.main is None:
            yield Run(self.scalar, ranges)
        elif tiling.axis < inner:
            yield Run((self.tail or self.scalar) if tail else self.main, ranges)
        else:
            size, place = self.ranges[tiling.axis], tiling.axis - inner
            tiled = tiling.whole_vectors(size)
            step = sympy.Integer(tiling.factor)
            if tiled != 0:
                ranges[place] = (zero, tiled, step)
                yield Run(self.main, list(ranges))
            if tiled != size:
                ranges[place] = (tiled, size, step if self.tail else one)
                yield Run(self.tail or self.scalar, list(ranges), tail=True)
