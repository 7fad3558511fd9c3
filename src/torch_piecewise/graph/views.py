"""Operators that only rearrange one input: views, slices, expansions, and parts of a split.

What computes a range of such a value is most often another call than that of the whole: a view
has other sizes, a squeeze must not drop a dim of which the range has one position, and a slice
along the dim that is cut is but a range of its input. So the rules write their calls themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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

aten = torch.ops.aten


@dataclass(frozen=True)
class Written:
    """A cut given by two functions, for one node that may be read in several ranges.

    `reads` gives what a range of the value takes of the inputs; `write` computes the range of
    these, which it is handed in the same order.
    """

    inputs: tuple[tuple[Node, int | None], ...]
    reads: Callable[[Range], tuple[Need, ...]]
    write: Callable[[Builder, Range, list[Node]], Node]

    def needs(self, range: Range) -> tuple[Need, ...]:
        return self.reads(range)

    def emit(self, to: Builder, range: Range) -> Node:
        return self.write(to, range, [to.get(need) for need in self.reads(range)])


def from_one(
    source: Node,
    dim: int | None,
    write: Callable[[Builder, Range, Node], Node],
    moved: Callable[[Range], Range] = lambda wanted: wanted,
) -> Cut:
    """A cut that takes the range `moved` of one input along its `dim`, or all of it (None)."""

    def reads(wanted: Range) -> tuple[Need, ...]:
        return (Need(source) if dim is None else Need(source, dim, moved(wanted)),)

    return Written(((source, dim),), reads, lambda to, wanted, parts: write(to, wanted, *parts))


def argument(node: Node, place: int, name: str, default: Any = None) -> Any:
    """An argument given by place or name; symbolic sizes in it as values, not nodes."""
    found = node.args[place] if len(node.args) > place else node.kwargs.get(name, default)
    return plain(found)


def plain(arg: Any) -> Any:
    """An argument with the symbolic numbers in it in place of their nodes; tensors stay nodes."""
    if isinstance(arg, (list, tuple)):
        return [plain(each) for each in arg]
    if isinstance(arg, Node) and not isinstance(arg.meta.get("val"), (torch.Tensor, list, tuple)):
        return arg.meta["val"]
    return arg


def source_of(node: Node, place: int = 0) -> Node:
    found = node.args[place]
    assert isinstance(found, Node), node
    return found


def resized(sizes: Sequence[Bound], dim: int, size: Bound) -> list[Bound]:
    """The sizes, with that of the dim replaced."""
    return [*sizes[:dim], size, *sizes[dim + 1 :]]


def known(condition: Any) -> bool:
    """Whether a condition on sizes always holds, without a new guard where they are symbolic."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return bool(statically_known_true(condition))


def product(sizes: Sequence[Bound]) -> Bound:
    total: Bound = 1
    for size in sizes:
        total = total * size
    return total


# Reshapes


@rule(aten.view.default, aten._unsafe_view.default, aten.reshape.default)
@rule(aten._reshape_copy.default)
def view(node: Node, dim: int) -> Cut:
    """The outermost dim of a group of dims is cut where the input's outermost dim can be.

    The piece gets a reshape: its input may be laid out otherwise than the whole's.
    """
    source, sizes = source_of(node), shape(node)
    copies = node.target is aten._reshape_copy.default
    target = aten._reshape_copy.default if copies else aten.reshape.default

    def write(to: Builder, wanted: Range, part: Node) -> Node:
        return to.call(target, part, resized(sizes, dim, wanted.size))

    if same(sizes[dim], 1):
        return from_one(source, None, write)
    found = outer_dim(shape(source), sizes, dim)
    if found is None:
        text = f"{named(node)} of {list(shape(source))} as {list(sizes)} has no ranges along {dim}"
        raise CannotCut("view", text)
    outer, times, parts = found

    def moved(wanted: Range) -> Range:
        bounds = [bound * times for bound in (wanted.start, wanted.stop)]
        if not all(known(bound % parts == 0) for bound in bounds):
            text = f"{named(node)} joins dims of {list(shape(source))}: {wanted} is inside of one"
            raise CannotCut("unaligned", text)
        return Range(*(bound // parts for bound in bounds))

    return from_one(source, outer, write, moved)


def outer_dim(
    old: Sequence[Bound], new: Sequence[Bound], dim: int
) -> tuple[int, Bound, Bound] | None:
    """The dim that the new one is cut with, and how their positions go together.

    A position of the new is `times` elements, one of the old `parts`.
    """
    for ins, outs in dim_groups(old, new) or ():
        if outs[0] == dim:
            times, parts = product([new[d] for d in outs[1:]]), product([old[d] for d in ins[1:]])
            exact = known(times % parts == 0)
            return ins[0], times // parts if exact else times, 1 if exact else parts
    return None


def dim_groups(
    old: Sequence[Bound], new: Sequence[Bound]
) -> list[tuple[list[int], list[int]]] | None:
    """The smallest groups of dims, in order, that hold as many elements before as after.

    Dims of size 1 are left out. None where symbolic sizes leave the groups unknown.
    """
    olds = [d for d, size in enumerate(old) if not same(size, 1)]
    news = [d for d, size in enumerate(new) if not same(size, 1)]
    groups = []
    while olds and news:
        ins, outs = [olds.pop(0)], [news.pop(0)]
        a, b = old[ins[0]], new[outs[0]]
        while not same(a, b):
            if olds and known(a < b):
                ins.append(olds.pop(0))
                a = a * old[ins[-1]]
            elif news and known(b < a):
                outs.append(news.pop(0))
                b = b * new[outs[-1]]
            else:
                return None
        groups.append((ins, outs))
    return None if olds or news else groups


@rule(aten.alias.default, aten.detach.default, aten.lift_fresh_copy.default)
@rule(aten.view_as_complex.default)
def same_dims(node: Node, dim: int) -> Cut:
    return SameCall(node, {source_of(node): dim})


@rule(aten.view_as_real.default)
def view_as_real(node: Node, dim: int) -> Cut:
    if dim == len(shape(node)) - 1:
        raise CannotCut("view", f"{named(node)} holds a number's two parts along {dim}")
    return SameCall(node, {source_of(node): dim})


@rule(aten.view.dtype)
def view_dtype(node: Node, dim: int) -> Cut:
    """The last dim changes its size where the types differ in theirs."""
    source = source_of(node)
    resizes = value(source).dtype.itemsize != value(node).dtype.itemsize
    if resizes and dim == len(shape(node)) - 1:
        raise CannotCut("view", f"{named(node)} splits or joins elements along {dim}")
    return SameCall(node, {source: dim})


@rule(aten.unsqueeze.default)
def unsqueeze(node: Node, dim: int) -> Cut:
    added = wrapped(argument(node, 1, "dim"), len(shape(node)))
    return SameCall(node, {source_of(node): None if dim == added else dim - (dim > added)})


@rule(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
def squeeze(node: Node, dim: int) -> Cut:
    """The dims that are dropped are named, lest a range of one position be dropped too."""
    source = source_of(node)
    sizes = shape(source)
    dims = argument(node, 1, "dim", list(range(len(sizes))))
    dims = {wrapped(d, len(sizes)) for d in (dims if isinstance(dims, list) else [dims])}
    dropped = [d for d in sorted(dims) if same(sizes[d], 1)]
    kept = [d for d in range(len(sizes)) if d not in dropped]

    def write(to: Builder, wanted: Range, part: Node) -> Node:
        return to.call(aten.squeeze.dims, part, dropped) if dropped else part

    return from_one(source, kept[dim], write)


# Orders of the dims


@rule(aten.permute.default)
def permute(node: Node, dim: int) -> Cut:
    order = argument(node, 1, "dims")
    return SameCall(node, {source_of(node): wrapped(order[dim], len(order))})


@rule(aten.transpose.int)
def transpose(node: Node, dim: int) -> Cut:
    ndim = len(shape(node))
    a, b = (wrapped(argument(node, k, f"dim{k - 1}"), ndim) for k in (1, 2))
    return SameCall(node, {source_of(node): {a: b, b: a}.get(dim, dim)})


@rule(aten.t.default)
def t(node: Node, dim: int) -> Cut:
    return SameCall(node, {source_of(node): len(shape(node)) - 1 - dim})


# More elements than the input has


@rule(aten.expand.default)
def expand(node: Node, dim: int) -> Cut:
    source, sizes = source_of(node), shape(node)
    own = dim - len(sizes) + len(shape(source))
    spread = own < 0 or not same(shape(source)[own], sizes[dim])

    def write(to: Builder, wanted: Range, part: Node) -> Node:
        return to.call(aten.expand.default, part, resized(sizes, dim, wanted.size))

    return from_one(source, None if spread else own, write)


# Fewer elements than the input has, or the same ones several times


@rule(aten.slice.Tensor)
def slice_(node: Node, dim: int) -> Cut:
    source, step = source_of(node), argument(node, 4, "step", 1)
    if dim != wrapped(argument(node, 1, "dim", 0), len(shape(node))):
        return SameCall(node, {source: dim})
    first = slice_start(argument(node, 2, "start"), shape(source)[dim])

    def moved(wanted: Range) -> Range:
        return Range(first + wanted.start * step, first + (wanted.stop - 1) * step + 1)

    def write(to: Builder, wanted: Range, part: Node) -> Node:
        if same(step, 1):
            return part
        size = (wanted.size - 1) * step + 1
        return to.call(aten.slice.Tensor, part, dim, 0, size, step)

    return from_one(source, dim, write, moved)


def slice_start(start: Bound | None, size: Bound) -> Bound:
    """Where a slice starts that isn't empty."""
    if start is None or start >= 0:
        return start or 0
    return max(start + size, 0)


@rule(aten.select.int)
def select(node: Node, dim: int) -> Cut:
    source = source_of(node)
    chosen = wrapped(argument(node, 1, "dim"), len(shape(source)))
    return SameCall(node, {source: dim + (dim >= chosen)})


@rule(aten.diagonal.default)
def diagonal(node: Node, dim: int) -> Cut:
    """The other dims keep their order before the diagonal, which is the last."""
    source = source_of(node)
    ndim = len(shape(source))
    if dim == len(shape(node)) - 1:
        raise CannotCut("view", f"{named(node)} reads two dims along {dim}")
    taken = {wrapped(argument(node, k, f"dim{k - 1}", k - 2), ndim) for k in (2, 3)}
    others = [d for d in range(ndim) if d not in taken]
    return SameCall(node, {source: others[dim]})


@rule(aten.unfold.default)
def unfold(node: Node, dim: int) -> Cut:
    source = source_of(node)
    windows = wrapped(argument(node, 1, "dimension"), len(shape(source)) or 1)
    if dim in (windows, len(shape(node)) - 1):
        raise CannotCut("view", f"{named(node)} reads windows that overlap along {dim}")
    return SameCall(node, {source: dim})


@rule(aten.as_strided.default)
def as_strided(node: Node, dim: int) -> Cut:
    raise CannotCut("address", f"{named(node)} reads memory by address, whatever its dims are")


# Operators with several results

SPLITS = (
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
)


@rule(*SPLITS)
def split(node: Node, dim: int) -> Cut:
    """Along the dim that it splits, see `part_of_split`: each part has its own ranges."""
    if dim == wrapped(argument(node, 2, "dim", 0), len(shape(node))):
        raise CannotCut("view", f"{named(node)} splits along {dim}")
    return SameCall(node, {source_of(node): dim})


@rule(aten.unbind.int)
def unbind(node: Node, dim: int) -> Cut:
    source = source_of(node)
    dropped = wrapped(argument(node, 1, "dim", 0), len(shape(source)))
    return SameCall(node, {source: dim + (dim >= dropped)})


@rule(operator.getitem)
def getitem(node: Node, dim: int) -> Cut:
    """One of several results: of a split, straight from what it splits."""
    source, place = node.args
    assert isinstance(source, Node) and isinstance(place, int)
    if place < 0:
        place += len(source.meta["val"])
    if source.target in SPLITS:
        return part_of_split(node, source, place, dim)
    if source.target is aten.unbind.int:
        return part_of_unbind(source, place, dim)
    mine, first = shape(node), shape(source)
    if dim >= len(mine) or not same(mine[dim], first[dim]):
        raise CannotCut("values", f"dim {dim} of {named(node)} is no dim of the other results")
    return from_one(source, dim, lambda to, wanted, part: to.call(operator.getitem, part, place))


def part_of_split(node: Node, splits: Node, place: int, dim: int) -> Cut:
    source, sizes = source_of(splits), argument(splits, 1, "split_size")
    along = wrapped(argument(splits, 2, "dim", 0), len(shape(node)))
    first = sum(sizes[:place]) if isinstance(sizes, list) else place * sizes

    def write(to: Builder, wanted: Range, part: Node) -> Node:
        if dim == along:
            return part
        return to.call(aten.slice.Tensor, part, along, first, first + shape(node)[along])

    return from_one(source, dim, write, lambda r: r.moved(first) if dim == along else r)


def part_of_unbind(unbinds: Node, place: int, dim: int) -> Cut:
    source = source_of(unbinds)
    along = wrapped(argument(unbinds, 1, "dim", 0), len(shape(source)))

    def write(to: Builder, wanted: Range, part: Node) -> Node:
        return to.call(aten.select.int, part, along, place)

    return from_one(source, dim + (dim >= along), write)
