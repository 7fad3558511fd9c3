"""Operators that put ranges of several inputs, or of one, in another order: cat, pad, roll, flip.

A range of such a value takes what overlaps with it of each part, and nothing of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.fx import Node

from .axes import (
    Bound,
    Builder,
    CannotCut,
    Cut,
    Need,
    Range,
    SameCall,
    named,
    rule,
    same,
    shape,
    value,
    wrapped,
)
from .views import Written, argument, from_one, resized, slice_start, source_of

aten, prims = torch.ops.aten, torch.ops.prims


@dataclass(frozen=True)
class Segment:
    """`size` positions of a node from `start` on: a part of a value that is put together."""

    node: Node
    start: Bound
    size: Bound


def joined(
    node: Node,
    segments: Sequence[Segment],
    dim: int,
    then: Callable[[Builder, Node], Node] = lambda to, whole: whole,
) -> Cut:
    """A value put together of segments along a dim; `then` is done to each range of it."""

    def reads(wanted: Range) -> tuple[Need, ...]:
        needs, offset = [], 0
        for each in segments:
            start, stop = max(wanted.start, offset), min(wanted.stop, offset + each.size)
            if start < stop:
                needs.append(Need(each.node, dim, Range(start, stop).moved(each.start - offset)))
            offset = offset + each.size
        return tuple(needs)

    def write(to: Builder, wanted: Range, parts: list[Node]) -> Node:
        parts = [converted(to, part, value(node).dtype) for part in parts]
        return then(to, parts[0] if len(parts) == 1 else to.call(aten.cat.default, parts, dim))

    return Written(tuple({each.node: dim for each in segments}.items()), reads, write)


def converted(to: Builder, part: Node, dtype: torch.dtype) -> Node:
    """A part in the type of the whole: alone it isn't promoted to it."""
    if value(part).dtype == dtype:
        return part
    return to.call(prims.convert_element_type.default, part, dtype)


@rule(aten.cat.default)
def cat(node: Node, dim: int) -> Cut:
    """Inputs of shape [0] are left out: they are allowed beside those of any other rank."""
    ndim = len(shape(node))
    sources = [s for s in argument(node, 0, "tensors") if len(shape(s)) == ndim]
    along = wrapped(argument(node, 1, "dim", 0), ndim)
    if dim == along:
        return joined(node, [Segment(s, 0, shape(s)[dim]) for s in sources], dim)

    def reads(wanted: Range) -> tuple[Need, ...]:
        return tuple(Need(s, dim, wanted) for s in sources)

    def write(to: Builder, wanted: Range, parts: list[Node]) -> Node:
        parts = [converted(to, part, value(node).dtype) for part in parts]
        return to.call(aten.cat.default, parts, along)

    return Written(tuple((s, dim) for s in dict.fromkeys(sources)), reads, write)


@rule(aten.stack.default)
def stack(node: Node, dim: int) -> Cut:
    sources = argument(node, 0, "tensors")
    along = wrapped(argument(node, 1, "dim", 0), len(shape(node)))
    if dim != along:
        return SameCall(node, dict.fromkeys(sources, dim - (dim > along)))
    dtype = value(node).dtype

    def reads(wanted: Range) -> tuple[Need, ...]:
        return tuple(Need(s) for s in sources[int(wanted.start) : int(wanted.stop)])

    def write(to: Builder, wanted: Range, parts: list[Node]) -> Node:
        return to.call(aten.stack.default, [converted(to, part, dtype) for part in parts], dim)

    return Written(tuple((s, None) for s in dict.fromkeys(sources)), reads, write)


@rule(aten.constant_pad_nd.default)
def constant_pad(node: Node, dim: int) -> Cut:
    """Of a range what lies in the input is read, and padded by what lies outside."""
    source, sizes, like = source_of(node), shape(node), value(node)
    pad, fill = argument(node, 1, "pad"), argument(node, 2, "value", 0)
    place = 2 * (len(sizes) - 1 - dim)  # of the dim's two numbers: the last dim's come first
    before, size = (pad[place] if place < len(pad) else 0), shape(source)[dim]
    if place >= len(pad) or (same(pad[place], 0) and same(pad[place + 1], 0)):
        return SameCall(node, {source: dim})

    def inside(wanted: Range) -> Range:
        start, stop = wanted.start - before, wanted.stop - before
        return Range(max(start, 0), min(stop, size))

    def reads(wanted: Range) -> tuple[Need, ...]:
        found = inside(wanted)
        return (Need(source, dim, found),) if found.start < found.stop else ()

    def write(to: Builder, wanted: Range, parts: list[Node]) -> Node:
        if not parts:
            shape = resized(sizes, dim, wanted.size)
            return to.call(aten.full.default, shape, fill, dtype=like.dtype, device=like.device)
        found = inside(wanted).moved(before)
        own = [*pad[:place], found.start - wanted.start, wanted.stop - found.stop]
        own += pad[place + 2 :]
        if all(same(each, 0) for each in own):
            return parts[0]
        return to.call(aten.constant_pad_nd.default, *parts, own, fill)

    return Written(((source, dim),), reads, write)


@rule(aten.roll.default)
def roll(node: Node, dim: int) -> Cut:
    """The end of the dim comes before its start; the other dims of the roll are rolled after."""
    source, ndim, size = source_of(node), len(shape(node)), shape(node)[dim]
    shifts, dims = argument(node, 1, "shifts"), argument(node, 2, "dims", [])
    shifts, dims = [v if isinstance(v, list) else [v] for v in (shifts, dims)]
    if not dims and ndim > 1:
        raise CannotCut("view", f"{named(node)} rolls over all dims as one")
    dims = [wrapped(d, ndim) for d in dims or [0]]
    by = sum(s for s, d in zip(shifts, dims, strict=True) if d == dim)
    others = [(s, d) for s, d in zip(shifts, dims, strict=True) if d != dim]

    def then(to: Builder, part: Node) -> Node:
        if not others:
            return part
        return to.call(aten.roll.default, part, [s for s, _ in others], [d for _, d in others])

    back = 0 if same(size, 0) else by % size
    segments = [Segment(source, size - back, back), Segment(source, 0, size - back)]
    return joined(node, segments, dim, then)


@rule(aten.repeat.default)
def repeat(node: Node, dim: int) -> Cut:
    """A range of several positions, again and again, is taken out of as many whole repeats."""
    source, times = source_of(node), argument(node, 1, "repeats")
    own = dim - len(times) + len(shape(source))
    size = 1 if own < 0 else shape(source)[own]
    once, single = same(times[dim], 1), same(size, 1)

    def write(to: Builder, wanted: Range, part: Node) -> Node:
        if once or single:
            return to.call(
                aten.repeat.default, part, resized(times, dim, 1 if once else wanted.size)
            )
        first, last = wanted.start // size, -(-wanted.stop // size)
        found = to.call(aten.repeat.default, part, resized(times, dim, last - first))
        start = wanted.start - first * size
        return to.call(aten.slice.Tensor, found, dim, start, start + wanted.size)

    return from_one(source, own if once and own >= 0 else None, write)


@rule(aten.flip.default, "prims.rev.default")
def flip(node: Node, dim: int) -> Cut:
    source, size = source_of(node), shape(node)[dim]
    dims = [wrapped(d, len(shape(node))) for d in argument(node, 1, "dims")]
    if dim not in dims:
        return SameCall(node, {source: dim})

    def write(to: Builder, wanted: Range, part: Node) -> Node:
        return to.call(aten.flip.default, part, list(dims))

    return from_one(source, dim, write, lambda r: Range(size - r.stop, size - r.start))


@rule(aten.slice_scatter.default)
def slice_scatter(node: Node, dim: int) -> Cut:
    """The input, the source in the midst of it, and the input again."""
    base, source, size = source_of(node), source_of(node, 1), shape(node)[dim]
    if dim != wrapped(argument(node, 2, "dim", 0), len(shape(node))):
        if not same(shape(source)[dim], size):
            raise CannotCut("scatter", f"{named(node)} scatters a source that is broadcast")
        return SameCall(node, {base: dim, source: dim})
    start, inner = slice_start(argument(node, 3, "start"), size), shape(source)[dim]
    end = argument(node, 4, "end")
    end = size if end is None else min(end if end >= 0 else end + size, size)
    if not same(inner, max(end - start, 0)):
        raise CannotCut("scatter", f"{named(node)} scatters in steps, or broadcasts, along {dim}")
    stop = start + inner
    segments = [Segment(base, 0, start), Segment(source, 0, inner)]
    return joined(node, [*segments, Segment(base, stop, size - stop)], dim)


@rule(aten.select_scatter.default)
def select_scatter(node: Node, dim: int) -> Cut:
    """Along the dim of the source, only the range with its position takes the source."""
    base, source, size = source_of(node), source_of(node, 1), shape(node)[dim]
    along = wrapped(argument(node, 2, "dim"), len(shape(node)))
    if dim != along:
        return SameCall(node, {base: dim, source: dim - (dim > along)})
    index = argument(node, 3, "index")
    index = index if index >= 0 else index + size

    def reads(wanted: Range) -> tuple[Need, ...]:
        mine = Need(base, dim, wanted)
        return (mine, Need(source)) if wanted.start <= index < wanted.stop else (mine,)

    def write(to: Builder, wanted: Range, parts: list[Node]) -> Node:
        if len(parts) == 1:
            return parts[0]
        return to.call(aten.select_scatter.default, *parts, dim, index - wanted.start)

    return Written(((base, dim), (source, None)), reads, write)
