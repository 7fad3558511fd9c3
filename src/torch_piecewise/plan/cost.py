"""What one run of a nest takes, estimated from its operations and the memory it touches.

`count` says how often a nest does what kinds of thing, `WEIGHTS` what each takes in nanoseconds.
The weights were fitted to loops timed whole and cut (`scripts/time_loops.py`); on another machine
they are off by a common factor, which the comparison of a nest with its pieces does not see.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Mod, ModularIndexing, PythonMod

from torch_piecewise.loops.ir import Block, LoopNest, Op, Ref, operands, walk
from torch_piecewise.loops.ops import OPS

# One occurrence for one element, in nanoseconds, in a vectorised loop.
WEIGHTS = {
    "arithmetic": 0.02,
    "index": 0.075,  # on 64-bit indices: a comparison with a bound, for one
    "division": 0.05,
    "exp": 0.6,
    "function": 1.2,  # log, erf and most others
    "tanh": 2.7,
    "pow": 6.0,
    "access": 0.01,  # a load or store of neighbours, from a cache
    "strided": 0.05,  # of elements a few apart
    "welford": 0.5,  # mean and variance in one pass
    "scattered": 1.0,  # of elements far apart, or where data says
    "wrap": 0.15,  # a wrap or floor that differs along the vectors
    "masked": 0.15,  # a block under a mask that differs along it
    "uniform": 0.0005,  # anything that is the same for a whole vector
    "jump": 0.06,  # a block under a mask that is: a vector too, tested and blended with
}
BYTE = 0.015  # moving a byte to or from memory or the last cache
ROW = 1.4  # starting the innermost loop, and its last vector

FUNCTIONS = {
    **dict.fromkeys(("exp", "exp2", "expm1", "sigmoid", "sin", "cos"), "exp"),
    "tanh": "tanh",
    "pow": "pow",
    **dict.fromkeys(
        "log log1p log2 log10 tan erf erfc lgamma atan2 sinh cosh asin acos atan asinh "
        "acosh atanh fmod remainder".split(),
        "function",
    ),
    **dict.fromkeys(("truediv", "sqrt", "rsqrt", "reciprocal", "floordiv", "mod"), "division"),
}
FREE = frozenset(("constant", "getitem", "identity"))
MEMORY = frozenset(("load", "store", "store_reduction"))
STEPS = (ModularIndexing, FloorDiv, Mod, PythonMod)
VECTOR = 16  # a wrap at a multiple of so many elements falls between vectors
NEAR = 8  # elements apart in memory that still share cache lines

Size = Callable[[sympy.Expr], int]  # a likely value of a size


def cost(nest: LoopNest, size: Size) -> float:
    """Nanoseconds of one run in one thread; `size` says what is not known when compiling."""
    return inside(nest, size) + starts(nest, size)


def inside(nest: LoopNest, size: Size) -> float:
    """The part of `cost` that computing and moving memory takes."""
    work = sum(WEIGHTS[kind] * times for kind, times in count(nest, size).items())
    return work + BYTE * traffic(nest, size)


def starts(nest: LoopNest, size: Size) -> float:
    """The part of `cost` that starting the innermost loop takes, again and again."""
    times = math.prod(size(a.size) for a in nest.axes[:-1])
    across = bool(nest.axes) and vector_axis(nest) != nest.axes[-1].symbol
    return ROW * (math.ceil(times / VECTOR) if across else times)


def shown(nanoseconds: float) -> str:
    """For reading: "12 ns", "3.4 µs", "1.20 ms"."""
    for unit, size in (("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def count(nest: LoopNest, size: Size) -> Counter[str]:
    """How often one run of a nest does each kind of thing in WEIGHTS."""
    sizes = {a.symbol: size(a.size) for a in nest.axes}
    seen, total = _Seen(), Counter[str]()
    along = vector_axis(nest)
    for body in nest.bodies:
        axes = (*body.iterate, *body.reduce)
        counter = _Counter(along if along in axes else axes[-1] if axes else None, seen)
        counter.block(body.block)
        points = math.prod(sizes[a] for a in axes)
        total.update({kind: points * times for kind, times in counter.found.items()})
    return total


def vector_axis(nest: LoopNest) -> sympy.Symbol | None:
    """The axis that Inductor vectorises, as it chooses (`TilingSelect` in its C++ generator).

    Neighbours along it are neighbours in memory: columns, where rows are summed. Where it would
    transpose blocks of two axes this is the innermost one.
    """
    strides: dict[sympy.Symbol, list[sympy.Expr]] = {a.symbol: [] for a in nest.axes}
    ops = (op for body in nest.bodies for op in walk(body.block) if op.name in MEMORY)
    for index in dict.fromkeys(op.args[:2] for op in ops):
        for axis, found in strides.items():
            stride = _stride(index[1], axis)
            found += [stride] if stride != 0 else []
    near = [axis for axis, found in strides.items() if 1 in found]
    only = [axis for axis in near if set(strides[axis]) == {sympy.S.One}]
    if only or not near:
        return only[-1] if only else next(reversed(strides), None)
    if len(near) == 2 and near[-1] == nest.axes[-1].symbol:
        return near[-1]
    return max(reversed(near), key=lambda axis: strides[axis].count(sympy.S.One))


@lru_cache(maxsize=4096)
def _stride(index: sympy.Expr, axis: sympy.Symbol) -> sympy.Expr:
    """How far the next element along an axis is, where nothing wraps."""
    if axis not in index.free_symbols:
        return sympy.S.Zero
    steps = (s for s in index.atoms(*STEPS) if axis in s.free_symbols)
    return sympy.expand(index.xreplace({s: _unwrapped(s) for s in steps})).coeff(axis, 1)


def traffic(nest: LoopNest, size: Size) -> int:
    """Bytes that have to come from memory and go there: every buffer once, as far as the nest runs.

    What is written counts twice: a processor reads a cache line before it writes a part of it.
    """
    width = {name: dtype.itemsize for name, dtype in nest.buffers}
    reads: dict[str, int] = {}
    writes: dict[str, int] = {}
    for op in (op for body in nest.bodies for op in walk(body.block) if op.name in MEMORY):
        name, index = op.args[0], op.args[1]
        assert isinstance(name, str) and isinstance(index, sympy.Expr)
        over = (a for a in nest.axes if a.symbol in index.free_symbols)
        side = reads if op.name == "load" else writes
        touched = math.prod(size(a.size) for a in over) * width[name]
        side[name] = max(side.get(name, 0), touched)
    return 2 * sum(writes.values()) + sum(b for n, b in reads.items() if n not in writes)


@dataclass
class _Seen:
    """Operations of all bodies: `done` names the first of each kind, `same` gives it by number.

    `values` are those that differ between neighbours along the vectors.
    """

    done: dict[object, int] = field(default_factory=dict)
    same: dict[int, int] = field(default_factory=dict)
    values: set[int] = field(default_factory=set)
    dtypes: dict[int, torch.dtype | None] = field(default_factory=dict)


@dataclass
class _Counter:
    """Counts what a body does at one point; `symbols` differ along the vectors.

    What does not is the same for a whole vector.
    """

    inner: sympy.Symbol | None
    seen: _Seen
    found: Counter[str] = field(default_factory=Counter)
    symbols: set[sympy.Symbol] = field(default_factory=set)
    skipped: set[int] = field(default_factory=set)  # see `behind_jumps`

    def __post_init__(self) -> None:
        if self.inner is not None:
            self.symbols.add(self.inner)

    def block(self, block: Block) -> None:
        self.skipped |= self.behind_jumps(block)
        for op in block.ops:
            if not self.repeats(op):
                self.seen.dtypes[op.id] = op.dtype
                self.op(op)

    def behind_jumps(self, block: Block) -> set[int]:
        """Operations whose value only a `where` takes, by a condition that changes between vectors.

        The compiler jumps around them, so that cutting there saves no work.
        """
        conditions: set[int] = set()
        users: dict[int, list[tuple[Op, int]]] = {}
        for op in block.ops:
            refs = [(k, a.id) for k, a in enumerate(op.args) if isinstance(a, Ref)]
            for k, ref in refs:
                users.setdefault(ref, []).append((op, k))
            stepped = any(self.stands_in_vectors(e) for e in _indices(op))
            if stepped or (op.name != "where" and any(ref in conditions for _, ref in refs)):
                conditions.add(op.id)
        skipped: set[int] = set()
        for op in reversed(block.ops):
            chosen = (
                user.id in skipped
                or (user.name == "where" and k > 0 and _id(user.args[0]) in conditions)
                for user, k in users.get(op.id, ())
            )
            if op.id in users and all(chosen):
                skipped.add(op.id)
        return skipped

    def stands_in_vectors(self, expr: sympy.Expr) -> bool:
        """Whether an index changes along the vectors, but never inside a vector."""
        floors = [f for f in expr.atoms(FloorDiv) if self.moves(f)]
        rest = expr.xreplace(dict.fromkeys(floors, sympy.S.Zero))
        return bool(floors) and not self.moves(rest) and not any(map(self.breaks, floors))

    def repeats(self, op: Op) -> bool:
        """Whether the generated code has this operation's value already."""
        if op.name == "masked" or OPS[op.name].side_effect:
            return False
        key = (op.name, self.canonical((op.args, op.kwargs)))
        first = self.seen.done.setdefault(key, op.id)
        self.seen.same[op.id] = first
        return first != op.id

    def canonical(self, arg: object) -> object:
        if isinstance(arg, tuple):
            return tuple(self.canonical(a) for a in arg)
        if isinstance(arg, Ref):
            return Ref, self.seen.same.get(arg.id, arg.id)
        return type(arg), arg  # True, 1 and 1.0 are equal, and not the same

    def op(self, op: Op) -> None:
        if op.name == "masked":
            self.masked(op)
            return
        varies = any(self.varies(a) for a in operands(op))
        if varies:
            self.seen.values.add(op.id)
            if op.name == "indirect_indexing":
                assert isinstance(op.args[0], sympy.Symbol)
                self.symbols.add(op.args[0])
        kind = self.kind(op, varies)
        if kind and op.id not in self.skipped:
            self.found[kind] += 1
        for step in (s for index in _indices(op) for s in index.atoms(*STEPS)):
            self.found["wrap" if self.breaks(step) else "uniform"] += 1

    def masked(self, op: Op) -> None:
        mask, inner = op.args[0], op.args[1]
        assert isinstance(inner, Block)
        outside = dict(self.seen.done)
        self.block(inner)
        self.seen.done = outside
        varies = self.varies(mask)
        self.found["masked" if varies else "jump"] += 1
        if varies or any(o.id in self.seen.values for o in walk(inner)):
            self.seen.values.add(op.id)

    def varies(self, arg: object) -> bool:
        if isinstance(arg, Ref):
            return self.seen.same.get(arg.id, arg.id) in self.seen.values
        return isinstance(arg, sympy.Expr) and self.moves(arg) and not self.stands_in_vectors(arg)

    def moves(self, expr: sympy.Expr) -> bool:
        """Whether an index changes along the vectors at all."""
        return not self.symbols.isdisjoint(expr.free_symbols)

    def kind(self, op: Op, varies: bool) -> str:
        if op.name in FREE:
            return ""
        function = FUNCTIONS.get(op.name)
        if function is not None and function != "division":
            return function  # computed again for every vector, one element or many
        if not varies:
            return "uniform"
        if op.name == "reduction" and op.args[2] in ("welford_reduce", "welford_combine"):
            return "welford"
        if op.name in MEMORY:
            return self.access(op)
        if op.dtype is torch.int64 or any(self.of_index(a) for a in operands(op)):
            return "index"
        return function or "arithmetic"

    def of_index(self, arg: object) -> bool:
        return (
            isinstance(arg, Ref)
            and self.seen.dtypes[self.seen.same.get(arg.id, arg.id)] is torch.int64
        )

    def access(self, op: Op) -> str:
        """How neighbours along the vectors lie in memory."""
        index = op.args[1]
        assert isinstance(index, sympy.Expr)
        if any(s != self.inner and self.varies(s) for s in index.free_symbols):
            return "scattered"
        stride = _stride(index, self.inner)
        if stride == 1:
            return "access"
        return "strided" if stride.is_Integer and abs(stride) <= NEAR else "scattered"

    def breaks(self, step: sympy.Expr) -> bool:
        """Whether a wrap or floor may fall inside a vector."""
        if not self.moves(step):
            return False
        base, number = step.args[0], step.args[-1]
        rest = sympy.expand(base - self.inner)
        terms = sympy.Add.make_args(rest)
        aligned = all(t.as_coeff_Mul()[0] % VECTOR == 0 for t in terms) and number % VECTOR == 0
        return rest.has(self.inner) or not aligned


def _unwrapped(step: sympy.Expr) -> sympy.Expr:
    """What a wrap is where it does not wrap; a floor stands still between its steps."""
    if isinstance(step, ModularIndexing) and step.args[1] == 1:
        return step.args[0]
    return step.args[0] if isinstance(step, (Mod, PythonMod)) else sympy.S.Zero


def _indices(op: Op) -> Iterator[sympy.Expr]:
    return (a for a in operands(op) if isinstance(a, sympy.Expr))


def _id(arg: object) -> int | None:
    return arg.id if isinstance(arg, Ref) else None
