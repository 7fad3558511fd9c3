"""What one run of a nest takes on a GPU: instructions issued, and bytes moved.

A GPU hides instructions behind memory up to a point, so both are estimated, and the larger one is
the time. Instructions are counted in slots of one lane: a multiprocessor issues four of them a
cycle to its lanes, but only one load or store, which therefore counts four. The weights are set by
hand, after the machine code of a few kernels and the times of the workloads on one H200.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import sympy

from torch_piecewise.loops.ir import Arg, Block, LoopNest, Op, Ref, operands, walk
from torch_piecewise.loops.same import Numbers

from .cost import FREE, MEMORY, STEPS, Size

ACCESS = 4.0  # a load or store: one a cycle, of four slots
VECTOR_BYTES = 16  # the widest load or store of one lane
# Elements taken one by one lie apart for the lanes of one access, which is as many accesses as it
# touches lines: how many, for wide and for narrow elements, in Inductor's long rows and in tiles.
APART_FLAT = (1.5, 2.5)
APART = (1.0, 1.5)
VECTOR_ELEMENTS = 8  # of two bytes each
COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
SECTOR = 64  # bytes; less is seldom moved
INDEX_STEP = 5.0  # a division or remainder by a constant: multiply high, shift, subtract
INDEX_SHIFT = 1.5  # by a power of two
UNIFORM = 1 / 8  # what does not differ along the tile's rows: once for the elements of a lane

WEIGHTS = {
    **dict.fromkeys(("exp", "exp2"), 8.0),
    **dict.fromkeys(("truediv", "div_rn", "reciprocal"), 10.0),
    **dict.fromkeys(("sqrt", "rsqrt"), 8.0),
    **dict.fromkeys(("sigmoid", "expm1", "log", "log2", "log10"), 18.0),
    **dict.fromkeys(("floordiv", "truncdiv", "mod", "remainder", "fmod"), 20.0),
    **dict.fromkeys(("tanh", "log1p", "erf", "erfc", "asinh", "atan", "acos", "asin"), 25.0),
    **dict.fromkeys(("sin", "cos", "tan", "pow", "lgamma", "atan2", "sinh", "cosh"), 45.0),
    "masked": 1.0,
}

REDUCTIONS = {"online_softmax_reduce": 30.0, "welford_reduce": 15.0, "welford_combine": 20.0}
ACCUMULATE = 2.0  # other reductions: the operation, and a choice by the mask of the last columns


@dataclass(frozen=True)
class Gpu:
    """Rates of one card: slots and bytes in a nanosecond."""

    multiprocessors: int
    slots: float
    bytes: float

    @staticmethod
    def of(multiprocessors: int, clock: float, bandwidth: float) -> Gpu:
        """From the number of multiprocessors, their clock in Hz and bytes copied in a second."""
        return Gpu(multiprocessors, multiprocessors * 4 * 32 * clock / 1e9, bandwidth / 1e9)


H200 = Gpu.of(132, 1.98e9, 4.2e12)


def instructions(nest: LoopNest, size: Size, flat: bool = False) -> float:
    """Slots of one run. `flat`: by an index over all points, as Inductor has it, else by tiles.

    In tiles what is the same along a row is computed once for the elements of a lane.
    """
    points = math.prod(size(a.size) for a in nest.axes)
    return points * sum(_Count(nest, flat).all())


def traffic(
    nest: LoopNest, size: Size, inside: Collection[str] = (), sector: int = SECTOR
) -> float:
    """Bytes moved: each buffer once, as far as the nest goes; those that live `inside` it are free.

    What a nest stores it need not load. Of a row at least a `sector` is moved.
    """
    sizes = {a.symbol: size(a.size) for a in nest.axes}
    width = {name: dtype.itemsize for name, dtype in nest.buffers}
    touched: dict[str, float] = {}
    stored: set[str] = set()
    for op in _memory(nest):
        name, index = op.args[0], op.args[1]
        assert isinstance(name, str) and isinstance(index, sympy.Expr)
        if name in inside:
            continue
        over = math.prod(n for a, n in sizes.items() if a in index.free_symbols)
        along = nest.axes[-1]
        least = sector if along.symbol in index.free_symbols else 0
        rows = over / max(sizes[along.symbol], 1) if least else 1
        moved = max(over * width[name], rows * least)
        if op.name != "load":
            stored.add(name)
        elif name in stored:
            continue
        touched[name] = max(touched.get(name, 0.0), moved)
    return sum(touched.values())


def _memory(nest: LoopNest) -> Iterator[Op]:
    return (op for body in nest.bodies for op in walk(body.block) if op.name in MEMORY)


class _Count:
    """Slots for one point of a nest. Equal operations are computed once, as Inductor does."""

    def __init__(self, nest: LoopNest, flat: bool):
        self.nest, self.flat = nest, flat
        self.x = nest.axes[-1].symbol if nest.axes else None
        self.width = {name: dtype.itemsize for name, dtype in nest.buffers}
        self.numbers = Numbers()
        self.along: set[int] = set()  # values that differ along the innermost axis
        self.broken: set[int] = set()  # those that may differ inside a vector
        self.known: dict[int, sympy.Expr] = {}  # indices and whole numbers, by operation
        self.stepped: set[sympy.Expr] = set()  # wraps and floors that are computed

    def all(self) -> Iterator[float]:
        if self.flat:
            yield self.decoding()
        for body in self.nest.bodies:
            yield from self.block(body.block, False)

    def decoding(self) -> float:
        """Taking the index over all points apart, where axes are used on their own."""
        used: set[sympy.Symbol] = {
            symbol
            for body in self.nest.bodies
            for op in walk(body.block)
            for index in _indices(op)
            if not self.contiguous(index)
            for symbol in index.free_symbols
        }
        return sum(_step(a.size) for a in self.nest.axes if a.symbol in used)

    def contiguous(self, index: sympy.Expr) -> bool:
        """Whether an index counts all points in order, up to a number added."""
        step: sympy.Expr = sympy.S.One
        for axis in reversed(self.nest.axes):
            index = sympy.expand(index - step * axis.symbol)
            step = step * axis.size
        return not index.free_symbols & {a.symbol for a in self.nest.axes}

    def block(self, block: Block, masked: bool) -> Iterator[float]:
        for op in block.ops:
            yield self.op(op, masked)
            for arg in operands(op):
                if isinstance(arg, Block):
                    mask = op.args[0]
                    broken = isinstance(mask, Ref) and mask.id in self.broken
                    yield from self.block(arg, masked or broken)
                    if any(o.id in self.along for o in walk(arg)) or self.differs(mask):
                        self.along.add(op.id)

    def op(self, op: Op, masked: bool) -> float:
        repeated = self.numbers.first(op, masked) != op.id
        if any(self.differs(a) for a in operands(op)):
            self.along.add(op.id)
            if not self.steady(op):
                self.broken.add(op.id)
        elif op.name in ("index_expr", "constant") and _whole(op.args[0]):
            self.known[op.id] = sympy.sympify(op.args[0])
        if repeated or op.name in FREE:
            return 0.0
        return self.weight(op, masked) + sum(map(self.steps, _indices(op)))

    def steady(self, op: Op) -> bool:
        """Whether a value that differs along the row is the same inside every vector."""
        if op.name == "index_expr":
            self.known[op.id] = sympy.sympify(op.args[0])
        if op.name in COMPARISONS:
            left, right = (self.known.get(a.id) if isinstance(a, Ref) else None for a in op.args)
            if left is None or right is None:
                return False
            shift = 1 if op.name in ("le", "gt") else 0  # a <= b is a < b + 1
            return _in_steps(sympy.expand(left - right - shift)) and op.name not in ("eq", "ne")
        refs = [a.id for a in operands(op) if isinstance(a, Ref)]
        return bool(refs) and op.name not in MEMORY and not self.broken.intersection(refs)

    def weight(self, op: Op, masked: bool) -> float:
        if op.name in MEMORY:
            return self.access(op, masked)
        weight = WEIGHTS.get(op.name, 1.0)
        if op.name == "reduction":
            return REDUCTIONS.get(str(op.args[2]), ACCUMULATE)
        if op.id not in self.along and not self.flat:
            weight *= UNIFORM
        return weight

    def steps(self, index: sympy.Expr) -> float:
        """Wraps and floors of an index, each computed once."""
        total = 0.0
        for step in index.atoms(*STEPS) - self.stepped:
            self.stepped.add(step)
            once = not self.flat and self.x not in step.free_symbols
            total += _step(step.args[-1]) * (UNIFORM if once else 1.0)
        return total

    def access(self, op: Op, masked: bool) -> float:
        """A load or store of neighbours is shared by those that lie in one vector."""
        name, index = op.args[0], op.args[1]
        assert isinstance(name, str) and isinstance(index, sympy.Expr) and self.x is not None
        convert = 1.0 if self.width[name] < 4 else 0.0
        if self.x not in index.free_symbols:
            return ACCESS * (1.0 if self.flat else UNIFORM) + convert
        most = max(1, VECTOR_BYTES // self.width[name])
        lanes = 1 if masked else _together(index, self.x, most)
        if lanes == 1:
            return ACCESS * (APART_FLAT if self.flat else APART)[self.width[name] < 4] + 1 + convert
        return ACCESS / lanes + convert

    def differs(self, arg: Arg) -> bool:
        """Whether a value changes along the innermost axis."""
        if isinstance(arg, Ref):
            return arg.id in self.along
        return isinstance(arg, sympy.Expr) and self.x in arg.free_symbols


def misaligned(nest: LoopNest) -> float:
    """Which share of the accesses along the innermost axis can't be made by vectors."""
    width = {name: dtype.itemsize for name, dtype in nest.buffers}
    along = nest.axes[-1].symbol
    accesses = {(op.args[0], op.args[1]) for op in _memory(nest)}
    found = [
        _together(index, along, max(1, VECTOR_BYTES // width[name])) > 1
        for name, index in accesses
        if isinstance(name, str) and isinstance(index, sympy.Expr) and along in index.free_symbols
    ]
    return found.count(False) / max(len(found), 1)


def _together(index: sympy.Expr, along: sympy.Symbol, most: int) -> int:
    """How many neighbours along an axis one access takes: they begin at such a multiple."""
    rest = sympy.expand(index - along)
    if along in rest.free_symbols:
        return 1
    parts = rest.as_coefficients_dict().values()
    if not all(isinstance(number, sympy.Integer) for number in parts):
        return 1
    return math.gcd(most, *map(int, parts))


def _whole(value: object) -> bool:
    return isinstance(value, (sympy.Expr, int)) and not isinstance(value, bool)


def _in_steps(expr: sympy.Expr) -> bool:
    """Whether the numbers in an index are multiples of a vector's elements, or 1."""
    numbers = {abs(int(n)) for n in expr.atoms(sympy.Integer)} - {0, 1}
    return all(number % VECTOR_ELEMENTS == 0 for number in numbers) and expr.as_coeff_Add()[0] != 1


def _step(divisor: sympy.Expr) -> float:
    """Taking an index apart by a divisor."""
    if not isinstance(divisor, sympy.Integer):
        return 4 * INDEX_STEP
    return INDEX_STEP if int(divisor) & (int(divisor) - 1) else INDEX_SHIFT


def _indices(op: Op) -> Iterator[sympy.Expr]:
    return (a for a in operands(op) if isinstance(a, sympy.Expr))
