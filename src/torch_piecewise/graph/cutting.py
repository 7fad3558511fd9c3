"""`cut`: the splitter alone, for other backends: a graph becomes pieces that are modules."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import SymInt, Tensor
from torch._decomp import get_decompositions
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from torch_piecewise.errors import ArgumentError, RangeError

from . import rules  # noqa: F401  (registers them)
from .axes import CannotCut, Range, is_tensor, named, shape, wrapped
from .normal import normalise
from .parts import Cutter, Part
from .pieces import Handed, Into, PartOf, Size
from .ranges import WANTED, Given, checked, resolve
from .regions import Regions, find

aten = torch.ops.aten
# into what can be cut along the dim that they reduce
TAKEN_APART = [
    aten._softmax,
    aten._log_softmax,
    aten.native_layer_norm,
    aten.native_group_norm,
    aten._native_batch_norm_legit_no_training,
]


def cut(
    gm: GraphModule, example_inputs: Sequence[Any], ranges: object, dim: int = 0
) -> GraphModule:
    """A graph that computes the same in pieces, each a module of its own.

    `gm` is a graph of Dynamo's or AOTAutograd's, or any module that can be traced with
    `example_inputs`, a list. `ranges` cut `dim` of its first tensor output, as the option does:
    bounds, fractions or a number. The result's own graph slices the inputs, calls the submodules
    `piece_STAGE_RANGE`, and `whole_STAGE` for what is not cut, and joins what the pieces return. It
    is for inputs of these sizes, and returns what `gm` does; parameters are attributes of it.

    Raises RangeError for ranges that do not fit, or an operator that can't be cut, and
    ArgumentError for what is no module, no list, or has sizes that are not known.
    """
    given = checked(ranges)
    if given is None:
        raise RangeError.of(ranges, f"not {WANTED}")
    _check_arguments(gm, example_inputs)
    traced = traced_to_aten(gm, example_inputs)
    results = returned(traced.graph)
    target, number, found = target_of(results, given, dim)
    if not found:
        return traced  # a dim of no positions
    regions = regions_for(traced.graph, target, number, found, given)
    parts = parts_for(traced, regions, found, (target, number), given)
    joined = _Joined(traced, parts).module()
    sizes = [tuple(x.shape) if isinstance(x, Tensor) else None for x in example_inputs]
    joined.register_forward_pre_hook(partial(_check_sizes, sizes))
    return joined


def _check_arguments(gm: object, example_inputs: object) -> None:
    call, right = "cut(gm, example_inputs, ranges, dim)", "cut(gm, [x], [0, 256, None])"
    if not isinstance(gm, torch.nn.Module):
        raise ArgumentError.of(call, "gm", gm, "a module", right)
    if not isinstance(example_inputs, list | tuple):
        raise ArgumentError.of(call, "example_inputs", example_inputs, "a list", right)
    for k, x in enumerate(example_inputs):
        if isinstance(x, SymInt) or (isinstance(x, Tensor) and not all(map(is_int, x.shape))):
            shown = tuple(x.shape) if isinstance(x, Tensor) else x
            wanted = "known (torch.compile(..., dynamic=False))"
            raise ArgumentError(f"{call}: example_inputs[{k}] has the size {shown}, not {wanted}")


def is_int(size: object) -> bool:
    return not isinstance(size, SymInt)


def _check_sizes(sizes: Sequence[Any], module: torch.nn.Module, args: Sequence[Any]) -> None:
    """A hook of what `cut` returns: its ranges and slices are numbers."""
    for k, (size, given) in enumerate(zip(sizes, args, strict=False)):
        if size is not None and tuple(given.shape) != size:
            text = f"input {k} has the size {tuple(given.shape)}, and was cut for {size}"
            raise ArgumentError(f"a module that was cut: {text}; cut it again for this size")


def traced_to_aten(gm: torch.nn.Module, example_inputs: Sequence[Any]) -> GraphModule:
    """The ATen graph of a module; its parameters are attributes of it."""
    # sizes that depend on data are symbols of the environment, the inputs' are not
    own = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    mode = detect_fake_mode(example_inputs) or own  # AOTAutograd's inputs are of its mode

    def fake(x: Any) -> Any:
        plain = isinstance(x, Tensor) and not isinstance(x, FakeTensor)
        return mode.from_tensor(x, static_shapes=True) if plain else x

    inputs = [fake(x) for x in example_inputs]
    with mode, torch.no_grad():
        table: Any = get_decompositions(TAKEN_APART)
        traced = make_fx(gm, decomposition_table=table)(*inputs)
    for node in traced.graph.nodes:
        if node.op == "get_attr" and isinstance(getattr(traced, node.target), Tensor):
            node.meta["val"] = fake(getattr(traced, node.target))
    normalise(traced.graph)
    return traced


def returned(graph: Graph) -> list[Any]:
    """What a graph returns: nodes, or plain values."""
    return tree_leaves(graph.output_node().args)


def gradients(gm: GraphModule) -> list[Node]:
    """The first gradient of an output that a backward is given, if any."""
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    return [n for n in placeholders if n.name.startswith("tangents") and is_tensor(n)][:1]


def target_of(
    results: Sequence[Any], given: Given, dim: int
) -> tuple[Node, int, tuple[Range, ...]]:
    """The first tensor output, its dim that is cut, and the ranges; raises RangeError."""
    tensors = [n for n in results if isinstance(n, Node) and is_tensor(n)]
    if not tensors:
        raise RangeError.of(given, "the graph returns no tensor that could be cut", "no-dim")
    target = tensors[0]
    ndim = len(shape(target))
    if not -ndim <= dim < ndim:
        said = f"the first output has {ndim} dims, {tuple(shape(target))}, and no dim {dim}"
        if not ndim:
            said += ": return what has the dim before it, (output, loss), or take 'ranges' off"
        raise RangeError.of(given, said, "no-dim")
    own = wrapped(dim, ndim)
    if free_unbacked_symbols(shape(target)[own]):
        said = f"the size of dim {own} of {named(target)} depends on data, and is not known"
        raise RangeError.of(given, said, "data-dependent")
    return target, own, resolve(given, shape(target)[own], own)


def regions_for(
    graph: Graph, target: Node, dim: int, ranges: Sequence[Range], given: Given
) -> Regions:
    """The stages; raises RangeError where an operator is in the way of the user's ranges."""

    def in_the_way(where: str, why: str, code: str) -> RangeError:
        return RangeError.in_the_way(given, dim, ranges, where, why, code)

    if target.op != "call_function":
        raise in_the_way("the output", "it is an input of the graph", "input")
    try:
        regions = find(graph, target, dim)
    except CannotCut as error:
        raise in_the_way(named(error.node or target), str(error), error.code) from error
    for refused in regions.refused:
        if refused.dim is not None:  # on the way back from the target
            raise in_the_way(named(refused.node), refused.text, refused.code)
    return regions


def parts_for(
    gm: GraphModule,
    regions: Regions,
    ranges: Sequence[Range],
    of: tuple[Node, int],
    given: Given,
) -> list[Part]:
    """The graphs of the parts; `of` is the node and the dim that the ranges are of.

    Raises RangeError where a range is none for an operator.
    """
    target, dim = of
    nodes = [r for r in returned(gm.graph) if isinstance(r, Node)]
    try:
        return list(Cutter(gm.graph, regions, ranges, shape(target)[dim], nodes).parts())
    except CannotCut as error:
        where, why = "a range", str(error)
        raise RangeError.in_the_way(given, dim, ranges, where, why, error.code) from error


class _Joined:
    """The graph that calls the parts. Pieces return their ranges, which are joined here."""

    def __init__(self, traced: GraphModule, parts: Sequence[Part]):
        self.root = torch.nn.Module()
        self.traced, self.parts = traced, parts
        self.graph = Graph()
        self.made: dict[Node | PartOf, Node] = {}
        self.ranges: dict[Node, list[Node]] = {}
        for node in traced.graph.nodes:
            if node.op == "placeholder":
                self.made[node] = self.graph.placeholder(node.name)
            elif node.op == "get_attr":
                setattr(self.root, node.target, getattr(traced, node.target))
                self.made[node] = self.graph.get_attr(node.target)

    def module(self) -> GraphModule:
        for number, part in enumerate(self.parts):
            self.call(part)
            after = self.parts[number + 1].stage if number + 1 < len(self.parts) else None
            if after != part.stage:
                self.join(part)
        (results,) = self.traced.graph.output_node().args
        self.graph.output(map_arg(results, lambda node: self.made[node]))
        return GraphModule(self.root, self.graph)

    def call(self, part: Part) -> None:
        setattr(self.root, part.name, returning(part))
        given = [self.handed(each) for each in part.inputs if not isinstance(each, Into)]
        call = self.graph.call_module(part.name, tuple(given))
        names = [*part.results, *(into.node for into in part.written)]
        for k, name in enumerate(names):
            one = self.graph.call_function(_getitem, (call, k))
            if k < len(part.results):
                self.made[name] = one
            else:
                assert isinstance(name, Node)
                self.ranges.setdefault(name, []).append(one)

    def handed(self, given: Handed) -> Node:
        if isinstance(given, PartOf):
            return self.made[given]
        assert not isinstance(given, Size)  # sizes are traced as numbers
        whole = self.made[given.node]
        if given.dim is None or given.range is None:
            return whole
        start, stop = given.range.start, given.range.stop
        return self.graph.call_function(aten.slice.Tensor, (whole, given.dim, start, stop))

    def join(self, part: Part) -> None:
        """After the last piece of a stage."""
        for into in part.written:
            joined = (self.ranges[into.node], into.dim)
            self.made[into.node] = self.graph.call_function(aten.cat.default, joined)


def _getitem(values: Sequence[Any], number: int) -> Any:
    return values[number]


def returning(part: Part) -> GraphModule:
    """The part's module, with what it would write into slices of buffers as further results."""
    graph = Graph()
    made: dict[Node, Node] = {}
    slots = {k for k, each in enumerate(part.inputs) if isinstance(each, Into)}
    results: list[Any] = []
    written: dict[Node, Node] = {}
    number = 0
    placeholders = {}
    for node in part.module.graph.nodes:
        if node.op == "placeholder":
            placeholders[node] = number
            if number not in slots:
                made[node] = graph.node_copy(node, lambda n: made[n])
            number += 1
        elif node.target is aten.copy_.default and placeholders.get(node.args[0]) in slots:
            written[node.args[0]] = made[node.args[1]]
        elif node.op == "output":
            results = [made[n] for n in node.args[0]]
        else:
            made[node] = graph.node_copy(node, lambda n: made[n])
    results += [written[n] for n in placeholders if placeholders[n] in slots]
    graph.output(tuple(results))
    return GraphModule(part.module, graph)


__all__ = ["cut", "gradients", "regions_for", "returned", "target_of"]
