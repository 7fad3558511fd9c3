"""Fold a block for one box: whatever the box decides disappears.

Comparisons of indices become constants, `where` and `masked` take the side that is left, wraps
and floors in index expressions become affine, and bounds checks go where they are proven. Nothing
is dropped on hope: a check, a store or an indirect index that may fail stays.

Every rule is in `RULES`; removing one changes the generated code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import sympy
import torch

from .bounds import Bounds, Watch, compare, simplify
from .dead import without_dead
from .ir import Arg, Block, Body, Builder, Dtype, LoopNest, Op, Ref
from .ops import OPS


@dataclass(frozen=True)
class Known:
    """A value known when compiling: a constant, or an index expression, in a dtype."""

    value: bool | int | float | sympy.Expr
    dtype: torch.dtype

    @property
    def truth(self) -> bool | None:
        return self.value if isinstance(self.value, bool) else None


Value = Known | Ref
Operand = Arg | Known


def fold(nest: LoopNest, watch: Watch | None = None, within: Bounds | None = None) -> LoopNest:
    """The nest with everything folded that holds over the whole of its axes, or `within` bounds."""
    bounds = within or Bounds.of(nest.axes, nest.symbols)
    ids = count()

    def change(body: Body) -> Block:
        folder = Folder(bounds, watch or Watch(), Builder(ids))
        folder.run(body.block)
        return without_dead(folder.builder.block())

    return nest.with_blocks(change)


@dataclass(frozen=True)
class Turnless(Watch):
    """Passes all on but where a magnitude turns.

    In an address the turn is a boundary. As a value a magnitude costs next to nothing, and a
    comparison of it says where its own places are: |i - j| < 3 has none at i = j.
    """

    watch: Watch

    def sign(self, expr: sympy.Expr) -> None:
        self.watch.sign(expr)

    def wrap(self, base: sympy.Expr, period: sympy.Expr) -> None:
        self.watch.wrap(base, period)

    def turn(self, inner: sympy.Expr) -> None:
        pass


class Folder:
    """Rewrites one block; inner blocks get a folder of their own that shares the environment."""

    def __init__(
        self,
        bounds: Bounds,
        watch: Watch,
        builder: Builder,
        outer: Folder | None = None,
    ):
        self.bounds = bounds
        self.watch = watch
        self.builder = builder
        self.values: dict[int, Value] = outer.values if outer else {}
        self.dtypes: dict[int, Dtype] = outer.dtypes if outer else {}
        # each block writes its own constants: Inductor's sub-blocks see no value from outside
        self.emitted: dict[str, Ref] = {}

    def run(self, block: Block) -> Operand:
        """Fold the block's operations into the builder; its result as a value of the new block."""
        for op in block.ops:
            self.values[op.id] = self.step(op)
        return self.read(block.result)

    def step(self, op: Op) -> Value:
        heard = self.watch if op.name != "index_expr" else Turnless(self.watch)
        args = tuple(self.read(a, heard) for a in op.args)
        rule = RULES.get(op.name)
        folded = rule(self, op, self.positional(op, args)) if rule else None
        return folded if folded is not None else self.emit(op, args)

    def positional(self, op: Op, args: tuple[Operand, ...]) -> tuple[Operand, ...]:
        """The arguments as rules unpack them: all by position, defaults filled in."""
        if not op.kwargs and len(args) == len(OPS[op.name].params):
            return args
        bound = OPS[op.name].bind(op.args, dict(op.kwargs))
        return tuple(self.read(bound[p.name]) for p in OPS[op.name].params)

    def read(self, arg: Arg, watch: Watch | None = None) -> Operand:
        """An argument with old references replaced and index expressions simplified."""
        if isinstance(arg, Ref):
            return self.values[arg.id]
        if isinstance(arg, tuple):
            return tuple(self.read(a, watch) for a in arg)  # type: ignore[return-value]
        if isinstance(arg, sympy.Expr):
            return simplify(arg, self.bounds, watch or self.watch)
        return arg

    def emit(self, op: Op, args: tuple[Operand, ...]) -> Ref:
        """Write an operation that stays, with the values it needs."""
        if op.name == "masked":
            return self.masked(op, args)
        written = tuple(self.write(a) for a in args)
        kwargs = tuple((k, self.write(self.read(v))) for k, v in op.kwargs)
        return self.new(op.name, written, kwargs, op.dtype)

    def new(
        self,
        name: str,
        args: tuple[Arg, ...],
        kwargs: tuple[tuple[str, Arg], ...] = (),
        dtype: Dtype = None,
    ) -> Ref:
        ref = self.builder.emit(name, args, kwargs, dtype)
        self.dtypes[ref.id] = dtype
        return ref

    def write(self, arg: Operand) -> Arg:
        """An operand as an argument: known values are written out where they are first needed."""
        if isinstance(arg, tuple):
            return tuple(self.write(a) for a in arg)
        if not isinstance(arg, Known):
            return arg
        key = repr(arg)  # 0.0 and -0.0, or 1 and True, are equal but not the same constant
        if key not in self.emitted:
            name = "index_expr" if isinstance(arg.value, sympy.Expr) else "constant"
            self.emitted[key] = self.new(name, (arg.value, arg.dtype), (), arg.dtype)
        return self.emitted[key]

    def masked(self, op: Op, args: tuple[Operand, ...]) -> Ref:
        mask, block, other = self.write(args[0]), op.args[1], self.write(args[2])
        assert isinstance(block, Block)
        inner = Folder(self.bounds, self.watch, self.builder.inner(), self)
        result = inner.write(inner.run(block))
        return self.new("masked", (mask, inner.builder.block(result), other), (), op.dtype)

    def expression(self, value: Operand) -> sympy.Expr | int | float | None:
        """The exact number that a known value stands for, None where its dtype may round it."""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = Known(value, torch.int64 if isinstance(value, int) else torch.float64)
        if not isinstance(value, Known) or isinstance(value.value, bool):
            return None
        if isinstance(value.value, sympy.Expr):
            low, high = self.bounds.interval(value.value)
            return value.value if _exact(low, high, value.dtype) else None
        return _number(value.value, value.dtype)


def _number(value: int | float, dtype: torch.dtype) -> int | float | None:
    """The constant as its dtype holds it, an int where it is whole."""
    if not math.isfinite(value) or not _exact(value, value, dtype):
        return None
    if dtype in (torch.float32, torch.float64):
        value = torch.tensor(value, dtype=dtype).item()
    elif not float(value).is_integer():
        return None  # rounded in a way of the generated code's own
    return int(value) if float(value).is_integer() else value


def _exact(low: float, high: float, dtype: torch.dtype) -> bool:
    """Whether every integer of [low, high] is a value of the dtype."""
    if math.isinf(low) or math.isinf(high) or dtype is torch.bool or dtype.is_complex:
        # an unbounded index is exact in the type that Inductor computes indices in
        return dtype is torch.int64
    if dtype.is_floating_point:
        limit = 2 / torch.finfo(dtype).eps
        return -limit <= low and high <= limit
    return torch.iinfo(dtype).min <= low and high <= torch.iinfo(dtype).max


def _truth(value: bool) -> Known:
    return Known(value, torch.bool)


def _constant(folder: Folder, op: Op, args: tuple[Operand, ...]) -> Value | None:
    value, dtype = args
    assert isinstance(dtype, torch.dtype)
    if isinstance(value, (bool, int, float)) and not isinstance(value, complex):
        if dtype is torch.bool:
            return _truth(bool(value))
        return Known(value, dtype)
    return None


def _index(folder: Folder, op: Op, args: tuple[Operand, ...]) -> Value | None:
    value, dtype = args
    assert isinstance(dtype, torch.dtype)
    if isinstance(value, sympy.Integer):
        return _constant(folder, op, (int(value), dtype))
    return Known(value, dtype) if isinstance(value, sympy.Expr) else None


def _comparison(folder: Folder, op: Op, args: tuple[Operand, ...]) -> Value | None:
    left, right, name = folder.expression(args[0]), folder.expression(args[1]), op.name
    if isinstance(left, float):
        left, right, name = right, left, _MIRROR[name]
    if left is None or right is None or isinstance(left, float):
        return None
    if isinstance(right, float):  # no integer equals it; the next one decides the same
        if name in ("eq", "ne"):
            return _truth(name == "ne")
        right = math.ceil(right) if name in ("lt", "ge") else math.floor(right)
    said = compare(name, sympy.sympify(left), sympy.sympify(right), folder.bounds, folder.watch)
    return None if said is None else _truth(said)


_MIRROR = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


def _junction(absorbing: bool) -> Callable[[Folder, Op, tuple[Operand, ...]], Value | None]:
    """and (absorbed by False) or or (absorbed by True), on truth values."""

    def rule(folder: Folder, op: Op, args: tuple[Operand, ...]) -> Value | None:
        if op.dtype is not torch.bool:
            return None
        for one, other in (args, args[::-1]):
            if isinstance(one, Known) and one.truth is not None:
                if one.truth == absorbing:
                    return _truth(absorbing)
                return _as_bool(folder, other)
        return None

    return rule


def _as_bool(folder: Folder, value: Operand) -> Value | None:
    """The value itself where it is known to be a bool (logical_and takes any dtype)."""
    if isinstance(value, Known):
        return value if value.truth is not None else None
    if isinstance(value, Ref) and folder.dtypes.get(value.id) is torch.bool:
        return value
    return None


def _not(folder: Folder, op: Op, args: tuple[Operand, ...]) -> Value | None:
    (value,) = args
    if op.dtype is torch.bool and isinstance(value, Known) and value.truth is not None:
        return _truth(not value.truth)
    return None


def _where(folder: Folder, op: Op, args: tuple[Operand, ...]) -> Value | None:
    condition, yes, no = args
    if not isinstance(condition, Known) or condition.truth is None:
        return None
    side = yes if condition.truth else no
    return _in_dtype(folder, side, op.dtype)


def _in_dtype(folder: Folder, value: Operand, dtype: Dtype) -> Value | None:
    """A side of `where` as the dtype of the whole, None where that is not plain to see."""
    if isinstance(value, Known):
        if dtype is None or value.dtype == dtype:
            return value if dtype is not None else None
        return _convert(folder, value, dtype)
    if not isinstance(value, Ref):
        return None
    own = folder.dtypes.get(value.id)
    return value if own is not None and own == dtype else None


def _masked(folder: Folder, op: Op, args: tuple[Operand, ...]) -> Value | None:
    mask, block, other = args
    if not isinstance(mask, Known) or mask.truth is None:
        return None
    assert isinstance(block, Block)
    if not mask.truth:
        return _as_value(folder, op, other)
    if not isinstance(block.result, Ref) and _as_value(folder, op, block.result) is None:
        return None  # before anything of the block is written
    return _as_value(folder, op, folder.run(block))


def _as_value(folder: Folder, op: Op, result: Operand) -> Value | None:
    """What a masked block gives, or stands for it, as a value of the operation's dtype."""
    if isinstance(result, (Known, Ref)):
        return result
    if op.dtype is None or not isinstance(result, (bool, int, float)):
        return None
    number = float(result) if op.dtype.is_floating_point else result
    return _constant(folder, op, (number, op.dtype))


def _convert(folder: Folder, value: Known, dtype: torch.dtype) -> Known | None:
    """A known value in another dtype where that changes no bit of its meaning."""
    if value.truth is not None:
        if dtype is torch.bool:
            return value
        return Known(float(value.truth) if dtype.is_floating_point else int(value.truth), dtype)
    if value.value == 0 and math.copysign(1.0, value.value) < 0:
        return Known(value.value, dtype) if dtype.is_floating_point else None
    number = folder.expression(value)
    if number is None or isinstance(number, float) or dtype is torch.bool:
        return None
    low, high = (
        folder.bounds.interval(number) if isinstance(number, sympy.Expr) else (number, number)
    )
    if not _exact(low, high, dtype):
        return None
    if isinstance(number, sympy.Expr):
        return Known(number, dtype)
    return Known(float(number) if dtype.is_floating_point else int(number), dtype)


def _to_dtype(folder: Folder, op: Op, args: tuple[Operand, ...]) -> Value | None:
    value, dtype = args[0], args[1]
    if isinstance(value, Known) and isinstance(dtype, torch.dtype):
        return _convert(folder, value, dtype)
    return None


def _check_bounds(folder: Folder, op: Op, args: tuple[Operand, ...]) -> Value | None:
    expr, size, lower, upper = args
    assert isinstance(expr, (sympy.Expr, int)) and isinstance(size, (sympy.Expr, int))
    index, limit = sympy.sympify(expr), sympy.sympify(size)
    lower = bool(lower) and folder.bounds.negative(index) is not False
    upper = bool(upper) and folder.bounds.negative(index - limit) is not True
    if lower or upper:
        return folder.new(op.name, (index, limit, lower, upper), op.kwargs)
    return _truth(True)  # nothing reads it


def _indirect(folder: Folder, op: Op, args: tuple[Operand, ...]) -> Value | None:
    symbol, _, size, check, _ = args
    if check:  # once checked, the index is inside
        assert isinstance(symbol, sympy.Symbol)
        high = sympy.sympify(size) - 1
        folder.bounds = folder.bounds.with_axis(symbol, sympy.Integer(0), high)
    return None


Rule = Callable[[Folder, Op, tuple[Operand, ...]], Value | None]
RULES: dict[str, Rule] = {
    "constant": _constant,
    "index_expr": _index,
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne"), _comparison),
    **dict.fromkeys(("and_", "logical_and", "bitwise_and"), _junction(False)),
    **dict.fromkeys(("or_", "logical_or", "bitwise_or"), _junction(True)),
    **dict.fromkeys(("logical_not", "bitwise_not"), _not),
    "where": _where,
    "masked": _masked,
    "to_dtype": _to_dtype,
    "check_bounds": _check_bounds,
    "indirect_indexing": _indirect,
}
