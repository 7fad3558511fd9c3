"""Scheduler nodes with the bodies of one piece, for the time of generating it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from torch._inductor.loop_body import LoopBody
from torch._inductor.scheduler import SchedulerNode

from torch_piecewise.loops.ir import Box, LoopNest

from .adapter import to_body
from .part import Limited


def limited(nodes: Sequence[SchedulerNode], piece: LoopNest) -> Limited:
    """A context, to be entered as often as needed, in which the nodes have the piece's bodies."""
    return partial(_limited_to, nodes, [to_body(piece, body) for body in piece.bodies])


def comment(number: int, count: int, box: Box) -> str:
    """Says which piece follows. No buffer names: equal kernels must stay equal text."""
    return f"// piece {number + 1} of {count}: {box}"


@contextmanager
def _limited_to(
    nodes: Sequence[SchedulerNode], bodies: Sequence[LoopBody], inplace: bool
) -> Iterator[None]:
    """The nodes with these bodies.

    `inplace` False keeps them from deciding again which buffers share memory. (Inductor's config
    says the same for the whole process; another thread's compile must not see that.)
    """
    with bodies_of(nodes, bodies), nullcontext() if inplace else settled(nodes):
        yield


Sizes = tuple[tuple[Any, ...], tuple[Any, ...]]


def _as_they_are(sizes: Sizes) -> Any:
    return sizes


@contextmanager
def bodies_of(
    nodes: Sequence[SchedulerNode],
    bodies: Sequence[LoopBody],
    group_fn: Callable[[Sizes], Any] = _as_they_are,
) -> Iterator[None]:
    """The nodes with these bodies; `group_fn` gives what their scheduling groups nodes by."""
    saved = [(n, n._body, n._sizes, n.group) for n in nodes]
    try:
        for node, body in zip(nodes, bodies, strict=True):
            sizes = (tuple(body.sizes[0]), tuple(body.sizes[1]))
            node._body, node._sizes = body, sizes
            node.group = (node.group[0], group_fn(sizes))
        yield
    finally:
        for node, old_body, old_sizes, old_group in saved:
            node._body, node._sizes, node.group = old_body, old_sizes, old_group


@contextmanager
def settled(nodes: Sequence[SchedulerNode]) -> Iterator[None]:
    """The nodes as they are, but not deciding again which buffers share memory."""
    try:
        for node in nodes:
            vars(node)["decide_inplace_update"] = _decided
        yield
    finally:
        for node in nodes:
            vars(node).pop("decide_inplace_update", None)


def _decided() -> None:
    """Stands in for `decide_inplace_update` where that has been settled."""
