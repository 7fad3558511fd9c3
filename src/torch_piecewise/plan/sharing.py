"""Whether blocks that a graph repeats are compiled once: only where calling them costs nothing.

A call of a block costs some microseconds beyond its kernels. The estimate of what a block takes is
that of its library calls alone, on a fast machine: what is left as it is for no more than that
reason is small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.fx import Node

from torch_piecewise.graph.repeats import Repeats
from torch_piecewise.graph.signature import calls_library

from .plan import Reason

LEAST_BLOCKS = 4
LEAST_OPERATORS = 16
CALL = 8e3  # nanoseconds that the call of a block may cost
SHARE = 0.02  # of the time of a block, at most

# operations and bytes a nanosecond, by the kind of device
RATES = {"cpu": (200.0, 40.0), "cuda": (5e5, 3e3)}


def too_small_to_look(operators: int) -> bool:
    """Whether a graph has too few operators for blocks that could be shared."""
    return operators < LEAST_BLOCKS * LEAST_OPERATORS


def refused(found: Repeats, captured: bool) -> Reason | None:
    """Why these blocks stay in the graph; `captured` where their calls cost nothing at run time."""
    nodes = found.pattern.nodes
    if any("convolution" in str(node.target) for node in nodes):
        text = "convolutions choose their layouts for the whole graph"
        return _left("layout", found, text)
    taken = sum(map(_nanoseconds, nodes))
    if not captured and SHARE * taken < CALL:
        text = f"a block takes some {taken / 1e3:.0f} us, little beside what a call costs"
        return _left("small", found, text)
    return None


def said(found: Repeats) -> str:
    count = len(found.blocks)
    return f"{count} equal blocks of {len(found.pattern.nodes)} operators"


def _left(code: str, found: Repeats, text: str) -> Reason:
    return Reason(code, "reuse", f"{said(found)}, compiled in place: {text}")


def shared(found: Sequence[Repeats]) -> tuple[Reason, ...]:
    """What `explain` says of blocks that are compiled once."""
    texts = []
    for each in found:
        first, last = each.blocks[0].nodes[-1].name, each.blocks[-1].nodes[-1].name
        once = f"one compiled, {len(each.blocks) - 1} reused"
        texts.append(f"{said(each)}, ending at {first} to {last}: {once}")
    return tuple(Reason("reused", "reuse", text) for text in texts)


def not_shared(code: str, found: Sequence[Repeats], text: str) -> tuple[Reason, ...]:
    """The same, of blocks that can't be called one by one."""
    return tuple(_left(code, each, text) for each in found)


def _nanoseconds(node: Node) -> float:
    """What a library call takes at least; 0 for other nodes."""
    result = node.meta["val"]
    if not calls_library(node):
        return 0.0
    given = [n.meta["val"] for n in node.all_input_nodes]
    values = [v for v in (*given, *_tensors(result)) if isinstance(v, Tensor)]
    operations, bandwidth = RATES.get(values[0].device.type, RATES["cuda"])
    bytes_moved = sum(_count(v) * v.itemsize for v in values)
    work = 0.0
    if isinstance(result, Tensor):  # a matrix product
        matrices = [v for v in values[:-1] if v.ndim == result.ndim]
        work = 2.0 * _count(result) * _known(matrices[0].shape[-1]) if matrices else 0.0
    return max(work / operations, bytes_moved / bandwidth)


def _tensors(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _count(value: Tensor) -> int:
    return math.prod(map(_known, value.shape))


def _known(size: int | torch.SymInt) -> int:
    """A size that is not known counts as what it was when it was traced."""
    return size if isinstance(size, int) else int(size.node.hint or 1)
