"""What one run of a nest takes, estimated from its operations and the memory it touches.

`count` says how often a nest does what kinds of thing, `WEIGHTS` what each takes in nanoseconds.
The weights were fitted to loops timed whole and cut (`scripts/fit_cost.py`); on another machine
they are off by a common factor, which the comparison of a nest with its pieces does not see.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import sympy
from torch.utils._sympy.functions import FloorDiv, Mod, ModularIndexing, PythonMod

from torch_piecewise.loops.ir import Block, LoopNest, Op, Ref, operands, walk

# One occurrence for one element, in nanoseconds, in a vectorised loop.
WEIGHTS = {
    "arithmetic": 0.006,
    "division": 0.1,
    "function": 0.3,  # exp and its kin
    "access": 0.02,  # a load or store of neighbours, from a cache
    "strided": 0.3,  # one by one
    "wrap": 0.5,  # a wrap or floor that differs along the innermost axis
    "masked": 0.3,  # a block under a mask that differs along it
    "uniform": 0.003,  # anything that is the same for a whole vector
    "jump": 0.01,  # a block under a mask that is
    "bytes": 0.076,  # from memory or to it, where no cache holds them
}

FUNCTIONS = frozenset(
    "exp exp2 expm1 log log1p log2 log10 pow sin cos tan tanh sigmoid erf erfc lgamma atan2 "
    "sinh cosh asin acos atan asinh acosh atanh fmod remainder".split()
)
DIVISIONS = frozenset(("truediv", "sqrt", "rsqrt", "reciprocal", "floordiv", "mod"))
FREE = frozenset(("constant", "getitem", "identity"))
MEMORY = frozenset(("load", "store", "store_reduction"))
STEPS = (ModularIndexing, FloorDiv, Mod, PythonMod)

Size = Callable[[sympy.Expr], int]  # a likely value of a size


def cost(nest: LoopNest, size: Size) -> float:
    """Nanoseconds of one run in one thread; `size` says what is not known when compiling."""
    counted = count(nest, size)
    return sum(WEIGHTS[kind] * times for kind, times in counted.items())


def count(nest: LoopNest, size: Size) -> Counter[str]:
    """How often one run of a nest does each kind of thing in WEIGHTS."""
    points = math.prod(size(a.size) for a in nest.axes)
    found: Counter[str] = Counter()
    for body in nest.bodies:
        counter = _Counter(nest.axes[-1].symbol if nest.axes else None, found)
        counter.block(body.block)
    result = Counter({kind: points * times for kind, times in found.items()})
    result["bytes"] = _bytes(nest, size)
    return result


def _bytes(nest: LoopNest, size: Size) -> int:
    """What has to come from memory and go there: every buffer once, as far as the nest runs."""
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
    # what is read back comes from a cache
    return sum(writes.values()) + sum(b for n, b in reads.items() if n not in writes)


@dataclass
class _Counter:
    """Counts what a body does at one point.

    `values` and `symbols` are those that differ between neighbours along the innermost axis; the
    rest is the same for a whole vector.
    """

    inner: sympy.Symbol | None
    found: Counter[str]
    values: set[int] = field(default_factory=set)
    symbols: set[sympy.Symbol] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.inner is not None:
            self.symbols.add(self.inner)

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.op(op)

    def op(self, op: Op) -> None:
        if op.name == "masked":
            self.masked(op)
            return
        varies = any(self.varies(a) for a in operands(op))
        if varies:
            self.values.add(op.id)
            if op.name == "indirect_indexing":
                assert isinstance(op.args[0], sympy.Symbol)
                self.symbols.add(op.args[0])
        kind = self.kind(op, varies)
        if kind:
            self.found[kind] += 1
        for step in (s for index in _indices(op) for s in index.atoms(*STEPS)):
            self.found["wrap" if self.varies(step) else "uniform"] += 1

    def masked(self, op: Op) -> None:
        mask, inner = op.args[0], op.args[1]
        assert isinstance(inner, Block)
        self.block(inner)
        varies = self.varies(mask)
        self.found["masked" if varies else "jump"] += 1
        if varies or any(o.id in self.values for o in walk(inner)):
            self.values.add(op.id)

    def varies(self, arg: object) -> bool:
        if isinstance(arg, Ref):
            return arg.id in self.values
        return isinstance(arg, sympy.Expr) and not self.symbols.isdisjoint(arg.free_symbols)

    def kind(self, op: Op, varies: bool) -> str:
        if op.name in FREE:
            return ""
        if op.name in FUNCTIONS:
            return "function"  # computed again for every vector, one element or many
        if op.name in MEMORY and varies:
            return "strided" if self.strided(op) else "access"
        if not varies:
            return "uniform"
        return "division" if op.name in DIVISIONS else "arithmetic"

    def strided(self, op: Op) -> bool:
        """Whether neighbours along the innermost axis are no neighbours in memory."""
        index = op.args[1]
        assert isinstance(index, sympy.Expr)
        if self.inner is None or any(self.varies(s) for s in index.atoms(*STEPS)):
            return True
        return index.coeff(self.inner, 1) != 1


def _indices(op: Op) -> Iterator[sympy.Expr]:
    return (a for a in operands(op) if isinstance(a, sympy.Expr))
