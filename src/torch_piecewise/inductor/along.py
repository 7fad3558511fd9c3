"""The user's ranges inside the kernels of a graph: which dims of its buffers they are of.

From the dim of the first output, or in a backward from that of its gradient, the loops of the graph
lead on: where one goes along the dim in one buffer, it goes along dims of the others that it reads
and writes. The graph's operators lead through what is no loop, such as a matrix product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import sympy
import torch
from torch._inductor import ir
from torch._inductor.graph import GraphLowering
from torch._inductor.loop_body import LoopBody, MemoryUsageType
from torch._inductor.virtualized import V
from torch.fx import Graph

from torch_piecewise.graph import rules  # noqa: F401  (registers them)
from torch_piecewise.graph.axes import CannotCut, is_tensor, shape
from torch_piecewise.graph.cutting import returned
from torch_piecewise.graph.normal import normalise
from torch_piecewise.graph.regions import Regions, find, find_from
from torch_piecewise.loops.dims import (
    Begin,
    Dim,
    Layout,
    Place,
    dim_of,
    elements_along,
    followed,
    place,
)
from torch_piecewise.loops.ir import Axis, LoopNest, walk

from .versions import size_hint

STORES = (MemoryUsageType.STORE, MemoryUsageType.STORE_REDUCTION)
NOWHERE = (sympy.S.Zero, sympy.S.Zero)  # where a buffer begins


@dataclass
class Along:
    """The ranges of one graph. `bounds` begin with 0 and end with the size of dim `dim`.

    That is of the output with number `output`, or where that is None of the input `gradient`.
    """

    bounds: tuple[sympy.Expr, ...]
    dim: int
    output: int | None
    gradient: str = ""
    known: dict[str, Dim] | None = field(default=None, repr=False)

    def dims(self) -> dict[str, Dim]:
        """The dim of each buffer that has it. Empty in a graph inside of the graph."""
        if type(V.graph) is not GraphLowering:
            return {}
        if self.known is None:
            self.known = _Search(self).found()
        return self.known

    def shown(self, number: int) -> str:
        """One of the ranges."""
        return f"[{self.bounds[number]}, {self.bounds[number + 1]})"

    @property
    def what(self) -> str:
        """The dim that they are of."""
        return f"dim {self.dim} of the {'gradient' if self.output is None else 'output'}"


@dataclass(frozen=True)
class Access:
    """One place in a body where memory is read or written."""

    buffer: str
    index: sympy.Expr
    writes: bool


def accesses(nest: LoopNest) -> Iterator[Access]:
    """What a nest reads and writes by an index."""
    for body in nest.bodies:
        for op in walk(body.block):
            if op.name in ("load", "store", "store_reduction"):
                buffer, index = op.args[:2]
                assert isinstance(buffer, str) and isinstance(index, sympy.Expr)
                yield Access(buffer, index, op.name != "load")


def places(nest: LoopNest, dims: dict[str, Dim]) -> Iterator[Place]:
    """Where the dim is in a nest: first as it is written, then as it is read."""
    own = [each for each in accesses(nest) if each.buffer in dims]
    for each in sorted(own, key=lambda access: not access.writes):
        found = place(each.index, nest.axes, dims[each.buffer], hint)
        if found is not None:
            yield found


def as_expr(bound: Any) -> sympy.Expr:
    """A size as Inductor writes it."""
    return bound.node.expr if isinstance(bound, torch.SymInt) else sympy.Integer(bound)


def hint(expr: sympy.Expr) -> float:
    """A likely value of a size, a step, or a ratio of such."""
    return float(expr) if expr.is_number else size_hint(expr)


@dataclass(frozen=True)
class _Loop:
    """The loops of one scheduler node, and what they touch."""

    axes: tuple[Axis, ...]
    accesses: tuple[Access, ...]


@dataclass
class _Search:
    """Buffers whose dim is known lead to others."""

    ranges: Along
    known: dict[str, Dim] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)

    def found(self) -> dict[str, Dim]:
        scheduler: Any = V.graph.scheduler
        nodes = [one for node in scheduler.nodes for one in node.get_nodes()]
        self.loops: dict[str, list[_Loop]] = defaultdict(list)
        for loop in map(_loop, nodes):
            for name in {each.buffer for each in loop.accesses}:
                self.loops[name].append(loop)
        self.parts = _parts_of_others()
        self.begin()
        self.follow()
        if any(isinstance(node.node, ir.ExternKernel) for node in nodes):
            for name, dim in by_operators(self.ranges):
                self.seed(name, dim)
            self.follow()
        return self.known

    def begin(self) -> None:
        """The output itself, or the gradient."""
        if self.ranges.output is None:
            self.seed(self.ranges.gradient, self.ranges.dim)
            return
        output: Any = V.graph.graph_outputs[self.ranges.output]
        layout = output.get_layout()
        step = layout.stride[self.ranges.dim]
        # a view of the buffer begins somewhere in it
        begin = (sympy.sympify(layout.offset), sympy.S.Zero)
        self.add(output.get_name(), step, self.ranges.bounds[-1], begin, sympy.S.Zero)

    def seed(self, name: str, dim: int) -> None:
        """A dim of a buffer, from its first position on."""
        layout, size = layout_of(name), self.ranges.bounds[-1]
        if layout is not None and dim < len(layout.sizes) and layout.sizes[dim] == size:
            self.add(name, layout.strides[dim], layout.sizes[dim], NOWHERE, sympy.S.Zero)

    def add(self, name: str, step: Any, count: sympy.Expr, begin: Begin, start: sympy.Expr) -> None:
        layout = layout_of(name)
        if layout is None or name in self.known:
            return
        self.learn(name, dim_of(layout, sympy.sympify(step), count, begin, start, hint))

    def learn(self, name: str, dim: Dim | None) -> None:
        if dim is not None and name not in self.known:
            self.known[name] = dim
            self.waiting.append(name)

    def follow(self) -> None:
        while self.waiting:
            name = self.waiting.pop(0)
            dim = self.known[name]
            for other, offset, sign in self.parts[name]:
                before = elements_along((offset, sympy.S.Zero), dim.unit, dim.extent)
                if before is not None:
                    start = dim.start + sign * before / dim.step
                    self.add(other, dim.step, sympy.S.One, NOWHERE, start)
            for loop in self.loops[name]:
                self.through(loop, name, dim)

    def through(self, loop: _Loop, name: str, dim: Dim) -> None:
        """To the other buffers of a loop that goes along the dim in one of them."""
        own = (access for access in loop.accesses if access.buffer == name)
        tried = (place(access.index, loop.axes, dim, hint) for access in own)
        found = next((each for each in tried if each is not None), None)
        if found is None:
            return
        for access in loop.accesses:
            layout = layout_of(access.buffer)
            if layout is not None and access.buffer not in self.known:
                self.learn(access.buffer, followed(found, access.index, loop.axes, layout, hint))


def _loop(node: Any) -> _Loop:
    body = getattr(node, "_body", None)
    if not isinstance(body, LoopBody):
        return _Loop((), ())
    variables = (*body.iter_vars, *body.reduce_vars)
    sizes = (sympy.sympify(size) for part in body.sizes for size in part)
    touched = [
        Access(entry.buffer_name, body.indexing_exprs[entry.index_name], kind in STORES)
        for kind in (*STORES, MemoryUsageType.LOAD)
        for entry in body.memory_usage[kind]
        if entry.buffer_name is not None
    ]
    axes = tuple(Axis(v, size) for v, size in zip(variables, sizes, strict=True))
    return _Loop(axes, tuple(touched))


def layout_of(name: str) -> Layout | None:
    """Sizes and strides of a buffer or an input; None where it has none of its own."""
    buffer: Any = V.graph.try_get_buffer(name)
    if not isinstance(buffer, ir.IRNode):
        return None
    try:
        sizes, strides = buffer.get_size(), buffer.get_stride()
    except (NotImplementedError, AttributeError):
        return None
    exprs = (tuple(map(sympy.sympify, part)) for part in (sizes, strides))
    return Layout(*exprs)


def _parts_of_others() -> dict[str, list[tuple[str, sympy.Expr, int]]]:
    """For a buffer those that are parts of its memory, with where they begin, and 1.

    For such a part the buffer that it is part of, with the same, and -1.
    """
    parts: dict[str, list[tuple[str, sympy.Expr, int]]] = defaultdict(list)
    for buffer in V.graph.buffers:
        layout: Any = getattr(buffer, "layout", None)
        if isinstance(layout, ir.NonOwningLayout):
            whole, offset = layout.view.get_name(), sympy.sympify(layout.view.get_layout().offset)
        elif isinstance(layout, ir.MutationLayoutSHOULDREMOVE):
            whole, offset = layout.get_buffer().get_name(), sympy.S.Zero
        else:
            continue
        parts[whole].append((buffer.get_name(), offset, 1))
        parts[buffer.get_name()].append((whole, offset, -1))
    return parts


def by_operators(ranges: Along) -> Iterator[tuple[str, int]]:
    """Buffers, and dims of them that the operators of the graph lead to from that of the ranges."""
    given, buffers = cast(Any, V.graph.module), cast(Any, V.graph.buffers)
    copies: dict[Any, Any] = {}
    graph = Graph()
    graph.output(graph.graph_copy(given.graph, copies))
    for node, copied in copies.items():
        copied.meta = dict(node.meta)
    normalise(graph)
    regions = _regions(graph, ranges)
    if regions is None:
        return
    size = ranges.bounds[-1]
    dims = {
        node.name: dim
        for stage in regions.stages
        for node, (_, dim) in stage.cuts.items()
        if is_tensor(node) and as_expr(shape(node)[dim]) == size
    }
    names = {node.name: dims[copied.name] for node, copied in copies.items() if copied.name in dims}
    order = {node: number for number, node in enumerate(given.graph.nodes)}
    for buffer in buffers:
        # one that Inductor made for a reader's sake has its operators alone: the last is its value
        own = [node for node in buffer.get_origins() if node in order]
        origin = buffer.get_origin_node() or max(own, key=order.__getitem__, default=None)
        if origin is not None and origin.name in names:
            yield buffer.get_name(), names[origin.name]


def _regions(graph: Graph, ranges: Along) -> Regions | None:
    if ranges.output is None:
        node = next((n for n in graph.nodes if n.name == ranges.gradient), None)
        return None if node is None else find_from(graph, {node: ranges.dim})
    target = returned(graph)[ranges.output]
    try:
        return find(graph, target, ranges.dim) if target.op == "call_function" else None
    except CannotCut:  # the loops alone say which dims there are
        return None
