"""What every rule is tested with: each range of a value computed apart equals the uncut value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves, tree_map

import torch_piecewise.graph.rules  # noqa: F401  (all of them)
from torch_piecewise.graph.axes import PARTIAL_RULES, CannotCut, Range, cut_along, is_tensor
from torch_piecewise.graph.axes import value as values_of
from torch_piecewise.graph.pieces import Input, PieceGraph, build, finished

WHOLE = "whole"


def traced(fn: Callable[..., Any], args: Sequence[Any]) -> torch.fx.GraphModule:
    """The ATen graph of a function, its values fake."""
    return make_fx(fn, tracing_mode="fake")(*args)


def calls(gm: torch.fx.GraphModule) -> list[Node]:
    return [n for n in gm.graph.nodes if n.op == "call_function" and is_tensor(n)]


def ranges(size: int) -> list[Range]:
    """Ranges of an odd size, an even one, size 1, and what is left."""
    bounds = sorted({0, min(3, size), min(5, size), min(6, size), size})
    return [Range(a, b) for a, b in zip(bounds, bounds[1:])]


def real(given: Any, values: dict[Node, Any]) -> Any:
    assert isinstance(given, Input)
    found = values[given.node]
    if given.dim is None or given.range is None:
        return found
    tensor = found if isinstance(found, Tensor) else next(t for t in found if torch.is_tensor(t))
    return tensor.narrow(given.dim, given.range.start, given.range.size)


def all_values(gm: torch.fx.GraphModule, args: Sequence[Any]) -> dict[Node, Any]:
    """The value of every node of the graph."""
    values: dict[Node, Any] = {}

    class Keeping(torch.fx.Interpreter):
        def run_node(self, n: Node) -> Any:
            values[n] = super().run_node(n)
            return values[n]

    Keeping(gm).run(*args)
    return values


def run(piece: PieceGraph, result: Node, values: dict[Node, Any]) -> Any:
    module = finished(piece, [result])
    (found,) = module(*[real(given, values) for given in piece.inputs])
    return found


def check(
    fn: Callable[..., Any], *args: Any, refused: dict[int, str] | None = None, node: int = -1
) -> None:
    """Cut the last call of `fn` (or call number `node`) along every dim of its value.

    `refused` gives the dims that can't be cut, with the code of the reason, or not in every range;
    every other dim must be cut, and give what the whole gives, in every range.
    """
    refused = refused or {}
    gm = traced(fn, args)
    call = calls(gm)[node]
    values = all_values(gm, args)
    whole = values[call]
    first = next(t for t in tree_leaves(whole) if isinstance(t, Tensor))
    for dim in range(first.ndim):
        try:
            cut = cut_along(call, dim)
        except CannotCut as error:
            assert refused.get(dim) == error.code, (dim, error.code, str(error))
            continue
        unaligned = 0
        for each in ranges(first.shape[dim]):
            try:
                piece, found = build({call: (cut, dim)}, {call: each})
            except CannotCut as error:
                assert error.code == "unaligned" and dim in refused, (dim, error.code, str(error))
                unaligned += 1
                continue
            got = run(piece, found[call], values)
            compare(got, whole, dim, each)
            traced_values = tree_leaves(found[call].meta["val"])
            for t, fake in zip(tree_leaves(got), traced_values, strict=True):
                if isinstance(t, Tensor):
                    assert t.shape == fake.shape and t.dtype == fake.dtype
        assert bool(unaligned) == (dim in refused), f"dim {dim}: {unaligned} ranges were refused"


def compare(got: Any, whole: Any, dim: int, each: Range) -> None:
    for part, all_ in zip(tree_leaves(got), tree_leaves(whole), strict=True):
        if isinstance(all_, Tensor):
            want = all_.narrow(dim, each.start, each.size)
            torch.testing.assert_close(part, want, equal_nan=True)
            assert part.dtype == want.dtype


def check_partial(
    fn: Callable[..., Any], *args: Any, dim: int, node: int = -1, source: int = 0
) -> None:
    """Reduce range by range over a dim of a tensor input, by number, combine, and compare."""
    gm = traced(fn, args)
    call = calls(gm)[node]
    values = all_values(gm, args)
    given = [n for n in call.all_input_nodes if is_tensor(n)][source]
    partial = PARTIAL_RULES[call.target](call, given, dim)
    size = values[given].shape[dim]
    parts, sizes = [], []
    for each in ranges(size):
        piece = PieceGraph({}, {})
        result = partial.emit(piece, each)
        parts.append(run(piece, result, values))
        sizes.append(each.size)
    combined = PieceGraph({}, {})
    holders = []
    for k, part in enumerate(parts):
        holder = combined.graph.placeholder(f"part_{k}")
        mode = values_of(given).fake_mode
        holder.meta["val"] = tree_map(mode.from_tensor, part)
        holders.append(holder)
    result = partial.combine(combined, holders, sizes)
    module = finished(combined, [result])
    (got,) = module(*[real(each, values) for each in combined.inputs], *parts)
    for a, b in zip(tree_leaves(got), tree_leaves(values[call]), strict=True):
        if isinstance(b, Tensor):
            torch.testing.assert_close(a, b, equal_nan=True)
            assert a.dtype == b.dtype and a.shape == b.shape
