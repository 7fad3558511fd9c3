"""Reductions over the dim that is cut: the result of each range, and how these are combined.

The results of half precision are float32 until the last step, as within eager's own reductions.
A range's result has the shape of the node's value, also where the node reduces further dims.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from .axes import (
    Bound,
    Builder,
    CannotCut,
    Need,
    Partial,
    Range,
    arguments,
    named,
    partial_rule,
    shape,
    together,
    value,
)
from .reductions import reduced_dims

aten, prims = torch.ops.aten, torch.ops.prims

WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
}


@dataclass(frozen=True)
class OverDim:
    """What every reduction over a cut dim has: one input, of which a range of the dim is taken."""

    node: Node
    source: Node
    dim: int

    @property
    def inputs(self) -> tuple[tuple[Node, int | None], ...]:
        return ((self.source, self.dim),)

    def needs(self, range: Range) -> tuple[Need, ...]:
        return (Need(self.source, self.dim, range),)

    @property
    def over(self) -> list[int]:
        return list(reduced_dims(self.node))

    @property
    def keepdim(self) -> bool:
        return bool(arguments(self.node).get("keepdim", False))

    @property
    def wide(self) -> torch.dtype:
        """The dtype to compute in until the end."""
        return WIDER.get(value(self.node).dtype, value(self.node).dtype)

    def taken(self, to: Builder, range: Range) -> Node:
        return to.get(Need(self.source, self.dim, range))

    def count(self, size: Bound) -> Bound:
        """How many elements `size` positions of the dim have, for one element of the value."""
        return size * math.prod(shape(self.source)[d] for d in self.over if d != self.dim)

    def rounded(self, to: Builder, node: Node) -> Node:
        return converted(to, node, value(self.node).dtype)


def converted(to: Builder, node: Node, dtype: torch.dtype) -> Node:
    if value(node).dtype == dtype:
        return node
    return to.call(prims.convert_element_type.default, node, dtype)


def stacked(to: Builder, parts: list[Node]) -> Node:
    return to.call(aten.stack.default, parts, 0)


@dataclass(frozen=True)
class Fold:
    """A reduction of the ranges' results, a stack of them: an operator, its further arguments.

    Where the operators are `typed`, their argument `dtype` says what to compute in; where the
    input is to be `widened`, it is converted to that instead.
    """

    target: Any
    rest: tuple[Any, ...] = ([0], False)
    typed: bool = False
    widened: bool = False


SUM = Fold(aten.sum.dim_IntList, typed=True)
PROD = Fold(aten.prod.dim_int, (0, False), typed=True)
MAX, MIN = Fold(aten.amax.default), Fold(aten.amin.default)
ANY, ALL = Fold(aten.any.dim, (0, False)), Fold(aten.all.dim, (0, False))
COUNT = Fold(aten.sum.dim_IntList)  # what it adds up is whole numbers
FOLDS: Mapping[Any, Fold] = {
    aten.nansum.default: SUM,
    aten.count_nonzero.default: COUNT,
    aten.count_nonzero.dim_IntList: COUNT,
    aten.sum.default: SUM,
    aten.sum.dim_IntList: SUM,
    prims.sum.default: Fold(aten.sum.dim_IntList, widened=True),
    aten.prod.default: PROD,
    aten.prod.dim_int: PROD,
    prims.prod.default: Fold(aten.prod.dim_int, (0, False), widened=True),
    aten.amax.default: MAX,
    aten.max.default: MAX,
    prims.amax.default: MAX,
    aten.amin.default: MIN,
    aten.min.default: MIN,
    prims.amin.default: MIN,
    aten.any.default: ANY,
    aten.any.dim: ANY,
    aten.any.dims: ANY,
    aten.all.default: ALL,
    aten.all.dim: ALL,
    aten.all.dims: ALL,
    aten.logsumexp.default: Fold(aten.logsumexp.default, widened=True),
}


@dataclass(frozen=True)
class Folded(OverDim):
    """The node's own operator on each range, then one like it on their results."""

    fold: Fold

    def emit(self, to: Builder, range: Range) -> Node:
        given = self.taken(to, range)
        kwargs = dict(self.node.kwargs)
        if self.fold.widened:
            given = converted(to, given, self.wide)
            kwargs.pop("output_dtype", None)  # it is what the input is converted to
        if self.fold.typed:
            kwargs["dtype"] = self.wide
        return to.call(self.node.target, given, *self.node.args[1:], **kwargs)

    def combine(self, to: Builder, parts: list[Node], sizes: list[Bound]) -> Node:
        dtype = {"dtype": self.wide} if self.fold.typed else {}
        made = to.call(self.fold.target, stacked(to, parts), *self.fold.rest, **dtype)
        return self.rounded(to, made)


@dataclass(frozen=True)
class Mean(OverDim):
    """Sums, then their sum divided by the number of elements."""

    def emit(self, to: Builder, range: Range) -> Node:
        given = self.taken(to, range)
        return to.call(aten.sum.dim_IntList, given, self.over, self.keepdim, dtype=self.wide)

    def combine(self, to: Builder, parts: list[Node], sizes: list[Bound]) -> Node:
        total = to.call(aten.sum.dim_IntList, stacked(to, parts), [0])
        return self.rounded(to, to.call(aten.div.Tensor, total, self.count(sum(sizes))))


@dataclass(frozen=True)
class Moments(OverDim):
    """Means and variances, combined as Chan, Golub and LeVeque do: no large sums are subtracted.

    The variance of all is the mean of the ranges' variances and of the squared distances of
    their means from the common one, each range counting by its size.
    """

    def emit(self, to: Builder, range: Range) -> Node:
        given = converted(to, self.taken(to, range), self.wide)
        both = to.call(
            aten.var_mean.correction, given, self.over, correction=0, keepdim=self.keepdim
        )
        return stacked(to, [to.call(operator.getitem, both, k) for k in (0, 1)])

    def combine(self, to: Builder, parts: list[Node], sizes: list[Bound]) -> Node:
        variances = [to.call(aten.select.int, each, 0, 0) for each in parts]
        means = [to.call(aten.select.int, each, 0, 1) for each in parts]
        mean = weighted(to, means, sizes)
        apart = [to.call(aten.sub.Tensor, each, mean) for each in means]
        squared = [to.call(aten.mul.Tensor, each, each) for each in apart]
        within, between = weighted(to, variances, sizes), weighted(to, squared, sizes)
        return self.finished(to, mean, to.call(aten.add.Tensor, within, between), sum(sizes))

    def finished(self, to: Builder, mean: Node, variance: Node, size: Bound) -> Node:
        """The node's value from the mean and the variance without correction."""
        correction = arguments(self.node)["correction"]
        count = self.count(size)
        if correction != 0:
            freedom = count - (1 if correction is None else correction)
            variance = to.call(aten.mul.Tensor, variance, count)
            variance = to.call(aten.div.Tensor, variance, max(0, freedom))  # inf or nan for 0
        if self.node.target in (aten.std.correction, aten.std_mean.correction):
            variance = to.call(aten.sqrt.default, variance)
        variance = self.rounded(to, variance)
        if self.node.target in (aten.var_mean.correction, aten.std_mean.correction):
            return to.call(together, variance, self.rounded(to, mean))
        return variance


def weighted(to: Builder, parts: list[Node], sizes: list[Bound]) -> Node:
    """The mean of the ranges' results, each counting by its size."""
    scaled = [to.call(aten.mul.Tensor, part, size) for part, size in zip(parts, sizes)]
    total = to.call(aten.sum.dim_IntList, stacked(to, scaled), [0])
    return to.call(aten.div.Tensor, total, sum(sizes))


@dataclass(frozen=True)
class Extremum(OverDim):
    """The largest or smallest value of each range and where it is; the first of equal ones wins."""

    target: Any  # max.dim or min.dim

    def emit(self, to: Builder, range: Range) -> Node:
        return to.call(self.target, self.taken(to, range), self.dim, self.keepdim)

    def combine(self, to: Builder, parts: list[Node], sizes: list[Bound]) -> Node:
        places, start = [], 0
        for part, size in zip(parts, sizes):
            place = to.call(operator.getitem, part, 1)
            places.append(to.call(aten.add.Tensor, place, start))
            start = start + size
        values = stacked(to, [to.call(operator.getitem, part, 0) for part in parts])
        best = to.call(self.target, values, 0)
        which = to.call(aten.unsqueeze.default, to.call(operator.getitem, best, 1), 0)
        found = to.call(aten.gather.default, stacked(to, places), 0, which)
        place = to.call(aten.select.int, found, 0, 0)
        if self.node.target in (aten.argmax.default, aten.argmin.default):
            return place
        return to.call(together, to.call(operator.getitem, best, 0), place)


def refuse_others(node: Node, source: Node, dim: int) -> None:
    """Raise where the dim is not one that the node reduces."""
    if source is not node.args[0] or dim not in reduced_dims(node):
        raise CannotCut("reduced", f"{named(node)} does not reduce dim {dim} of {source.name}")


def refuse_complex(node: Node, source: Node) -> None:
    if value(source).is_complex():
        raise CannotCut("parts", f"{named(node)} of complex numbers is not combined")


@partial_rule(*FOLDS)
def folded(node: Node, source: Node, dim: int) -> Partial:
    refuse_others(node, source, dim)
    return Folded(node, source, dim, FOLDS[node.target])


@partial_rule(aten.mean.default, aten.mean.dim)
def mean(node: Node, source: Node, dim: int) -> Partial:
    refuse_others(node, source, dim)
    return Mean(node, source, dim)


@partial_rule(aten.linalg_vector_norm.default)
def vector_norm(node: Node, source: Node, dim: int) -> Partial:
    """The norm of the ranges' norms, of the same order; of order 0, a count, the sum."""
    refuse_others(node, source, dim)
    refuse_complex(node, source)
    order = arguments(node)["ord"]
    norm = Fold(node.target, (order, [0], False), typed=True)
    return Folded(node, source, dim, SUM if order == 0 else norm)


@partial_rule(
    *[aten.var.correction, aten.var_mean.correction, prims.var.default],
    *[aten.std.correction, aten.std_mean.correction],
)
def moments(node: Node, source: Node, dim: int) -> Partial:
    refuse_others(node, source, dim)
    refuse_complex(node, source)
    return Moments(node, source, dim)


@dataclass(frozen=True)
class BothExtrema(OverDim):
    """The smallest and the largest value of each range, and those of these."""

    def emit(self, to: Builder, range: Range) -> Node:
        given = {"dim": arguments(self.node)["dim"], "keepdim": self.keepdim}
        return to.call(aten.aminmax.default, self.taken(to, range), **given)

    def combine(self, to: Builder, parts: list[Node], sizes: list[Bound]) -> Node:
        each = [stacked(to, [to.call(operator.getitem, p, k) for p in parts]) for k in (0, 1)]
        found = (to.call(fold.target, x, *fold.rest) for fold, x in zip((MIN, MAX), each))
        return to.call(together, *found)


@partial_rule(aten.aminmax.default)
def both_extrema(node: Node, source: Node, dim: int) -> Partial:
    refuse_others(node, source, dim)
    return BothExtrema(node, source, dim)


EXTREMA: Mapping[Any, Any] = {
    aten.max.dim: aten.max.dim,
    aten.min.dim: aten.min.dim,
    aten.argmax.default: aten.max.dim,
    aten.argmin.default: aten.min.dim,
}


@partial_rule(*EXTREMA)
def extremum(node: Node, source: Node, dim: int) -> Partial:
    """Over one dim: a place among several, counted in one, is not a place in a range."""
    refuse_others(node, source, dim)
    if len(reduced_dims(node)) > 1:
        raise CannotCut("parts", f"{named(node)} counts places over several dims as one")
    return Extremum(node, source, dim, EXTREMA[node.target])
