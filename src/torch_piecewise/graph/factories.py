"""Operators that make values of no input's elements, or of their places: full, iota, tril."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from .axes import Builder, CannotCut, Cut, Range, SameCall, named, rule, shape, value
from .views import Written, argument, from_one, resized, source_of

aten, prims = torch.ops.aten, torch.ops.prims

ZEROS = (aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)
ONES = (aten.ones.default, aten.ones_like.default, aten.new_ones.default)
EMPTY = (
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.empty_permuted.default,
    aten.empty_strided.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
)


def made(write: Callable[[Builder, Range], Node]) -> Cut:
    """A cut that takes nothing of any input."""
    return Written((), lambda wanted: (), lambda to, wanted, parts: write(to, wanted))


@rule(aten.full.default, aten.full_like.default, aten.new_full.default, *ZEROS, *ONES)
def full(node: Node, dim: int) -> Cut:
    """A range is made by its sizes: of the input only the shape and type would be read."""
    sizes = shape(node)
    if node.target in ZEROS + ONES:
        fill: Any = int(node.target in ONES)
    else:
        fill = argument(node, 2 if node.target is aten.new_full.default else 1, "fill_value")

    def write(to: Builder, wanted: Range) -> Node:
        own = resized(sizes, dim, wanted.size)
        return to.call(aten.full.default, own, fill, **kind(node))

    return made(write)


@rule(*EMPTY)
def empty(node: Node, dim: int) -> Cut:
    sizes = shape(node)

    def write(to: Builder, wanted: Range) -> Node:
        return to.call(aten.empty.memory_format, resized(sizes, dim, wanted.size), **kind(node))

    return made(write)


def kind(node: Node) -> dict[str, Any]:
    """What a factory is told beside sizes."""
    like = value(node)
    return {"dtype": like.dtype, "device": like.device, "pin_memory": False}


@rule(prims.iota.default)
def iota(node: Node, dim: int) -> Cut:
    return counted(node, argument(node, 1, "start"), argument(node, 2, "step"))


@rule(aten.arange.default, aten.arange.start, aten.arange.start_step)
def arange(node: Node, dim: int) -> Cut:
    """Of whole numbers; others don't appear, as arange is made of iota in compiled graphs."""
    default = node.target is aten.arange.default
    start, step = 0 if default else argument(node, 0, "start"), argument(node, 2, "step", 1)
    if value(node).dtype.is_floating_point or isinstance(start, float) or isinstance(step, float):
        raise CannotCut("places", f"{named(node)} counts in fractions, each rounded by its place")
    return counted(node, start, step)


def counted(node: Node, start: Any, step: Any) -> Cut:
    like = value(node)

    def write(to: Builder, wanted: Range) -> Node:
        return to.call(
            prims.iota.default,
            wanted.size,
            start=start + wanted.start * step,
            step=step,
            dtype=like.dtype,
            device=like.device,
            requires_grad=False,
        )

    return made(write)


@rule(aten.eye.default, aten.eye.m)
def eye(node: Node, dim: int) -> Cut:
    raise CannotCut("places", f"{named(node)} has its ones where two dims meet")


@rule(
    *["prims.inductor_random.default", "prims.inductor_randint.default"],
    *["prims.inductor_rand_eager_offset.default", "prims.inductor_rand_eager_offsets.default"],
    *["prims.inductor_seed.default", "prims.inductor_seeds.default"],
    "prims.inductor_lookup_seed.default",
)
def random(node: Node, dim: int) -> Cut:
    """What Inductor makes of random numbers: each is one of its place in the whole."""
    raise CannotCut("random", f"{named(node)} draws random numbers, by their places in the whole")


@rule(aten.tril.default, aten.triu.default)
def triangle(node: Node, dim: int) -> Cut:
    """The diagonal of a range lies as far from its first row or column as that from the first."""
    source, rows = source_of(node), len(shape(node)) - 2
    if dim < rows:
        return SameCall(node, {source: dim})
    diagonal, sign = argument(node, 1, "diagonal", 0), 1 if dim == rows else -1

    def write(to: Builder, wanted: Range, part: Node) -> Node:
        return to.call(node.target, part, diagonal + sign * wanted.start)

    return from_one(source, dim, write)
