"""The steps that drawn programs are made of: each adds lines that make a new matrix `a`.

A step knows the shape of `a` and keeps it right, and keeps the values of `a` in the size of the
inputs'. `y` is the second input, of the shape that `a` had at first.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

CHEAP = ("{} * 0.5", "0.3 - {}", "{} * {} * 0.1", "0.7 * {} + 0.2")
KINKED = ("torch.relu({})", "{}.abs()", "{}.clamp(-1.5, 1.5)")  # rounding can flip their gradients
HEAVY = (
    "torch.sin({})",
    "torch.tanh({})",
    "torch.exp(-{} * {})",
    "torch.sigmoid({})",
    "F.gelu({})",
    "torch.sqrt(1.0 + {} * {})",
    "torch.erf({})",
    "{} / (1.0 + {} * {})",
)
REDUCTIONS = ("mean", "logsumexp", "amax")
LEAST = 16  # rows and columns that are always left


@dataclass
class Draw:
    """A program while it is drawn: `shape` is that of `a`, `most` the most elements it may have."""

    rng: random.Random
    shape: tuple[int, int]
    most: int
    smooth: bool
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.first = self.shape

    def add(self, line: str, shape: tuple[int, int] | None = None) -> None:
        self.lines.append(line)
        self.shape = shape or self.shape

    def axis(self) -> int:
        return self.rng.randrange(2)

    def place(self, axis: int) -> int:
        """Somewhere inside an axis; near one of its ends as often as not."""
        n = self.shape[axis]
        near = self.rng.randint(1, max(1, min(8, n // 4)))
        return self.rng.choice((near, n - near, self.rng.randint(n // 4, 3 * n // 4)))

    def pointwise(self, value: str) -> str:
        """An expression of `value`, cheap or heavy."""
        cheap = CHEAP if self.smooth else CHEAP + KINKED
        form = self.rng.choice(cheap if self.rng.random() < 0.5 else HEAVY)
        return form.replace("{}", value)


def cut(axis: int, start: int | str, stop: int | str, step: int | None = None) -> str:
    """A subscript that takes a range of one axis."""
    middle = f"{start}:{stop}" + (f":{step}" if step else "")
    return f"[{middle}]" if axis == 0 else f"[:, {middle}]"


def along(shape: tuple[int, int], axis: int, n: int) -> tuple[int, int]:
    return (n, shape[1]) if axis == 0 else (shape[0], n)


def arithmetic(d: Draw) -> None:
    d.add(f"a = {d.pointwise('a')}")


def second(d: Draw) -> None:
    """The other input, as far as both reach."""
    rows, columns = (min(now, first) for now, first in zip(d.shape, d.first))
    a = "a" if (rows, columns) == d.shape else f"a[:{rows}, :{columns}]"
    y = "y" if (rows, columns) == d.first else f"y[:{rows}, :{columns}]"
    d.add(f"a = {d.rng.choice(('{} + {}', '0.5 * {} * {}', '{} - {}')).format(a, y)}")
    d.shape = rows, columns


def pad(d: Draw) -> None:
    by = [d.rng.randint(0, 9) for _ in range(4)]  # left, right, top, bottom
    if d.rng.random() < 0.3:
        by[d.rng.randrange(4)] *= -1
    rows, columns = d.shape[0] + by[2] + by[3], d.shape[1] + by[0] + by[1]
    if min(rows, columns) < LEAST:
        return arithmetic(d)
    source = d.pointwise("a") if d.rng.random() < 0.5 else "a"
    d.add(f"a = F.pad({source}, {tuple(by)}, value={d.rng.randint(-9, 9) / 10})", (rows, columns))


def roll(d: Draw) -> None:
    axis = d.axis()
    by = d.rng.choice((1, -1, 2, d.place(axis)))
    if d.rng.random() < 0.5:
        other = f"torch.roll(a, {-by}, {axis})"
        d.add(f"a = 0.4 * a + 0.3 * torch.roll(a, {by}, {axis}) - 0.3 * {other}")
    elif d.rng.random() < 0.5:
        d.add(f"a = {d.pointwise('a')} + 0.5 * torch.roll(a, ({by}, {by}), (0, 1))")
    else:
        d.add(f"a = torch.roll({d.pointwise('a')}, {by}, {axis})")


def join(d: Draw) -> None:
    """Parts of `a` in another order, or `a` with a part of it once more."""
    axis = d.axis()
    at, n = d.place(axis), d.shape[axis]
    front, back = f"a{cut(axis, '', at)}", f"a{cut(axis, at, '')}"
    if d.rng.random() < 0.5:
        d.add(f"a = torch.cat([{d.pointwise(back)}, {d.pointwise(front)}], {axis})")
        return
    parts = [d.pointwise(front), d.pointwise("a")]
    grown = along(d.shape, axis, n + at)
    if grown[0] * grown[1] > d.most:
        parts, grown = [d.pointwise(front), d.pointwise(back)], d.shape
    d.add(f"a = torch.cat([{', '.join(parts)}], {axis})", grown)


def mask(d: Draw) -> None:
    """A condition on the place along one axis."""
    axis = d.axis()
    n, at = d.shape[axis], d.place(axis)
    if d.rng.random() < 0.5:
        condition = f"i {d.rng.choice(('<', '>='))} {at}"
    else:
        width = d.rng.randint(1, n // 2)
        condition = f"(i >= {at // 2}) & (i < {min(n, at // 2 + width)})"
    d.add(f"i = torch.arange({n}, device=a.device)" + ("[:, None]" if axis == 0 else ""))
    d.add(f"a = torch.where({condition}, {d.pointwise('a')}, {d.pointwise('a')})")


def mask_both(d: Draw) -> None:
    """A condition on the places along both axes: a box, its outside, or a triangle."""
    rows, columns = d.shape
    top, left = d.place(0), d.place(1)
    form = d.rng.choice(("(i < {0}) & (j >= {1})", "(i < {0}) | (j < {1})", "j <= i + {2}"))
    d.add(f"i = torch.arange({rows}, device=a.device)[:, None]")
    d.add(f"j = torch.arange({columns}, device=a.device)")
    condition = form.format(top, left, left - top)
    d.add(f"a = torch.where({condition}, {d.pointwise('a')}, {d.pointwise('a')})")


def crop(d: Draw) -> None:
    """A range of an axis, or every second element of it."""
    axis = d.axis()
    n = d.shape[axis]
    if n < 4 * LEAST:
        return arithmetic(d)
    if d.rng.random() < 0.3:
        d.add(f"a = a{cut(axis, '', '', 2)}", along(d.shape, axis, (n + 1) // 2))
        return
    start, stop = d.rng.randint(0, n // 4), n - d.rng.randint(0, n // 4)
    d.add(f"a = {d.pointwise(f'a{cut(axis, start, stop)}')}", along(d.shape, axis, stop - start))


def assign(d: Draw) -> None:
    """A range of an axis gets other values."""
    axis = d.axis()
    at = d.place(axis)
    where = cut(axis, at, "") if d.rng.random() < 0.5 else cut(axis, "", at)
    d.add("b = a.clone()")
    d.add(f"b{where} = {d.pointwise(f'a{where}')}")
    d.add(f"a = {d.pointwise('b')}")


def difference(d: Draw) -> None:
    """Differences of neighbours, one-sided at one end."""
    axis = d.axis()
    n = d.shape[axis]
    inner = f"a{cut(axis, 1, '')} - a{cut(axis, '', n - 1)}"
    d.add(f"a = torch.cat([a{cut(axis, '', 1)} * 0.5, {inner}], {axis})")


def reduce(d: Draw) -> None:
    """Something over an axis, which goes back into every element."""
    d.add(f"a = {d.pointwise('a')} - {_reduction(d, keepdim=True)}")


def reduced(d: Draw) -> str:
    """An expression of `a` without one of its axes, as a result of its own."""
    return _reduction(d, keepdim=False)


def _reduction(d: Draw, keepdim: bool) -> str:
    kind = d.rng.choice(REDUCTIONS[:2] if d.smooth else REDUCTIONS)
    return f"a.{kind}({d.axis()}{', keepdim=True' if keepdim else ''})"


# the more of them, the more often
KINDS: tuple[Callable[[Draw], None], ...] = (
    *(arithmetic, arithmetic, second, pad, pad, roll, roll, join, join, mask, mask, mask_both),
    *(crop, assign, difference, reduce),
)
