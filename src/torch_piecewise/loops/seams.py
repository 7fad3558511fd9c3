"""Find the seams of a nest: where, on which axis, the folded body would change.

Folding over the whole nest says which signs and wraps its ranges leave open; each is solved for
the axis it depends on. What can't be solved or ordered is left with a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import sympy
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, ModularIndexing, PythonMod, Where

from .bounds import Bounds, Watch
from .digits import leading_axis, without_single
from .fold import fold
from .ir import Axis, LoopNest, operands, walk
from .split import boxes, move

MOST_WRAPS = 8  # more wraps than this along one axis are a period, not a boundary
MOST_CUTS = 32  # the search stops there: each cut makes the next ones dearer to place
WHOLE = 16  # elements of the longest vectors: a place that is free to choose is a multiple
ROUNDS = 3  # a condition over a wrapped index shows its seam once the wrap is cut

_STEPS = (FloorDiv, ModularIndexing, Mod, PythonMod)
_OPEN = (*_STEPS, Min, Max, sympy.Min, sympy.Max, sympy.Abs, Where)


@dataclass(frozen=True)
class SeamAt:
    """One seam: the body differs before and from `position` on `axis`; `cause` says by what."""

    axis: sympy.Symbol
    position: sympy.Expr
    cause: str


@dataclass(frozen=True)
class Note:
    """Something that might be a seam and was left: a stable code and a text."""

    code: str
    text: str


@dataclass(frozen=True)
class Slant:
    """A condition over two axes together: the sign of `expr`, which is affine in both.

    Inside a block of the outer axis it is open only between two places of the inner one. `note` is
    what is said where there are no blocks.
    """

    outer: sympy.Symbol
    inner: sympy.Symbol
    note: Note
    expr: sympy.Expr


@dataclass
class SeamSearch(Watch):
    """The seams of one nest; `cuts` are their positions by axis, in proven order.

    `fixed` are axes that no one may cut, for a reason that is noted; `held` are the cuts that such
    an axis would have where only boxes with a wrap below 0 must not be moved: see `split.movable`.
    `in_block`: the nest is a block of another one, in which conditions over two axes are cut along
    the inner axis.
    """

    nest: LoopNest
    bounds: Bounds
    seams: list[SeamAt] = field(default_factory=list)
    cuts: dict[sympy.Symbol, tuple[sympy.Expr, ...]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    waiting: set[sympy.Symbol] = field(default_factory=set)  # axes with a condition on a wrap
    fixed: set[sympy.Symbol] = field(default_factory=set)
    held: dict[sympy.Symbol, tuple[sympy.Expr, ...]] = field(default_factory=dict)
    slants: list[Slant] = field(default_factory=list)
    in_block: bool = False
    _asked: set[tuple[str, sympy.Basic, sympy.Basic]] = field(default_factory=set)

    def sign(self, expr: sympy.Expr) -> None:
        if self._first("sign", expr, sympy.S.Zero):
            self._sign(without_single(sympy.expand(expr), self.nest), f"{expr} < 0")

    def wrap(self, base: sympy.Expr, period: sympy.Expr) -> None:
        if not self._first("wrap", base, period):
            return
        base = without_single(sympy.expand(base), self.nest)
        if leading_axis(base, self.nest, self.bounds):
            self._multiples(base, period, f"{base} wraps at {period}")
            return
        axis = self._axis(base, f"{base} wraps at {period}")
        if axis is None:
            return
        if base.has(*_OPEN):
            self.waiting.add(axis)
            return
        slope = base.coeff(axis, 1)
        offset = base.coeff(axis, 0)
        if sympy.expand(base - slope * axis - offset) != 0 or not isinstance(slope, sympy.Integer):
            self._note("not-affine", f"{base} wraps at {period}: not affine in {axis}")
            return
        self._multiples(base, period, f"{base} wraps at {period}")

    def _first(self, kind: str, a: sympy.Basic, b: sympy.Basic) -> bool:
        key = (kind, a, b)
        new = key not in self._asked
        self._asked.add(key)
        return new

    def _note(self, code: str, text: str) -> None:
        note = Note(code, text)
        if note not in self.notes:
            self.notes.append(note)

    def _axis(self, expr: sympy.Expr, what: str) -> sympy.Symbol | None:
        """The one axis that the expression depends on, or None with a note."""
        axes = [a for a in self.nest.axes if a.symbol in expr.free_symbols]
        loaded = [
            s for s in expr.free_symbols if s not in self.bounds.axes and s not in self.bounds.sizes
        ]
        if loaded:
            return None  # depends on data: no place on an axis
        if len(axes) > 1:
            names = ", ".join(a.name for a in axes)
            self._note("two-axes", f"{what}: depends on {names} together")
            return None
        return axes[0].symbol if axes else None

    def _sign(self, expr: sympy.Expr, what: str) -> None:
        leading = leading_axis(expr, self.nest, self.bounds)
        if leading:
            axis, first, last = leading
            self._cut(axis, sympy.Integer(first), what)
            if last != first:
                self._cut(axis, sympy.Integer(last), what)
                self.waiting.add(axis)  # the other axes decide in the row between
            return
        if self._slant(expr, what):
            return
        axis = self._axis(expr, what)
        if axis is None:
            return
        floors = [f for f in expr.atoms(*_OPEN) if axis in f.free_symbols]
        if floors:
            self._floor_sign(axis, expr, floors, what)
            return
        slope, offset = expr.coeff(axis, 1), expr.coeff(axis, 0)
        if sympy.expand(expr - slope * axis - offset) != 0 or not isinstance(slope, sympy.Integer):
            self._note("not-affine", f"{what}: not affine in {axis}")
            return
        if slope == 1:
            self._cut(axis, -offset, what)
        elif slope == -1:
            self._cut(axis, offset + 1, what)
        elif slope > 0:  # slope * axis + offset < 0 until ceil(-offset / slope)
            self._cut(axis, -FloorDiv(offset, slope), what)
        else:
            self._cut(axis, FloorDiv(offset, -slope) + 1, what)

    def _slant(self, expr: sympy.Expr, what: str) -> bool:
        """Whether the condition is one over two axes that blocks of the outer one can help."""
        axes = [a for a in self.nest.axes if a.symbol in expr.free_symbols]
        if len(axes) != 2 or axes[0].reduce:
            return False
        outer, inner = axes
        slopes = [expr.coeff(axis.symbol, 1) for axis in axes]
        rest = sympy.expand(expr - slopes[0] * outer.symbol - slopes[1] * inner.symbol)
        if not all(isinstance(slope, sympy.Integer) for slope in slopes):
            return False
        if not rest.free_symbols <= self.bounds.sizes.keys() or rest.has(*_OPEN):
            return False
        if self.in_block:
            ends = [sympy.expand(expr.xreplace({outer.symbol: end})) for end in (0, outer.size - 1)]
            self._cut_between(inner.symbol, ends, f"{what} in a block")
            return True
        note = Note("two-axes", f"{what}: depends on {outer.name}, {inner.name} together")
        self.slants.append(Slant(outer.symbol, inner.symbol, note, expr))
        self._note(note.code, note.text)
        return True

    def _cut_between(self, axis: sympy.Symbol, ends: Sequence[sympy.Expr], what: str) -> None:
        """Cut before and after the places where a sign changes at either end of a block.

        Between them it is open, so they may lie further apart: at whole vectors, where known.
        """
        slope = int(ends[0].coeff(axis, 1))
        rest = [end - slope * axis for end in ends]
        if not all(isinstance(r, sympy.Integer) for r in rest):
            for end in ends:
                self._sign(end, what)
            return
        places = [-(int(r) // slope) if slope > 0 else int(r) // -slope + 1 for r in rest]
        first, last = min(places) // WHOLE * WHOLE, -(-max(places) // WHOLE) * WHOLE
        self._cut(axis, sympy.Integer(first), what)
        self._cut(axis, sympy.Integer(last), what)

    def _floor_sign(
        self, axis: sympy.Symbol, expr: sympy.Expr, floors: list[sympy.Expr], what: str
    ) -> None:
        """A condition over f // n: turn it into one over f; other steps wait for their wraps."""
        step = floors[0]
        if (
            len(floors) == 1
            and isinstance(step, FloorDiv)
            and isinstance(step.args[1], sympy.Integer)
        ):
            slope, offset = expr.coeff(step, 1), expr.coeff(step, 0)
            base, divisor = step.args
            if slope == 1 and sympy.expand(expr - step - offset) == 0:
                self._sign(sympy.expand(base + offset * divisor), what)  # f // n < -c
                return
            if slope == -1 and sympy.expand(expr + step - offset) == 0:
                # c - f // n < 0, so f // n >= c + 1
                self._sign(sympy.expand((offset + 1) * divisor - base - 1), what)
                return
        self.waiting.add(axis)

    def _multiples(self, base: sympy.Expr, period: sympy.Expr, what: str) -> None:
        """Cut where an affine index reaches a multiple of its period."""
        low, high = self.bounds.interval(base)
        if isinstance(period, sympy.Integer) and period <= 0:
            return  # an axis of size 0 wraps at 0: nothing runs
        if isinstance(period, sympy.Integer) and abs(low) + abs(high) < float("inf"):
            first, last = int(low) // int(period), int(high) // int(period)
            if last - first > MOST_WRAPS:
                self._note("periodic", f"{what}: {last - first} times, cap {MOST_WRAPS}")
                return
            multiples = range(first + 1, last + 1)
        else:
            multiples = range(2)
        for k in multiples:
            self._sign(sympy.expand(base - k * period), what)

    def _cut(self, axis: sympy.Symbol, position: sympy.Expr, what: str) -> None:
        """Add a position where its order among the others can be proven."""
        size = self.nest.axis(axis).size
        position = sympy.expand(position)
        if self._before(position, sympy.S.Zero) or self._before(size, position):
            return  # proven to be at or beyond an end
        if not (self._before(sympy.S.Zero, position) and self._before(position, size)):
            self._note(
                "order-unproven", f"{what}: {axis} = {position} not proven inside [0, {size}]"
            )
            return
        cuts = list(self.cuts.get(axis, ()))
        if len(cuts) == MOST_CUTS:
            self._note("many-seams", f"{axis} has more than {MOST_CUTS} seams; the rest is left")
            return
        place = 0
        for cut in cuts:
            if sympy.expand(cut - position) == 0:
                self._seam(axis, cut, what)
                return
            if self._before(cut, position):
                place += 1
            elif not self._before(position, cut):
                text = f"{what}: {axis} = {position} not proven before or after {cut}"
                self._note("order-unproven", text)
                return
        self.cuts[axis] = (*cuts[:place], position, *cuts[place:])
        self._seam(axis, position, what)

    def fix(self, expr: sympy.Expr, code: str, text: str) -> None:
        """Have no one cut the axes that the expression depends on."""
        own = {a.symbol for a in self.nest.axes} & expr.free_symbols
        self.fixed |= own
        for axis in own & self.cuts.keys():
            if code == "negative-wrap":
                self.held[axis] = self.cuts[axis]
            del self.cuts[axis]
            self._note(code, text)

    def _seam(self, axis: sympy.Symbol, position: sympy.Expr, what: str) -> None:
        if not any(s.axis == axis and s.position == position for s in self.seams):
            self.seams.append(SeamAt(axis, position, what))

    def _before(self, a: sympy.Expr, b: sympy.Expr) -> bool:
        """Whether a <= b is proven."""
        if isinstance(a, sympy.Integer) and isinstance(b, sympy.Integer):
            return int(a) <= int(b)
        return self.bounds.negative(sympy.expand(a - b) - 1) is True


def find(nest: LoopNest, in_block: bool = False) -> SeamSearch:
    """All seams on the nest's axes, and notes on what was left.

    `in_block`: of a condition over two axes, the places on the inner axis where it is settled.
    A cut on a reduction axis makes parts that reduce into the same values: see `split.sections`.
    """
    search = SeamSearch(nest, Bounds.of(nest.axes, nest.symbols), in_block=in_block)
    fold(nest, search)
    for _ in range(ROUNDS - 1):
        inside = [a for a in search.waiting if 0 < len(search.cuts.get(a, ())) <= MOST_WRAPS]
        for axis in search.waiting.difference(inside):
            search._note("inner-wrap", f"{axis}: a condition over a wrap or floor that is left")
        search.waiting.clear()
        for axis in sorted(inside, key=str):
            _look_inside(nest, search, axis)
    _leave_unmovable(search)
    return search


def together(axes: Sequence[Axis], searches: Sequence[SeamSearch]) -> SeamSearch:
    """The seams that several nests have on the loops that they share: `axes`, the first of each.

    An axis that one of them must not cut is cut by none.
    """
    symbols = {s.symbol: s for search in searches for s in search.nest.symbols}
    shared = LoopNest(searches[0].nest.name, tuple(axes), (), (), tuple(symbols.values()))
    joint = SeamSearch(shared, Bounds.of(shared.axes, shared.symbols))
    own = {a.symbol for a in axes}
    joint.fixed = {s for search in searches for s in search.fixed & own}
    for search in searches:
        for seam in search.seams:
            # a position that the nest itself gave up has a note there
            if seam.axis in own - joint.fixed and seam.position in search.cuts.get(seam.axis, ()):
                joint._cut(seam.axis, seam.position, seam.cause)
    return joint


def _leave_unmovable(search: SeamSearch) -> None:
    """Give up the cuts of an axis that an index depends on which must not be counted anew.

    Below 0, where a wrap's `%` follows the sign of its left side, as in C: torch's ModularIndexing
    takes the left side for periodic and drops whole periods, which changes the value. Beyond int64:
    the number that is added to count from another place may be one that C++ can't write.
    """
    exprs = {
        arg
        for body in search.nest.bodies
        for op in walk(body.block)
        for arg in operands(op)
        if isinstance(arg, sympy.Expr)
    }
    for wrap in {w for expr in exprs for w in expr.atoms(ModularIndexing, Mod)}:
        if search.bounds.negative(wrap.args[0]) is not False:
            search.fix(wrap, "negative-wrap", f"{wrap}: its left side may be negative")
    for expr in filter(search.bounds.wraps, exprs):
        search.fix(expr, "overflow", f"{expr} may leave int64")
        for axis in search.held.keys() & expr.free_symbols:
            del search.held[axis]


def _look_inside(nest: LoopNest, search: SeamSearch, axis: sympy.Symbol) -> None:
    """Search again inside the ranges of one axis cut so far: wraps are affine there."""
    for box in boxes(nest, {axis: search.cuts[axis]}):
        start, _ = box.range(axis)
        limited = move(nest, box)
        bounds = Bounds.of(limited.axes, nest.symbols)
        inner = SeamSearch(limited, bounds, in_block=search.in_block)
        fold(limited, inner)
        search.waiting |= inner.waiting
        for seam in inner.seams:
            offset = start if seam.axis == axis else 0
            search._cut(seam.axis, seam.position + offset, seam.cause)
