"""Executes a nest on tensors: the slow reference that everything else is compared with.

Each body runs over the whole grid of its axes at once: a value is a tensor that broadcasts to the
grid. A point that a mask switches off neither loads, stores nor checks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from . import arithmetic as arith
from .dtypes import promote
from .evaluate import NoEvaluator, evaluate
from .ir import Arg, Block, Body, LoopNest, Op, Ref
from .ops import OPS, bind
from .reductions import reduce


class OutOfBounds(IndexError):
    """An index outside of its buffer (or of the size that a check gives), at an active point."""

    def __init__(self, body: str, op: Op, buffer: str | None, index: int, size: int) -> None:
        what = f"of {buffer} " if buffer else ""
        super().__init__(
            f"body {body}, op %{op.id} = {op.name}: index {index} {what}is outside [0, {size})"
        )
        self.body, self.op, self.buffer, self.index, self.size = body, op, buffer, index, size


class AssertFailed(AssertionError):
    """A `device_assert_async` whose condition is false at an active point."""


def run(
    nest: LoopNest, buffers: Mapping[str, torch.Tensor], symbols: Mapping[str, int] | None = None
) -> None:
    """Executes `nest` in place on `buffers`: flat tensors, in elements, of the declared dtypes.

    `symbols` gives the value of every size symbol by name. Raises `OutOfBounds`, `AssertFailed`,
    `NoEvaluator`, and ValueError where buffers or symbols don't fit the nest.
    """
    run_parts([nest], buffers, symbols)


def run_parts(
    parts: Sequence[LoopNest],
    buffers: Mapping[str, torch.Tensor],
    symbols: Mapping[str, int] | None = None,
) -> None:
    """Executes nests that reduce into the same values: one nest limited to parts of its reductions.

    The parts have the same bodies over the same iteration axes. What runs over no reduction axis
    runs once; the value of a reduction is there when the last part has added to it.
    """
    nest = parts[0]
    sizes = _sizes(nest, symbols or {})
    _check_buffers(nest, buffers)
    reduced = {axis.symbol for axis in nest.axes if axis.reduce}
    for bodies in zip(*(part.bodies for part in parts), strict=True):
        over = reduced.intersection((*bodies[0].iterate, *bodies[0].reduce))
        carried: Carried = {}
        for place, body in enumerate(bodies if over else bodies[:1], start=1):
            last = place == len(parts) or not over
            try:
                _BodyRun(parts[place - 1], body, buffers, sizes, carried, last).run()
            except NoEvaluator as error:
                raise NoEvaluator(f"nest {nest.name}, body {body.name}: {error}") from None


def _check_buffers(nest: LoopNest, buffers: Mapping[str, torch.Tensor]) -> None:
    for name, dtype in nest.buffers:
        if name not in buffers:
            raise ValueError(f"nest {nest.name} needs the buffer {name!r}")
        given = buffers[name]
        if given.dim() != 1 or given.dtype != dtype:
            raise ValueError(
                f"buffer {name!r} must be 1-D {dtype}, not {given.dim()}-D {given.dtype}"
            )


def _sizes(nest: LoopNest, symbols: Mapping[str, int]) -> dict[sympy.Basic, torch.Tensor | int]:
    sizes: dict[sympy.Basic, torch.Tensor | int] = {}
    for size in nest.symbols:
        value = symbols.get(str(size.symbol))
        high = math.inf if size.high is None else size.high
        if value is None or not size.low <= value <= high:
            raise ValueError(f"{size.symbol} must be in [{size.low}, {high}], not {value}")
        sizes[size.symbol] = value
    return sizes


@dataclass
class _Scope:
    """What a block sees: values by number, indices by symbol, and which points are active."""

    values: dict[int, Any]
    env: dict[sympy.Basic, torch.Tensor | int]
    active: torch.Tensor

    def inner(self, mask: torch.Tensor) -> _Scope:
        return _Scope(dict(self.values), dict(self.env), self.active & mask)


# The elements that earlier parts gave to each reduction of a body, by its number and operand.
Carried = dict[int, list[torch.Tensor]]


class _BodyRun:
    """One body over its grid. Methods named `do_<operation>` do what no evaluator can."""

    def __init__(
        self,
        nest: LoopNest,
        body: Body,
        buffers: Mapping[str, torch.Tensor],
        sizes: Mapping[sympy.Basic, torch.Tensor | int],
        carried: Carried,
        last: bool,
    ) -> None:
        self.body = body
        self.carried, self.last = carried, last
        self.reductions = 0  # met so far
        self.buffers = buffers
        axes = [nest.axis(symbol) for symbol in (*body.iterate, *body.reduce)]
        # A body without axes runs once; one dimension at least lets torch promote by dtype alone.
        self.shape = [int(evaluate(axis.size, sizes)) for axis in axes] or [1]
        self.outer = len(body.iterate) or (0 if body.reduce else 1)
        self.env = dict(sizes)
        for place, axis in enumerate(axes):
            shape = [1] * len(self.shape)
            shape[place] = self.shape[place]
            self.env[axis.symbol] = torch.arange(self.shape[place]).reshape(shape)

    def run(self) -> None:
        if 0 in self.shape[: self.outer]:
            return
        active = torch.ones(self.shape, dtype=torch.bool)
        self.block(self.body.block, _Scope({}, self.env, active))

    def block(self, block: Block, scope: _Scope) -> Any:
        for op in block.ops:
            scope.values[op.id] = self.op(op, scope)
        return self.operand(block.result, scope)

    def op(self, op: Op, scope: _Scope) -> Any:
        bound = bind(op)
        for param in OPS[op.name].params:
            if param.kind in ("value", "values"):
                bound[param.name] = self.operand(bound[param.name], scope)
        special = getattr(self, f"do_{op.name}", None)
        if special is not None:
            return special(op, scope, **bound)
        evaluator = OPS[op.name].evaluate
        if evaluator is None:
            raise NoEvaluator(f"op %{op.id}: {op.name} has no evaluator")
        values = [p.name for p in OPS[op.name].params if p.kind == "value"]
        bound |= zip(values, _tensors([bound[name] for name in values]), strict=True)
        return evaluator(*bound.values())

    def operand(self, arg: Arg, scope: _Scope) -> Any:
        if isinstance(arg, tuple):
            return tuple(self.operand(part, scope) for part in arg)
        return scope.values[arg.id] if isinstance(arg, Ref) else arg

    def require(self, op: Op, bad: Any, index: Any, size: Any, buffer: str | None) -> None:
        """Raises for the first point that is bad."""
        if bool(bad.any()):
            wrong, index, size = torch.broadcast_tensors(bad, index, arith.tensor(size))
            values = int(index[wrong][0]), int(size[wrong][0])
            raise OutOfBounds(self.body.name, op, buffer, *values)

    # ---- indices and memory

    def do_index_expr(self, op: Op, scope: _Scope, expr: Any, dtype: torch.dtype) -> torch.Tensor:
        return evaluate(expr, scope.env).to(dtype)

    do_value_expr = do_index_expr

    def do_constant(self, op: Op, scope: _Scope, value: Any, dtype: torch.dtype) -> torch.Tensor:
        wide = torch.float64 if isinstance(value, float) else None
        return torch.tensor([value], dtype=wide).to(dtype)

    def load(self, op: Op, name: str, index: torch.Tensor, active: torch.Tensor) -> torch.Tensor:
        buffer = self.buffers[name]
        size = buffer.numel()
        inside = (index >= 0) & (index < size)
        self.require(op, active & ~inside, index, size, name)
        if size == 0:  # and no point is active
            return torch.zeros((1,), dtype=buffer.dtype)
        loaded = active & inside
        return torch.where(
            loaded, buffer[torch.where(loaded, index, 0)], torch.zeros_like(buffer[:1])
        )

    def do_load(self, op: Op, scope: _Scope, name: str, index: Any) -> torch.Tensor:
        return self.load(op, name, evaluate(index, scope.env), scope.active)

    def do_load_seed(self, op: Op, scope: _Scope, name: str, offset: Any) -> torch.Tensor:
        return self.do_load(op, scope, name, offset)

    def do_store(
        self, op: Op, scope: _Scope, name: str, index: Any, value: Any, mode: str | None
    ) -> None:
        self.store(op, name, evaluate(index, scope.env), value, scope.active, mode)

    def do_store_reduction(self, op: Op, scope: _Scope, name: str, index: Any, value: Any) -> None:
        if not self.last:
            return
        points = self.shape[: self.outer] + [1] * len(self.body.reduce)
        active = torch.ones(points, dtype=torch.bool)
        self.store(op, name, evaluate(index, scope.env), value, active, None)

    def store(
        self, op: Op, name: str, index: Any, value: Any, active: torch.Tensor, mode: str | None
    ) -> None:
        buffer = self.buffers[name]
        size = buffer.numel()
        self.require(op, active & ((index < 0) | (index >= size)), index, size, name)
        where = index.expand(active.shape)[active]
        what = arith.tensor(value).to(buffer.dtype).expand(active.shape)[active]
        buffer.index_put_((where,), what, accumulate=mode == "atomic_add")

    def do_indirect_indexing(
        self, op: Op, scope: _Scope, symbol: Any, value: Any, size: Any, check: Any, wrap_neg: Any
    ) -> None:
        index, size = arith.tensor(value).to(torch.int64), evaluate(size, scope.env)
        if wrap_neg:
            index = torch.where(index < 0, index + size, index)
        if check:
            bad = scope.active & ((index < 0) | (index >= size))
            self.require(op, bad, index, size, None)
        scope.env[symbol] = index

    # ---- checks and masks

    def do_check_bounds(
        self, op: Op, scope: _Scope, expr: Any, size: Any, lower: Any, upper: Any
    ) -> None:
        index, size = evaluate(expr, scope.env), evaluate(size, scope.env)
        bad = torch.zeros_like(scope.active)
        if lower:
            bad = bad | (index < 0)
        if upper:
            bad = bad | (index >= size)
        self.require(op, bad & scope.active, index, size, None)

    def do_device_assert_async(self, op: Op, scope: _Scope, cond: Any, msg: Any) -> torch.Tensor:
        """Gives its condition: Inductor stores the value, in a buffer that nothing reads."""
        holds = arith.tensor(cond).to(torch.bool)
        if bool((scope.active & ~holds).any()):
            raise AssertFailed(f"body {self.body.name}, op %{op.id}: {msg}")
        return holds

    def do_masked(self, op: Op, scope: _Scope, mask: Any, body: Block, other: Any) -> torch.Tensor:
        mask = arith.tensor(mask).to(torch.bool)
        value = arith.tensor(self.block(body, scope.inner(mask)))
        return torch.where(mask, value, arith.tensor(other).to(value.dtype))

    # ---- operations with several values

    def do_reduction(
        self, op: Op, scope: _Scope, dtype: Any, src_dtype: Any, reduction_type: str, value: Any
    ) -> Any:
        parts = value if isinstance(value, tuple) else (value,)
        count = math.prod(self.shape[self.outer :])
        flat = []
        for part in parts:
            full = arith.tensor(part).expand(self.shape)
            flat.append(full.reshape(*self.shape[: self.outer], count).movedim(-1, 0))
        before = self.carried.get(self.reductions)
        if before is not None:
            flat = [torch.cat(both) for both in zip(before, flat, strict=True)]
        self.carried[self.reductions] = flat
        self.reductions += 1
        results = reduce(reduction_type, dtype, flat)
        ones = [1] * len(self.body.reduce)
        results = tuple(r.reshape(*self.shape[: self.outer], *ones) for r in results)
        return results if len(results) > 1 else results[0]

    def do_getitem(self, op: Op, scope: _Scope, value: Any, index: Any) -> Any:
        return value[index]

    def do_bucketize(
        self, op: Op, scope: _Scope, values: Any, boundaries: Any, boundary_indices: Any,
        indexing_dtype: Any, right: Any, sorter: Any, sorter_indices: Any,
    ) -> torch.Tensor:  # fmt: skip
        """How many boundaries are below the value (`right`: not above it).

        `boundaries` is (buffer, count, size of the buffer, stride); a search starts at its
        `boundary_indices`. Each boundary is compared, as they are few and sorted.
        """
        name, count, _, stride = boundaries
        values, start = arith.tensor(values), arith.tensor(boundary_indices)
        stride = evaluate(stride, scope.env)
        result = torch.zeros(1, dtype=torch.int64)
        for place in range(int(evaluate(count, scope.env))):
            rank = torch.tensor([place])
            if sorter is not None:
                at = rank * evaluate(sorter[1], scope.env) + self.operand(sorter_indices, scope)
                rank = self.load(op, sorter[0], at, scope.active)
            boundary = self.load(op, name, start + rank * stride, scope.active)
            below = boundary <= values if right else boundary < values
            result = result + (below | values.isnan())
        return result.to(indexing_dtype)


def _tensors(values: list[Any]) -> list[torch.Tensor]:
    """Python numbers as tensors of the dtype that they have beside the other operands."""
    known = [v.dtype if isinstance(v, torch.Tensor) else v for v in values]
    dtype = promote(known)
    return [v if isinstance(v, torch.Tensor) else torch.tensor([v], dtype=dtype) for v in values]
