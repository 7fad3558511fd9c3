"""torch's database of operators: the ones that are swept, and one sample input of each.

The database makes its samples from sizes like 5 and 10. With these no vector loop would run, so
the samples are drawn with larger ones where the operator's samples allow that.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.testing import make_tensor
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import (
    OpInfo,
    ReductionOpInfo,
    SampleInput,
    UnaryUfuncInfo,
)
from torch.utils._pytree import tree_leaves

from .known import LEFT_OUT
from .seams import can_be_cut

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
LARGER = {"S": 37, "M": 41, "L": 67}  # a vector of 16, or of 32, and a rest
# otherwise minutes of drawing, and gradients of 1e35
USUAL_SIZES = ("grid_sampler_3d", "linalg.householder_product")
LARGEST = 60_000  # elements of an input
LARGEST_SUM = 5_000  # in float32 a sum of more, in whatever order, may be off by the tolerance
SUMMED = ("masked.std", "masked.var")
ENOUGH = 500
TRIED = 40  # samples looked at


def name_of(op: OpInfo) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


@cache
def database() -> dict[str, OpInfo]:
    return {name_of(op): op for op in op_db}


def swept() -> list[str]:
    """The operators that have an input in which a seam can be made; LEFT_OUT has the rest."""
    return [name for name in database() if name not in LEFT_OUT]


@dataclass(frozen=True)
class Sample:
    """One call of an operator: what `sample.input` is goes through a seam first.

    `meant` takes from a result what it is defined for: of eigenvectors their absolute values.
    """

    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    meant: Callable[[Any], Any]


def samples(op: OpInfo, dtype: torch.dtype, grad: bool) -> Iterator[Sample]:
    """The largest sample whose input can be cut; after it the largest of the usual sizes.

    An operator may need the usual sizes: the drawing of larger ones fails, or the call does.
    """
    for larger in (True, False) if name_of(op) not in USUAL_SIZES else (False,):
        found = None
        with contextlib.suppress(Exception):
            found = _largest(op, dtype, grad, larger)
        if found is not None:
            source = _widened(op, found.input, dtype)
            args, kwargs = tuple(found.args), dict(found.kwargs)
            yield Sample(source, args, kwargs, found.output_process_fn_grad)


def _widened(op: OpInfo, source: Any, dtype: torch.dtype) -> Any:
    """Another input where the samples of a whole class of operators are fixed, and small."""
    if isinstance(op, UnaryUfuncInfo):
        low, high = op.domain
    elif isinstance(op, ReductionOpInfo) and not op.name.startswith("masked."):
        low, high = None, None
    else:
        return source
    shape = (6, 67) if source.dim() < 3 else (4, 5, *source.shape[2:-1], 41)
    return make_tensor(
        shape, dtype=dtype, device="cpu", low=low, high=high, requires_grad=source.requires_grad
    )


def _largest(op: OpInfo, dtype: torch.dtype, grad: bool, larger: bool) -> SampleInput | None:
    seed()
    best, most = None, 0
    largest = LARGEST_SUM if name_of(op) in SUMMED else LARGEST
    with _sizes(LARGER if larger else {}):
        for each in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), TRIED):
            if most < _elements(each) <= largest:
                best, most = each, _elements(each)
            if most >= ENOUGH:
                break
    return best


def _elements(sample: SampleInput) -> int:
    """Elements of the input, 0 where a seam can't be made in it."""
    tensors = inputs_of(sample.input)
    return max((t.numel() for t in tensors if can_be_cut(t)), default=0)


def inputs_of(source: Any) -> list[Tensor]:
    return [t for t in tree_leaves(source) if isinstance(t, Tensor)]


def seed() -> None:
    """The database draws from all three."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


@contextlib.contextmanager
def _sizes(sizes: dict[str, int]) -> Iterator[None]:
    """The database's sizes, which are globals of several modules."""
    modules = [m for n, m in list(sys.modules.items()) if n.startswith("torch.testing._internal")]
    before = [(m, k, vars(m)[k]) for m in modules for k in sizes if isinstance(vars(m).get(k), int)]
    try:
        for module, key, _ in before:
            setattr(module, key, sizes[key])
        yield
    finally:
        for module, key, value in before:
            setattr(module, key, value)


def tolerance(op: OpInfo, dtype: torch.dtype) -> tuple[float, float]:
    """(relative, absolute): the most that torch's own tests grant this operator on a CPU."""
    relative, absolute = torch.testing._comparison.default_tolerances(dtype)
    for each in op.decorators or ():
        if getattr(each, "device_type", None) not in (None, "cpu"):
            continue
        for override in getattr(each, "decorators", [each]):
            if isinstance(override, toleranceOverride) and dtype in override.d:
                granted = override.d[dtype]
                relative = max(relative, granted.rtol)
                absolute = max(absolute, granted.atol)
    return relative, absolute
