"""Half precisions as Inductor computes them, settled for a whole nest before it is cut.

Inductor computes in float32 what a nest does in float16 or bfloat16, and rounds where a value is
used in a way that takes half precision as it is. A piece has other uses than the whole, since masks
and selections are gone: left to itself it would round values that the whole nest does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch._inductor.codegen.cpp import CppKernelProxy
from torch._inductor.scheduler import SchedulerNode


def in_float32(group: Any, nodes: Sequence[SchedulerNode]) -> Sequence[SchedulerNode]:
    """The nodes, with conversions written into their bodies; `group` is the kernel group.

    Inductor does the same before it generates a nest; doing so twice changes nothing.
    """
    proxy = CppKernelProxy(group)  # type: ignore[no-untyped-call]
    proxy.legalize_lowp_fp_dtype(nodes)  # type: ignore[no-untyped-call]
    return nodes
