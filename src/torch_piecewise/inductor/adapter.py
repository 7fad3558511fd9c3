"""Between Inductor's `LoopBody` and the loop IR, both ways.

`to_nest` reads the bodies of the scheduler nodes that Inductor fused into one loop; `to_body`
traces a body of the IR into a new `LoopBody`, so that codegen stays Inductor's.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import sympy
import torch
from torch._inductor.dependencies import index_vars_no_squeeze
from torch._inductor.index_propagation import IndexPropagation
from torch._inductor.loop_body import LoopBody, LoopBodyBlock
from torch._inductor.scheduler import SchedulerNode
from torch._inductor.virtualized import V

from torch_piecewise.loops import ops as spec
from torch_piecewise.loops.ir import (
    Arg,
    Axis,
    Block,
    Body,
    Builder,
    LoopNest,
    Op,
    Ref,
    Symbol,
    axis_symbol,
    indirect_symbol,
    walk,
)

from . import spaces


class NotInIR(Exception):
    """The nest can't be expressed in the loop IR; `code` is stable, the message says why."""

    def __init__(self, code: str, text: str):
        super().__init__(text)
        self.code = code


Sizes = tuple[tuple[sympy.Expr, ...], tuple[sympy.Expr, ...]]


def to_nest(nodes: Sequence[SchedulerNode]) -> LoopNest:
    """The nest that these fused nodes make; raises NotInIR."""
    sizes = [_sizes(n) for n in nodes]
    iterate, reduce = max(sizes, key=lambda s: len(s[1]))  # as CppKernelProxy picks the loops
    unlike = set(sizes) - {(iterate, reduce), ((*iterate, *reduce), ()), (iterate, ())}
    if unlike and not reduce:
        iterate = spaces.refined([own for own, _ in sizes]) or iterate
    elif unlike and not isinstance(nodes[0].group[1][0], tuple):  # on a GPU
        iterate, reduce = spaces.with_reduction(sizes) or (iterate, reduce)
    axes = (
        *(Axis(axis_symbol("i", k), s) for k, s in enumerate(iterate)),
        *(Axis(axis_symbol("r", k), s, True) for k, s in enumerate(reduce)),
    )
    buffers: dict[str, torch.dtype] = {}
    ids, indirect = count(), count()
    bodies = tuple(
        _Reader(node, axes, (iterate, reduce), buffers, Builder(ids), indirect).body()
        for node in nodes
    )
    nest = LoopNest(nodes[0].get_name(), axes, bodies, tuple(buffers.items()))
    return LoopNest(nest.name, axes, bodies, nest.buffers, _symbols(nest))


def _sizes(node: SchedulerNode) -> Sizes:
    body = node._body
    if not isinstance(body, LoopBody):
        raise NotInIR("not-a-loop", f"{node.get_name()} is no loop: {type(body).__name__}")
    iterate, reduce = (tuple(sympy.sympify(s) for s in part) for part in body.sizes)
    if node.group[1] not in ((iterate, reduce), (sympy.prod(iterate), sympy.prod(reduce))):
        raise NotInIR("regrouped", f"{node.get_name()} runs over {node.group[1]}, not {body.sizes}")
    return iterate, reduce


def _symbols(nest: LoopNest) -> tuple[Symbol, ...]:
    """Every free size of the nest with what the shape environment knows of it."""
    own = {a.symbol for a in nest.axes}
    found: set[sympy.Symbol] = set()
    for axis in nest.axes:
        found |= axis.size.free_symbols
    for body in nest.bodies:
        for op in walk(body.block):
            if op.name == "indirect_indexing":
                own.add(op.args[0])
            for arg in (*op.args, *(v for _, v in op.kwargs)):
                if isinstance(arg, sympy.Expr):
                    found |= arg.free_symbols
    known = V.graph.sizevars.shape_env.var_to_range
    result = []
    for symbol in sorted(found - own, key=str):
        low, high = (known[symbol].lower, known[symbol].upper) if symbol in known else (None, None)
        least = int(low) if low is not None and low.is_Integer else -(2**63)
        result.append(
            Symbol(symbol, least, int(high) if high is not None and high.is_Integer else None)
        )
    return tuple(result)


def _refines(refinement: tuple[sympy.Expr, ...], sizes: tuple[sympy.Expr, ...]) -> bool:
    return sizes == refinement or spaces.refined([refinement, sizes]) == refinement


@dataclass
class _Reader:
    """Reads one node's `LoopBody`: its FX graphs become blocks."""

    node: SchedulerNode
    axes: tuple[Axis, ...]
    sizes: Sizes
    buffers: dict[str, torch.dtype]
    builder: Builder
    indirect: Any
    dtypes: dict[int, torch.dtype | None] = field(default_factory=dict)
    names: dict[sympy.Symbol, sympy.Expr] = field(default_factory=dict)

    def body(self) -> Body:
        loop = self.node._body
        iterate, reduce = self._axes()
        variables = (*loop.iter_vars, *loop.reduce_vars)
        index = [
            index
            for sizes, own in zip(loop.sizes, (iterate, reduce), strict=True)
            for index in spaces.indices(tuple(sizes), own, self._sizes_of(own))
        ]
        self.names.update(zip(variables, index, strict=True))
        block = self.block(loop.root_block, self.builder)
        return Body(self.node.get_name(), iterate, reduce, Block(block.ops))

    def _axes(self) -> tuple[tuple[sympy.Symbol, ...], tuple[sympy.Symbol, ...]]:
        """Which axes of the nest this body runs over, as iteration and as reduction."""
        iterate, reduce = self.sizes
        first, second = own = _sizes(self.node)
        symbols = tuple(a.symbol for a in self.axes)
        rows, columns = symbols[: len(iterate)], symbols[len(iterate) :]
        if second and _refines(iterate, first) and _refines(reduce, second):
            return rows, columns
        if not second and _refines((*iterate, *reduce), first):
            return symbols, ()
        if not second and _refines(iterate, first):
            return rows, ()
        raise NotInIR("unlike-spaces", f"{self.node.get_name()} runs over {own}, not {self.sizes}")

    def _sizes_of(self, symbols: Sequence[sympy.Symbol]) -> tuple[sympy.Expr, ...]:
        return tuple(axis.size for axis in self.axes if axis.symbol in symbols)

    def block(self, block: LoopBodyBlock, builder: Builder) -> Block:
        values: dict[torch.fx.Node, Arg] = {}
        result: Arg = None
        for fx in block.graph.nodes:
            if fx.op == "output":
                result = self.read(fx.args[0], values)
            elif fx.op != "placeholder":
                values[fx] = self.step(fx, values, builder)
        return builder.block(result)

    def read(self, arg: Any, values: Mapping[torch.fx.Node, Arg]) -> Arg:
        if isinstance(arg, torch.fx.Node):
            return values[arg]
        if isinstance(arg, (tuple, list)):
            return tuple(self.read(a, values) for a in arg)
        if isinstance(arg, sympy.Expr):
            return self.index(arg)
        if arg is None or isinstance(arg, (bool, int, float, str, torch.dtype)):
            return arg
        raise NotInIR("unknown-argument", f"an argument of type {type(arg).__name__}: {arg!r:.80}")

    def index(self, expr: sympy.Expr) -> sympy.Expr:
        expr = sympy.sympify(expr)
        return expr.xreplace({s: self.names[s] for s in expr.free_symbols if s in self.names})

    def step(self, fx: torch.fx.Node, values: Mapping[torch.fx.Node, Arg], builder: Builder) -> Arg:
        if fx.op == "call_function" and fx.target is operator.getitem:
            item = (self.read(fx.args[0], values), self.read(fx.args[1], values))
            return self.emit(builder, "getitem", item)
        if fx.op == "call_module":
            return self.module(fx, values, builder)
        if fx.op != "call_method":
            raise NotInIR("unknown-node", f"{fx.op} {fx.target} in {self.node.get_name()}")
        args = tuple(self.read(a, values) for a in fx.args[1:])
        kwargs = tuple((k, self.read(v, values)) for k, v in fx.kwargs.items())
        if fx.target in ("load", "store", "store_reduction", "load_seed", "bucketize"):
            self.declare(args)
        return self.emit(builder, str(fx.target), args, kwargs)

    def declare(self, args: tuple[Arg, ...]) -> None:
        for arg in args:
            if isinstance(arg, str) and arg not in self.buffers:
                try:
                    self.buffers[arg] = V.graph.get_dtype(arg)
                except KeyError:
                    pass  # a mode or another word, no buffer
            elif isinstance(arg, tuple):
                self.declare(arg)

    def module(
        self, fx: torch.fx.Node, values: Mapping[torch.fx.Node, Arg], builder: Builder
    ) -> Arg:
        loop, name = self.node._body, str(fx.target)
        if name == "get_index":
            return self.index(loop.indexing_exprs[str(fx.args[0])])
        if name in loop.subblocks:
            inner = self.block(loop.subblocks[name], builder.inner())
            mask, other = (self.read(a, values) for a in fx.args)
            return self.emit(builder, "masked", (mask, inner, other))
        shim = loop.submodules[name].clone.keywords
        if "combine_fn" in shim:
            raise NotInIR("scan", spec.unsupported("scan"))
        if "var" not in shim:
            raise NotInIR("unknown-node", f"sub-module {name} in {self.node.get_name()}")
        symbol = indirect_symbol(next(self.indirect))
        self.names[shim["var"]] = symbol
        size = self.index(sympy.sympify(shim["size"]))
        value = self.read(fx.args[0], values)
        args = (symbol, value, size, bool(shim["check"]), bool(shim["wrap_neg"]))
        return self.emit(builder, "indirect_indexing", args)

    def emit(
        self,
        builder: Builder,
        name: str,
        args: tuple[Arg, ...],
        kwargs: tuple[tuple[str, Arg], ...] = (),
    ) -> Ref:
        why = spec.unsupported(name)
        if why:
            raise NotInIR("unknown-operation" if name not in ("scan", "sort") else name, why)
        try:
            dtype = spec.result_dtype(
                name, args, kwargs, lambda ref: self.dtypes.get(ref.id), self.buffers.get
            )
        except TypeError as error:
            raise NotInIR("unknown-operation", f"{name}: {error}") from error
        ref = builder.emit(name, args, kwargs, dtype)
        self.dtypes[ref.id] = dtype
        return ref


def to_body(nest: LoopNest, body: Body) -> LoopBody:
    """A `LoopBody` that does what the IR's body does, over the nest's sizes."""
    sizes = {a.symbol: a.size for a in nest.axes}
    (iterate, reduce), ranges = index_vars_no_squeeze(
        [sizes[s] for s in body.iterate], [sizes[s] for s in body.reduce], prefix="p"
    )
    symbols = (*body.iterate, *body.reduce)

    def trace(*indices: Sequence[sympy.Expr]) -> None:
        index = [e for part in indices for e in part]
        _Writer(_recorder(), dict(zip(symbols, index, strict=True)), {}).run(body.block)

    return LoopBody(trace, [iterate, reduce], ranges, iterate, reduce)


def _recorder() -> Any:
    """The handler that records operations as they are.

    Inductor puts one before it that computes with constants and index expressions as exact numbers,
    whatever their dtype. It has seen the whole nest; what folding has brought to light since must
    be rounded and wrapped at run time, as in the whole nest.
    """
    handler: Any = V.get_ops_handler()
    while isinstance(handler, IndexPropagation):
        handler = handler._inner
    return handler


@dataclass
class _Writer:
    """Replays a block on an ops handler."""

    handler: Any
    symbols: dict[sympy.Symbol, sympy.Expr]
    values: dict[int, Any]

    def run(self, block: Block) -> Any:
        for op in block.ops:
            self.values[op.id] = self.step(op)
        return self.read(block.result)

    def read(self, arg: Arg) -> Any:
        if isinstance(arg, Ref):
            return self.values[arg.id]
        if isinstance(arg, tuple):
            return tuple(self.read(a) for a in arg)
        if isinstance(arg, sympy.Expr):
            return arg.xreplace(self.symbols)
        return arg

    def step(self, op: Op) -> Any:
        if op.name == "getitem":
            return self.read(op.args[0])[op.args[1]]
        if op.name == "masked":
            return self.masked(op)
        if op.name == "indirect_indexing":
            value, size, check, wrap_neg = (self.read(a) for a in op.args[1:])
            index = self.handler.indirect_indexing(value, size, check, wrap_neg)
            self.symbols[op.args[0]] = sympy.sympify(index)
            return None
        args = [self.read(a) for a in op.args]
        return getattr(self.handler, op.name)(*args, **{k: self.read(v) for k, v in op.kwargs})

    def masked(self, op: Op) -> Any:
        mask, block, other = op.args
        assert isinstance(block, Block)

        def inner() -> Any:
            # the block is traced with a handler of its own
            return _Writer(_recorder(), self.symbols, self.values).run(block)

        return self.handler.masked(self.read(mask), inner, self.read(other))
