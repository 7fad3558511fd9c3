"""Kernels whose accumulators go by the number of the operation, so that kernels can share them.

Inductor names a reduction's accumulators in the order in which a kernel meets its reductions, and
lets two reductions of the same value be one. What is the same value differs from part to part (both
may be constant in one of them), so here each operation has accumulators of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import BracesBuffer
from torch._inductor.codegen.cpp import CppKernel
from torch._inductor.utils import IndentedBuffer
from torch.utils._ordered_set import OrderedSet

from .piece import PieceVecKernel


@dataclass(frozen=True)
class Helper:
    """An object beside an accumulator that keeps long float sums and variances precise.

    `steps` is how many values it will take at most, which decides how deep its stack is.
    """

    reduction_type: str
    accumulator: str
    name: str
    steps: sympy.Expr
    dtype: torch.dtype
    scalar: bool

    @property
    def result(self) -> str:
        return self.accumulator if self.scalar else f"{self.accumulator}_vec"

    def final(self, local: str = "") -> str:
        """The line that adds what the helper holds to its accumulator."""
        result = self.result + local
        if self.reduction_type == "welford_reduce":
            return f"{result} = welford_combine({result}, &{self.name});"
        return f"{result} = cascade_sum_final(&{self.name});"


class _Accumulating(CppKernel):
    """Mixin over Inductor's kernels. `total` counts the elements of the whole reduction."""

    total: sympy.Expr = sympy.S.Zero

    def __init__(self, *args: Any):
        super().__init__(*args)  # type: ignore[no-untyped-call]
        self.helpers: list[Helper] = []

    def reduction(self, dtype: Any, src_dtype: Any, reduction_type: Any, value: Any) -> Any:
        for cse in (self.reduction_cse, self.welford_helper_cse, self.cascade_helper_cse):
            cse.invalidate(OrderedSet())
        self.reduction_cse.reduction_cache.clear()
        return super().reduction(dtype, src_dtype, reduction_type, value)  # type: ignore

    def need_use_acc_helper(self, reduction_type: Any, dtype: Any, use_scalar: bool) -> bool:
        """As Inductor decides for the whole: a part of it must not decide by its own size."""
        own = self.call_ranges
        assert own is not None and self.reduction_depth is not None
        self.call_ranges = (*own[: self.reduction_depth], self.total)
        try:
            return bool(super().need_use_acc_helper(reduction_type, dtype, use_scalar))  # type: ignore
        finally:
            self.call_ranges = own

    def _use_acc_helper(
        self,
        reduction_type: Any,
        acc: Any,
        helper_val: Any,
        helper_range: Any,
        dtype: Any,
        use_scalar: bool = False,
    ) -> None:
        """Only noted: `Accumulators` declares one helper for all kernels."""
        self.helpers.append(
            Helper(reduction_type, str(acc), str(helper_val), helper_range, dtype, use_scalar)
        )


class ScalarKernel(_Accumulating):
    """One element a step."""


class VectorKernel(_Accumulating, PieceVecKernel):
    """One vector a step, the last one masked where there is a `tail_size`."""


@dataclass
class Accumulators:
    """What the kernels of one loop nest accumulate into; `lead` knows how all of it is declared.

    `lead` is a vector kernel where there is any: those declare the scalar accumulators as well.
    Where `threads` share the reduction each has accumulators of its own, their names with `_local`.
    """

    lead: _Accumulating
    helpers: tuple[Helper, ...]
    threads: int = 0

    @staticmethod
    def of(lead: _Accumulating, kernels: Sequence[_Accumulating], threads: int) -> Accumulators:
        """`kernels` holds one kernel of each part; `threads` is 0 where none are shared."""
        steps: dict[str, sympy.Expr] = {}
        for kernel in kernels:
            for helper in kernel.helpers:
                steps[helper.name] = steps.get(helper.name, sympy.S.Zero) + helper.steps
        helpers = tuple(replace(h, steps=steps[h.name]) for h in lead.helpers)
        return Accumulators(lead, helpers, threads)

    def prefix(self) -> IndentedBuffer:
        """The declarations."""
        code = BracesBuffer()
        for declare in self.lead.reduction_prefix_generators:
            code.splice(declare(None))
        if self.threads:
            code.splice(self.lead.parallel_reduction_prefix)
        else:
            code.writelines([self._declaration(helper, None) for helper in self.helpers])
        return code

    def suffix(self) -> IndentedBuffer:
        """What follows the loops: the values, and all that is computed from them."""
        code = BracesBuffer()
        if self.threads:
            code.splice(self.lead.parallel_reduction_suffix)
        else:
            code.writelines([helper.final() for helper in self.helpers])
        code.splice(self.lead.reduction_suffix)
        return code

    def local_prefix(self) -> IndentedBuffer:
        """What each thread declares."""
        code = BracesBuffer()
        threads = sympy.Integer(self.threads)
        code.writelines([self._declaration(helper, threads) for helper in self.helpers])
        code.splice(self.lead.local_reduction_init)
        return code

    def local_suffix(self) -> IndentedBuffer:
        """What each thread leaves for the others."""
        code = BracesBuffer()
        code.writelines([helper.final("_local") for helper in self.helpers])
        code.splice(self.lead.local_reduction_stores)
        return code

    def _declaration(self, helper: Helper, threads: Any) -> str:
        line: str = self.lead._acc_helper_init(
            helper.reduction_type, helper.name, helper.steps, helper.dtype, threads, helper.scalar
        )
        # a static object would be one for all threads
        return line.removeprefix("static ") if self.threads else line

    @contextmanager
    def fresh_tail(self, code: BracesBuffer) -> Iterator[None]:
        """Around the masked end of a part where another part has had one before.

        A vectorised variance counts its elements for all lanes together: in one accumulator the
        mask must always be the same. So this one starts anew and is combined with the one before.
        """
        local = "_local" if self.threads else ""
        kept = [h.result + local for h in self.helpers if self._is_masked_variance(h)]
        if not kept:
            yield
            return
        with code.indent():
            for name in kept:
                code.writeline(f"auto earlier_{name} = {name};")
                code.writeline(f"{name} = decltype(earlier_{name})();")
            yield
            for name in kept:
                code.writeline(f"{name} = welford_combine(earlier_{name}, {name});")

    @staticmethod
    def _is_masked_variance(helper: Helper) -> bool:
        masked = helper.accumulator.startswith("masked_")
        return helper.reduction_type == "welford_reduce" and masked
