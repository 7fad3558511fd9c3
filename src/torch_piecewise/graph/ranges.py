"""The ranges that a user gives: checked as an option, and resolved for a dim of known size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from torch_piecewise.errors import RangeError

from .axes import Bound, Range

Position = int | float | None
Given = int | tuple[Position, ...]
WANTED = (
    "bounds [0, 256, 512, None] (None is the end), fractions [0.0, 0.9, 1.0], or a number of "
    "equal ranges"
)


def checked(value: object) -> Given | None:
    """What the option holds, frozen; None where it is no such thing at all.

    Whether bounds fit a dim is known when there is one: see `resolve`.
    """
    if isinstance(value, bool) or not isinstance(value, int | list | tuple):
        return None
    if isinstance(value, int):
        return value if value >= 1 else None
    bounds = tuple(value)
    if len(bounds) < 2 or any(isinstance(b, bool) for b in bounds):
        return None
    if not all(isinstance(b, int | float) for b in bounds[:-1]):
        return None
    if not (bounds[-1] is None or isinstance(bounds[-1], int | float)):
        return None
    fractions = [isinstance(b, float) for b in bounds if b is not None]
    mixed = any(fractions) and not all(fractions) and not set(_ints(bounds)) <= {0, 1}
    return None if mixed else bounds


def _ints(bounds: Sequence[Position]) -> list[int]:
    return [b for b in bounds if isinstance(b, int)]


def resolve(given: Given, size: Bound, dim: int) -> tuple[Range, ...]:
    """The ranges of a dim of this size, empty ones left out; raises RangeError.

    They begin at 0, follow on each other and end at `size`, which may be symbolic where the last
    bound is open. With an open end, bounds beyond the end are left out.
    """
    if isinstance(given, int):
        return _equal(given, size)
    if any(isinstance(b, float) for b in given):
        return _fractions(given, size, dim)
    return _bounds(given, size, dim)


def undivided(ranges: Sequence[Range], dim: int) -> str | None:
    """Why there is nothing to cut; None where there are several ranges."""
    if len(ranges) > 1:
        return None
    return f"{ranges[0]} is all of dim {dim}" if ranges else f"dim {dim} has no positions"


def _equal(count: int, size: Bound) -> tuple[Range, ...]:
    """So many ranges of one size, the last one shorter; fewer where there are not enough."""
    step = -(-size // count)
    ranges = (Range(k * step, min((k + 1) * step, size)) for k in range(count))
    return tuple(r for r in ranges if r.start < r.stop)


def _fractions(given: Sequence[Position], size: Bound, dim: int) -> tuple[Range, ...]:
    shares = [1.0 if b is None else float(b) for b in given]
    if shares[0] != 0.0 or shares[-1] != 1.0 or not all(map(math.isfinite, shares)):
        raise RangeError.of(given, f"fractions of dim {dim} go from 0.0 to 1.0")
    for k, (a, b) in enumerate(pairwise(shares)):
        if b < a:
            raise RangeError.of(given, f"range {k} would end at {b}, before it begins at {a}")
    bounds = [_share(share, size) for share in shares]
    return tuple(Range(a, b) for a, b in pairwise(bounds) if a < b)


def _share(share: float, size: Bound) -> Bound:
    """A share of a size, rounded: in whole numbers, which sizes that are not known can be."""
    exact = Fraction(str(share))
    return (2 * exact.numerator * size + exact.denominator) // (2 * exact.denominator)


def _bounds(given: Sequence[Position], size: Bound, dim: int) -> tuple[Range, ...]:
    fixed = [b for b in given if isinstance(b, int)]
    open_end = given[-1] is None
    if fixed[0] != 0:
        raise RangeError.of(given, f"[0, {fixed[0]}) of dim {dim} is in no range: begin with 0")
    for k, (a, b) in enumerate(pairwise(fixed)):
        if b < a:
            said = f"range {k} would be [{a}, {b}), and overlap the one before it"
            raise RangeError.of(given, f"{said}: bounds have to go up")
    if not open_end and fixed[-1] > size:
        k = next(k for k, b in enumerate(fixed) if b > size) - 1
        said = f"range {k}, [{fixed[k]}, {fixed[k + 1]}), runs past the end of dim {dim}"
        raise RangeError.of(given, f"{said}, which has {size} positions")
    if not open_end and fixed[-1] < size:
        said = f"[{fixed[-1]}, {size}) of dim {dim} is in no range"
        raise RangeError.of(given, f"{said}: end with {size}, or with None for the end")
    inside = [b for b in fixed if not open_end or b < size]
    bounds: list[Bound] = [*inside, size] if open_end else inside
    return tuple(Range(a, b) for a, b in pairwise(bounds) if a < b)
