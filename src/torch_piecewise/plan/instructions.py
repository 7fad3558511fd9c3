"""What one run of a nest takes of a GPU's multiprocessors: instructions, accesses, functions.

A multiprocessor issues four instructions a cycle, each for the 32 lanes of a warp; one unit of it
serves loads and stores, a cycle for each line of 128 bytes that the lanes of one touch; another
the functions that the hardware computes. All are counted in slots of one lane, of which a cycle
has four by 32. The weights are counts of machine instructions: `scripts/count_sass.py` compares
them with what Triton makes of the workloads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import sympy
from numpy.typing import NDArray
from torch.utils._sympy.functions import FloorDiv, Mod, ModularIndexing

from torch_piecewise.loops.ir import Arg, Block, LoopNest, Op, Ref, operands, walk
from torch_piecewise.loops.same import Numbers

from .cost import FREE, MEMORY, STEPS, Size

CYCLE = 4.0  # slots of a lane
LINE = 128  # bytes that the lanes of a warp get in one cycle
LANES = 32
VECTOR_BYTES = 16  # the widest load or store of one lane
VECTOR_ELEMENTS = 8  # of two bytes each
FAR = 8  # lines of an access whose places are not known
FLAT = (8, 2)  # elements that a lane works on, in Inductor's blocks
ELEMENTS = (16, 8, 4, 2)  # likewise, in tiles
START, START_IN_TILES = 24.0, 40.0  # instructions of a lane before its first element
MANY = 60.0  # instructions for an element, from which many elements a lane only cost registers
MANY_APART = 48.0  # likewise, where much is read one by one
APART = 2.0  # an access of one element: its place is computed for itself
BUSY = 0.93  # of the time, that units are busy at best
SHARPNESS = 4  # see `beside`
WAIT = 130.0  # slots that a lane waits for memory, while the other warps have their turns
ByLanes = NDArray[
    np.float64
]  # a number for each of several counts of elements that a lane works on
COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
INDEX_STEP = 5.0  # a division or remainder by a constant: multiply high, shift, subtract
INDEX_SHIFT = 1.5  # by a power of two

# Instructions, and of those the ones that the unit for functions takes, two cycles each.
WEIGHTS = {
    **dict.fromkeys(("exp2", "rsqrt"), 2.0),
    **dict.fromkeys(("truediv", "div_rn", "reciprocal", "sqrt"), 8.0),
    "exp": 9.0,
    "sigmoid": 12.0,
    **dict.fromkeys(("tanh", "floordiv", "truncdiv", "mod"), 20.0),
    **dict.fromkeys(("expm1", "log", "log2", "log10"), 25.0),
    **dict.fromkeys(("log1p", "erf", "remainder", "sinh", "cosh", "asin", "acos"), 28.0),
    **dict.fromkeys(("sin", "cos", "tan"), 40.0),  # without the reduction of large angles
    **dict.fromkeys(("erfc", "atan", "atan2", "fmod", "asinh"), 48.0),
    "pow": 80.0,
    "lgamma": 120.0,
    "masked": 1.0,
}
FUNCTIONS = {
    **dict.fromkeys(("exp", "exp2", "expm1", "rsqrt", "sqrt", "reciprocal", "truediv"), 1),
    **dict.fromkeys(("div_rn", "erf", "asin", "acos"), 1),
    **dict.fromkeys(("sigmoid", "tanh", "pow", "sinh", "cosh"), 2),
    **dict.fromkeys(("erfc", "atan", "atan2"), 3),
}
FUNCTION = 2 * CYCLE

REDUCTIONS = {"online_softmax_reduce": 30.0, "welford_reduce": 15.0, "welford_combine": 20.0}
ACCUMULATE = 2.0  # other reductions: the operation, and a choice by the mask of the last columns


@dataclass(frozen=True)
class Work:
    """Slots by the unit that they are of."""

    issued: float
    accesses: float
    functions: float
    waited: float

    @property
    def slots(self) -> float:
        """The time that all take side by side."""
        return beside(self.issued, self.accesses, self.functions, self.waited) / BUSY


def beside(*times: float) -> float:
    """The time of units that work side by side: that of the busiest, and more if others are busy.

    After hardware counters of 20 kernels on an H200: where one unit alone limits, it is busy for
    nine tenths of the time, and where two or three do, each for seven or eight.
    """
    return float(sum(time**SHARPNESS for time in times) ** (1 / SHARPNESS))


def work(nest: LoopNest, size: Size, lane: int, flat: bool = False) -> Work:
    """What one run takes, `lane` elements of a row for each lane.

    `flat`: by an index over all points, as Inductor has it, else by tiles: there what is the same
    along a row is computed once for the elements of a lane.
    """
    (only,) = works(nest, size, (lane,), flat)
    return only


def works(
    nest: LoopNest, size: Size, lanes: Sequence[int], flat: bool = False, wraps: bool = True
) -> list[Work]:
    """The same for each of several numbers of elements of a lane; `wraps`: as far as there are."""
    points = math.prod(size(a.size) for a in nest.axes)
    count = _Count(nest, flat, lanes, wraps)
    each = np.broadcast_arrays(count.issued, count.accesses, count.functions, WAIT / count.lanes)
    return [Work(*map(float, slots)) for slots in points * np.stack(each, 1)]


def slots(nest: LoopNest, size: Size, flat: bool = False, wraps: bool = True) -> float:
    """Slots of one run with as many elements a lane as suit it."""
    return min(each.slots for each in works(nest, size, FLAT if flat else ELEMENTS, flat, wraps))


def good_lane(nest: LoopNest, size: Size) -> tuple[int, bool]:
    """How many elements of a row a lane should work on, and whether much is read one by one.

    Most have most under way, if they leave enough registers. Where much is read one by one, few
    touch fewer lines.
    """
    points = math.prod(size(a.size) for a in nest.axes)
    most, more, few, _ = ELEMENTS
    all_, some = works(nest, size, (most, few))
    if some.slots <= 1.02 * all_.slots:
        return (few if all_.issued >= MANY_APART * points else more), True
    return (more if all_.issued >= MANY * points else most), False


def by_vectors(nest: LoopNest) -> bool:
    """Whether every access along the innermost axis takes neighbours together."""
    count = _Count(nest, False, (VECTOR_ELEMENTS,))
    return all(count.vector(op, masked).min() > 1 for op, masked in count.read)


class _Count:
    """Slots for one point of a nest. Equal operations are computed once, as Inductor does."""

    def __init__(self, nest: LoopNest, flat: bool, lanes: Sequence[int], wraps: bool = True):
        self.nest, self.flat, self.lanes = nest, flat, np.array(lanes)
        self.x = nest.axes[-1].symbol
        # how often for an element: what is the same along a row, and what is inside vectors
        self.once = 1 / self.lanes
        self.steps = 1 / np.minimum(self.lanes, VECTOR_ELEMENTS)
        if flat and not _is_power_of_two(nest.axes[-1].size):
            self.once = self.steps = np.ones(len(lanes))  # the compiler can't know
        self.width = {name: dtype.itemsize for name, dtype in nest.buffers}
        self.numbers = Numbers()
        self.uses = _uses(nest)
        self.products: set[int] = set()  # that are used once: an addition takes them along
        self.along: set[int] = set()  # values that differ along the innermost axis
        self.broken: set[int] = set()  # those that may differ inside a vector
        self.known: dict[int, sympy.Expr] = {}  # indices and whole numbers, by operation
        # what indices are computed from, and how often for an element
        self.wanted: dict[sympy.Expr, ByLanes] = {}
        self.read: list[tuple[Op, bool]] = []  # accesses along the row, and whether under a mask
        self.functions: ByLanes = np.zeros(len(lanes))
        start = (START if flat else START_IN_TILES) / self.lanes
        self.issued = sum(self.all(), start) + (self.places() if wraps else 0.0)
        self.accesses = sum(self.served(), np.zeros(len(lanes)))

    def all(self) -> Iterator[ByLanes | float]:
        for body in self.nest.bodies:
            yield from self.block(body.block, False)

    def places(self) -> ByLanes | float:
        """Wraps and floors, and without tiles, taking the index over all points apart."""
        sizes = {a.symbol: a.size for a in self.nest.axes}
        return sum(
            often * _step(sizes[part] if part in sizes else part.args[-1])
            for part, often in self.wanted.items()
        )

    def contiguous(self, index: sympy.Expr) -> bool:
        """Whether an index counts all points in order, up to a number added."""
        step: sympy.Expr = sympy.S.One
        for axis in reversed(self.nest.axes):
            index = sympy.expand(index - step * axis.symbol)
            step = step * axis.size
        return not index.free_symbols & {a.symbol for a in self.nest.axes}

    def block(self, block: Block, masked: bool) -> Iterator[ByLanes | float]:
        for op in block.ops:
            yield self.op(op, masked)
            for arg in operands(op):
                if isinstance(arg, Block):
                    mask = op.args[0]
                    broken = isinstance(mask, Ref) and mask.id in self.broken
                    yield from self.block(arg, masked or broken)
                    inside = {o.id for o in walk(arg)}
                    if inside & self.along or self.differs(mask):
                        self.along.add(op.id)
                    if broken or inside & self.broken:
                        self.broken.add(op.id)

    def op(self, op: Op, masked: bool) -> ByLanes | float:
        repeated = self.numbers.first(op, masked) != op.id
        if any(self.differs(a) for a in operands(op)):
            self.along.add(op.id)
            if not self.steady(op):
                self.broken.add(op.id)
        elif op.name in ("index_expr", "constant") and _whole(op.args[0]):
            self.known[op.id] = sympy.sympify(op.args[0])
        if repeated or op.name in FREE:
            return 0.0
        vector = self.vector(op, masked) if op.name in MEMORY else np.ones(1)
        for index in _indices(op):
            self.want(index, vector)
        return self.weight(op, masked)

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
        refs = _refs(op)
        return bool(refs) and op.name not in MEMORY and not self.broken.intersection(refs)

    def weight(self, op: Op, masked: bool) -> ByLanes | float:
        if op.name in MEMORY:
            return self.access(op, masked)
        weight = WEIGHTS.get(op.name, 1.0)
        if op.name == "reduction":
            return REDUCTIONS.get(str(op.args[2]), ACCUMULATE)
        if op.name == "mul" and self.uses[op.id] == 1:
            self.products.add(op.id)
        elif op.name in ("add", "sub") and self.products.intersection(_refs(op)):
            return 0.0
        often: ByLanes | float = self.once if op.id not in self.along else 1.0
        if op.id in self.along and op.id not in self.broken:
            often = self.steps
        if op.name in FUNCTIONS:
            self.functions += often * FUNCTION * FUNCTIONS[op.name]
        return weight * often

    def want(self, index: sympy.Expr, vector: ByLanes) -> None:
        """Note what an index is computed from: for a vector once."""
        parts = set(index.atoms(*STEPS))
        if self.flat and not self.contiguous(index):
            parts |= index.free_symbols & {a.symbol for a in self.nest.axes}
        for part in parts:
            often = 1 / vector
            if self.x not in part.free_symbols:
                often = np.minimum(self.once, often)
            self.wanted[part] = np.maximum(often, self.wanted.get(part, 0.0))

    def access(self, op: Op, masked: bool) -> ByLanes:
        """The instructions of a load or store, one for the neighbours that lie in one vector."""
        name, index = op.args[0], op.args[1]
        assert isinstance(name, str) and isinstance(index, sympy.Expr)
        convert = 1.0 if self.width[name] < 4 else 0.0
        if self.x not in index.free_symbols:
            return (1 + convert) * self.once
        self.read.append((op, masked))
        vector = self.vector(op, masked)
        return np.where(vector > 1, 1.0, APART) / vector + convert

    def vector(self, op: Op, masked: bool) -> ByLanes:
        """How many neighbours one access takes."""
        name, index = op.args[0], op.args[1]
        assert isinstance(name, str) and isinstance(index, sympy.Expr)
        if self.x not in index.free_symbols:
            return self.lanes
        if masked:
            return np.ones(len(self.lanes))
        together = _together(index, self.x, max(1, VECTOR_BYTES // self.width[name]))
        vectors: ByLanes = np.gcd(self.lanes, together)
        return vectors

    def served(self) -> Iterator[ByLanes]:
        """Cycles of the accesses: a lane has its elements side by side, for all of them alike."""
        own = [(op, self.vector(op, masked)) for op, masked in self.read]
        beside = np.max([vector for _, vector in own], axis=0, initial=1)
        for op, vector in own:
            name, index = op.args[0], op.args[1]
            assert isinstance(name, str) and isinstance(index, sympy.Expr)
            apart = _apart(index, self.x) * beside * self.width[name]
            yield CYCLE * np.clip(LANES * apart / LINE, 1.0, LANES) / vector

    def differs(self, arg: Arg) -> bool:
        """Whether a value changes along the innermost axis."""
        if isinstance(arg, Ref):
            return arg.id in self.along
        return isinstance(arg, sympy.Expr) and self.x in arg.free_symbols


def _refs(op: Op) -> list[int]:
    return [arg.id for arg in operands(op) if isinstance(arg, Ref)]


def _uses(nest: LoopNest) -> Counter[int]:
    """How often each operation's value is used."""
    uses = (ref for body in nest.bodies for op in walk(body.block) for ref in _refs(op))
    return Counter(uses)


def _together(index: sympy.Expr, along: sympy.Symbol, most: int) -> int:
    """How many neighbours along an axis one access takes: they begin at such a multiple."""
    rest = sympy.expand(index - along)
    if along in rest.free_symbols:
        return 1
    parts = rest.as_coefficients_dict().values()
    if not all(isinstance(number, sympy.Integer) for number in parts):
        return 1
    return math.gcd(most, *map(int, parts))


def _apart(index: sympy.Expr, along: sympy.Symbol) -> int:
    """How many elements of memory are from one point of a row to the next."""
    if index.has(ModularIndexing, FloorDiv, Mod):
        return 1  # a wrap or floor is seldom met
    step = sympy.expand(index).coeff(along, 1)
    return abs(int(step)) if isinstance(step, sympy.Integer) else FAR


def _is_power_of_two(size: sympy.Expr) -> bool:
    return isinstance(size, sympy.Integer) and not int(size) & (int(size) - 1)


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
    return INDEX_SHIFT if _is_power_of_two(divisor) else INDEX_STEP


def _indices(op: Op) -> Iterator[sympy.Expr]:
    return (a for a in operands(op) if isinstance(a, sympy.Expr))
