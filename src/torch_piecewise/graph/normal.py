"""Graphs in the form that the rules expect: what was traced, in operators that have dims."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch.fx import Graph, Node

from .axes import Bound, arguments, value

aten = torch.ops.aten
GRAD_INPUT, GRAD_WEIGHT, GRAD_BIAS = range(3)  # the values of a convolution's backward


def normalise(graph: Graph) -> None:
    """Remove what nothing reads, and write as others what has no dims to cut as it is.

    Reads by address are views, where they are that. The gradients of a convolution, of its input,
    weight and bias, are nodes of their own: they are cut in different ways.
    """
    graph.eliminate_dead_code()
    for node in list(graph.nodes):
        if node.target is aten.as_strided.default:
            _as_view(graph, node)
        elif node.target is aten.convolution_backward.default:
            _apart(graph, node)
    graph.eliminate_dead_code()


def _as_view(graph: Graph, node: Node) -> None:
    """Both orders of memory have no gaps: one is a permuted view of the other."""
    source = node.args[0]
    assert isinstance(source, Node)
    old, new = value(source), value(node)
    before, after = _order(old.shape, old.stride()), _order(new.shape, new.stride())
    if before is None or after is None or old.storage_offset() != new.storage_offset():
        return
    with graph.inserting_before(node):
        made = _call(graph, aten.permute.default, source, before)
        made = _call(graph, aten.reshape.default, made, [new.shape[d] for d in after])
        made = _call(graph, aten.permute.default, made, [after.index(d) for d in range(new.ndim)])
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _apart(graph: Graph, node: Node) -> None:
    """One call for each gradient of a convolution; the bias has a sum over all but channels."""
    given = arguments(node)
    for user in list(node.users):
        if user.target is not operator.getitem:
            return
    for user in list(node.users):
        kind, one = user.args[1], user.meta["val"]
        with graph.inserting_before(user):
            if kind == GRAD_BIAS:
                source = given["grad_output"]
                over = [d for d in range(value(source).ndim) if d != 1]
                made = _call(graph, aten.sum.dim_IntList, source, over)
            else:
                mask = [k == kind for k in range(3)]
                call = graph.call_function(
                    aten.convolution_backward.default, (*node.args[:10], mask)
                )
                call.meta["val"] = tuple(one if chosen else None for chosen in mask)
                made = graph.call_function(operator.getitem, (call, kind))
                made.meta.update(user.meta)
        user.replace_all_uses_with(made)
        graph.erase_node(user)
    graph.erase_node(node)


def _call(graph: Graph, target: torch._ops.OpOverload, source: Node, how: list[Bound]) -> Node:
    made = graph.call_function(target, (source, how))
    made.meta["val"] = target(source.meta["val"], how)
    return made


def _order(sizes: Sequence[Bound], strides: Sequence[Bound]) -> list[int] | None:
    """The dims from the outermost in memory on, None where they leave gaps or overlap."""
    if not all(isinstance(n, int) for n in (*sizes, *strides)):
        return None
    # of dims with one stride those of size 1 come first
    order = sorted(range(len(sizes)), key=lambda d: (-strides[d], sizes[d]))
    expected = 1
    for d in reversed(order):
        if sizes[d] != 1 and strides[d] != expected:
            return None
        expected *= sizes[d]
    return order
