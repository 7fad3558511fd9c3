"""Convolution, pooling and upsampling: batch and channels, and space with the exact halo.

A position of the value reads a window of positions of the input. Beyond the true edges of the
input the windows read padding, and only there: a piece between them has none.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from .axes import Bound, CannotCut, Cut, Need, Range, arguments, named, rule, same, shape, together
from .products import ByArgument, call

aten = torch.ops.aten


@dataclass(frozen=True)
class Window:
    """What the positions of a dim read of the input's dim, which has `size` positions."""

    size: Bound
    kernel: Bound
    stride: Bound
    padding: Bound
    dilation: Bound = 1

    def reach(self, range: Range) -> Range:
        """The positions that a range reads; those outside [0, size) are padding."""
        start = range.start * self.stride - self.padding
        last = (range.stop - 1) * self.stride - self.padding
        return Range(start, last + self.dilation * (self.kernel - 1) + 1)

    def inside(self, range: Range) -> bool:
        """Whether a range reads no padding."""
        reach = self.reach(range)
        return bool(reach.start >= 0) and bool(reach.stop <= self.size)


def each(numbers: Any, count: int) -> list[Bound]:
    """An argument with one number for every dim of space, or one for all of them."""
    found = list(numbers) if isinstance(numbers, (list, tuple)) else [numbers]
    return found * count if len(found) == 1 else found


@dataclass(frozen=True)
class Space:
    """A convolution or pool over a range of a dim of space.

    Where the range reads no padding, it runs without. At an edge it runs with the padding of the
    whole on both sides: it starts early enough for the windows to stay in place, and the few
    positions too much are sliced away. Padding by hand would copy the input, and is no way for
    maxima and for averages that don't count it.
    """

    node: Node
    name: str  # of the argument that is read in windows
    dim: int
    window: Window
    place: int  # among the dims of space
    space: int

    @property
    def inputs(self) -> tuple[tuple[Node, int | None], ...]:
        return ByArgument(self.node, {self.name: self.dim}).inputs

    def needs(self, range: Range) -> tuple[Need, ...]:
        return ByArgument(self.node, {self.name: self.dim}).needs(self._read(range))

    def _first(self, range: Range) -> Bound:
        """The first position of the value that is computed."""
        window = self.window
        if window.inside(range):
            return range.start
        early = max(range.start + -window.padding // window.stride, 0)
        return min(early, (window.size - 1) // window.stride)

    def _read(self, range: Range) -> Range:
        """At least one position, also where the windows have nothing but padding."""
        reach, window = self.window.reach(range), self.window
        if window.inside(range):
            return reach
        start = self._first(range) * window.stride
        return Range(start, min(max(reach.stop, start + 1), window.size))

    def emit(self, to: Any, range: Range) -> Node:
        padding = each(arguments(self.node)["padding"], self.space)
        if self.window.inside(range):
            padding[self.place] = 0
        whole = ByArgument(self.node, {self.name: self.dim}, lambda _: {"padding": padding})
        found = whole.emit(to, self._read(range))
        start = range.start - self._first(range)

        def part(node: Node) -> Node:
            if same(shape(node)[self.dim], range.size):
                return node
            cut: Node = to.call(aten.slice.Tensor, node, self.dim, start, start + range.size)
            return cut

        if not isinstance(found.meta["val"], (tuple, list)):
            return part(found)
        if self.node.target is _OFFSETS and same(shape(found)[self.dim], range.size):
            return found
        values, places = (part(to.call(operator.getitem, found, k)) for k in (0, 1))
        if self.node.target in _MAXIMA:
            places = self._moved(to, places, self._read(range))
        made: Node = to.call(together, values, places)
        return made

    def _moved(self, to: Any, indices: Node, read: Range) -> Node:
        """Flat positions inside what was read, as those inside the whole input.

        A flat position is (outer * size + x) * inner + rest, with x along the dim that is cut.
        """
        inner: Bound = 1
        for size in shape(arguments(self.node)[self.name])[self.dim + 1 :]:
            inner = inner * size
        moved: Node = to.call(aten.add.Tensor, indices, read.start * inner)
        lacking = (self.window.size - read.size) * inner
        if self.place == 0 or same(lacking, 0):
            return moved
        plane = read.size * inner
        outer = to.call(aten.div.Tensor_mode, indices, plane, rounding_mode="floor")
        found: Node = to.call(aten.add.Tensor, moved, to.call(aten.mul.Tensor, outer, lacking))
        return found


@dataclass(frozen=True)
class ConvolutionGroups:
    """A range of the output channels of a convolution with groups: the groups that have them."""

    node: Node
    groups: int
    inside: int  # input channels of a group
    outside: int  # output channels of a group
    transposed: bool

    @property
    def inputs(self) -> tuple[tuple[Node, int | None], ...]:
        given = arguments(self.node)
        bias = () if given["bias"] is None else ((given["bias"], 0),)
        return ((given["input"], 1), (given["weight"], 0), *bias)

    def _groups(self, range: Range) -> Range:
        return Range(range.start // self.outside, -(-range.stop // self.outside))

    def _channels(self, range: Range) -> Range:
        """The output channels that are computed: more than the range where it splits a group."""
        groups = self._groups(range)
        if groups.size == 1 and not self.transposed:
            return range
        return Range(groups.start * self.outside, groups.stop * self.outside)

    def needs(self, range: Range) -> tuple[Need, ...]:
        groups, made = self._groups(range), self._channels(range)
        read = Range(groups.start * self.inside, groups.stop * self.inside)
        source, weight, *bias = (node for node, _ in self.inputs)
        return (
            Need(source, 1, read),
            Need(weight, 0, read if self.transposed else made),
            *(Need(node, 0, made) for node in bias),
        )

    def emit(self, to: Any, range: Range) -> Node:
        given, made = dict(arguments(self.node)), self._channels(range)
        for name, need in zip(("input", "weight", "bias"), self.needs(range)):
            given[name] = to.get(need)
        found = call(to, self.node, {**given, "groups": self._groups(range).size})
        if made == range:
            return found
        start = range.start - made.start
        part: Node = to.call(aten.slice.Tensor, found, 1, start, start + range.size)
        return part


@rule(aten.convolution.default)
def convolution(node: Node, dim: int) -> Cut:
    """Batch as it is; output channels are the weight's; space reads its neighbours too."""
    given = arguments(node)
    source, weight, space = given["input"], given["weight"], len(shape(node)) - 2
    if dim == 0:
        return ByArgument(node, {"input": 0})
    if dim == 1 and not same(given["groups"], 1):
        return _groups(node)
    if dim == 1:
        bias = {} if given["bias"] is None else {"bias": 0}
        return ByArgument(node, {"weight": 1 if given["transposed"] else 0, **bias})
    if given["transposed"]:
        raise CannotCut("windows", f"{named(node)} is transposed: over space windows overlap")
    window = Window(
        shape(source)[dim],
        shape(weight)[dim],
        *(each(given[name], space)[dim - 2] for name in ("stride", "padding", "dilation")),
    )
    return Space(node, "input", dim, window, dim - 2, space)


@rule(aten.convolution_backward.default)
def convolution_backward(node: Node, dim: int) -> Cut:
    """The gradient of the input, along the batch. That of the weight adds up: see `contracted`."""
    if list(arguments(node)["output_mask"]) != [True, False, False]:
        raise CannotCut("reduced", f"{named(node)} adds up what the whole batch gives")
    if dim != 0:
        raise CannotCut("windows", f"{named(node)} is transposed: windows overlap along {dim}")
    return ByArgument(node, {"grad_output": 0, "input": 0})


def _groups(node: Node) -> ConvolutionGroups:
    given = arguments(node)
    sizes = (shape(given["input"])[1], shape(node)[1], given["groups"])
    if not all(isinstance(size, int) for size in sizes):
        raise CannotCut("kernel", f"{named(node)} has groups of channels of unknown number")
    inside, outside, groups = sizes
    transposed = bool(given["transposed"])
    return ConvolutionGroups(node, groups, inside // groups, outside // groups, transposed)


# Pools: the dims of space, and the value that holds flat positions of the input, if there is one.
_AVERAGES: dict[Any, int] = {
    aten.avg_pool1d.default: 1,
    aten.avg_pool2d.default: 2,
    aten.avg_pool3d.default: 3,
}
_MAXIMA: dict[Any, int] = {
    aten.max_pool2d_with_indices.default: 2,
    aten.max_pool3d_with_indices.default: 3,
}
_OFFSETS = "prims._low_memory_max_pool_with_offsets.default"  # inside a window: they stay


@rule(*_AVERAGES, *_MAXIMA, _OFFSETS)
def pool(node: Node, dim: int) -> Cut:
    """Planes apart as they are; inside a plane with what the windows read of their neighbours."""
    given = arguments(node)
    space = _AVERAGES.get(node.target) or _MAXIMA.get(node.target) or len(given["kernel_size"])
    place = dim - (len(shape(node)) - space)
    if place < 0:
        return ByArgument(node, {"self": dim})
    kernel = each(given["kernel_size"], space)
    window = Window(
        shape(given["self"])[dim],
        kernel[place],
        each(given["stride"] or kernel, space)[place],
        each(given["padding"], space)[place],
        each(given.get("dilation", 1), space)[place],
    )
    return Space(node, "self", dim, window, place, space)


@dataclass(frozen=True)
class MovedIndices:
    """Flat positions made of offsets inside windows: those of a range lie further on."""

    call: ByArgument
    step: Bound  # between the windows of neighbours, as a flat position

    @property
    def inputs(self) -> tuple[tuple[Node, int | None], ...]:
        return self.call.inputs

    def needs(self, range: Range) -> tuple[Need, ...]:
        return self.call.needs(range)

    def emit(self, to: Any, range: Range) -> Node:
        found = self.call.emit(to, range)
        if same(range.start, 0):
            return found
        moved: Node = to.call(aten.add.Tensor, found, range.start * self.step)
        return moved


@rule("prims._low_memory_max_pool_offsets_to_indices.default")
def offsets_to_indices(node: Node, dim: int) -> Cut:
    """Planes apart as they are; inside a plane the windows begin further on."""
    given = arguments(node)
    cut = ByArgument(node, {"self": dim})
    sizes: Sequence[Bound] = given["input_size"]
    place = dim - (len(shape(node)) - len(sizes))
    if place < 0:
        return cut
    step = each(given["stride"], len(sizes))[place]
    for size in sizes[place + 1 :]:
        step = step * size
    return MovedIndices(cut, step)


# the dims of space are as many as the output's sizes: an argument, or all but batch and channels
_ADAPTIVE = (
    aten._adaptive_avg_pool2d.default,
    aten._adaptive_avg_pool3d.default,
    aten.adaptive_max_pool2d.default,
    aten.adaptive_max_pool3d.default,
)
_RESAMPLED = tuple(
    overload
    for packet in (
        aten.upsample_nearest1d,
        aten.upsample_nearest2d,
        aten.upsample_nearest3d,
        aten._upsample_nearest_exact1d,
        aten._upsample_nearest_exact2d,
        aten._upsample_nearest_exact3d,
        aten.upsample_linear1d,
        aten.upsample_bilinear2d,
        aten.upsample_trilinear3d,
        aten.upsample_bicubic2d,
        aten._upsample_bilinear2d_aa,
        aten._upsample_bicubic2d_aa,
    )
    for overload in (packet.default, packet.vec)
)


@rule(*_ADAPTIVE, *_RESAMPLED)
def resampled(node: Node, dim: int) -> Cut:
    """Planes apart as they are; inside a plane the scale is one of the whole."""
    source = next(arg for arg in arguments(node).values() if isinstance(arg, Node))
    output_size = arguments(node)["output_size"]
    space = len(output_size) if node.target in _ADAPTIVE else len(shape(node)) - 2
    if dim < len(shape(node)) - space:
        name = "input" if "input" in arguments(node) else "self"
        assert arguments(node)[name] is source
        return ByArgument(node, {name: dim})
    raise CannotCut("windows", f"{named(node)} places its windows by the whole size")


# Gradients of what reads planes in windows: the arguments that have the planes.
_BACKWARDS: dict[Any, tuple[str, ...]] = {
    aten.avg_pool2d_backward.default: ("grad_output", "self"),
    aten.avg_pool3d_backward.default: ("grad_output", "self"),
    aten.max_pool2d_with_indices_backward.default: ("grad_output", "self", "indices"),
    aten.max_pool3d_with_indices_backward.default: ("grad_output", "self", "indices"),
    aten._adaptive_avg_pool2d_backward.default: ("grad_output", "self"),
    aten._adaptive_avg_pool3d_backward.default: ("grad_output", "self"),
    aten.adaptive_max_pool2d_backward.default: ("grad_output", "self", "indices"),
    aten.adaptive_max_pool3d_backward.default: ("grad_output", "self", "indices"),
    aten.upsample_nearest1d_backward.default: ("grad_output",),
    aten.upsample_nearest2d_backward.default: ("grad_output",),
    aten.upsample_nearest3d_backward.default: ("grad_output",),
    aten._upsample_nearest_exact1d_backward.default: ("grad_output",),
    aten._upsample_nearest_exact2d_backward.default: ("grad_output",),
    aten._upsample_nearest_exact3d_backward.default: ("grad_output",),
    aten.upsample_linear1d_backward.default: ("grad_output",),
    aten.upsample_bilinear2d_backward.default: ("grad_output",),
    aten.upsample_trilinear3d_backward.default: ("grad_output",),
    aten.upsample_bicubic2d_backward.default: ("grad_output",),
    aten._upsample_bilinear2d_aa_backward.default: ("grad_output",),
    aten._upsample_bicubic2d_aa_backward.default: ("grad_output",),
}


@rule(*_BACKWARDS)
def gradient_of_windows(node: Node, dim: int) -> Cut:
    """Planes apart as they are; inside of one, several windows give to a position."""
    given, names = arguments(node), _BACKWARDS[node.target]
    space = len(given.get("output_size") or given.get("kernel_size") or "")
    if not space:  # adaptive: in the name alone
        space = 3 if "3d" in str(node.target) else 2
    if dim >= len(shape(node)) - space:
        raise CannotCut("windows", f"{named(node)}: windows overlap along dim {dim}")

    def sizes(range: Range) -> dict[str, Any]:
        if "input_size" not in given:
            return {}
        own = list(given["input_size"])
        own[dim] = range.size
        return {"input_size": own}

    return ByArgument(node, dict.fromkeys(names, dim), sizes)
