"""Decisions are remembered for nests that do the same, as those of a model's layers do.

What is chosen depends on a nest's loops alone, not on the names of its buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import sympy

from torch_piecewise.loops.ir import Arg, Block, LoopNest, Op
from torch_piecewise.loops.seams import SeamSearch
from torch_piecewise.loops.split import Cuts, restrict

from .choose import Cutting, Pieces, choose
from .cost import Size
from .group import GroupCutting, Inside, choose_group

REMEMBERED = 256  # nests


@dataclass(frozen=True)
class _Alike:
    """The seams of a nest whose names are taken away: equal where two nests do the same."""

    nest: LoopNest
    search: SeamSearch = field(compare=False)

    @staticmethod
    def of(search: SeamSearch) -> _Alike:
        nest = unnamed(search.nest)
        return _Alike(nest, replace(search, nest=nest))


def choose_alike(
    search: SeamSearch, cuts: Cuts, split: str, max_pieces: int, threads: int, size: Size
) -> Cutting:
    """As `choose`, but once for nests that are alike."""
    if search.nest.symbols:  # their likely values are those of one graph
        return choose(search.nest, cuts, split, max_pieces, threads, size)
    at = tuple((axis, tuple(positions)) for axis, positions in cuts.items())
    found = _choose(_Alike.of(search), at, split, max_pieces, threads)
    return replace(found, pieces=_pieces(search.nest, found.pieces))


def choose_group_alike(
    members: Sequence[SeamSearch],
    depth: int,
    split: str,
    max_pieces: int,
    threads: int,
    size: Size,
) -> GroupCutting:
    """As `choose_group`, but once for groups that are alike."""
    if any(search.nest.symbols for search in members):
        return choose_group(members, depth, split, max_pieces, threads, size)
    alike = tuple(map(_Alike.of, members))
    found = _choose_group(alike, depth, split, max_pieces, threads)
    return replace(
        found,
        boxes=tuple(
            (box, tuple(_inside(s.nest, part) for s, part in zip(members, parts, strict=True)))
            for box, parts in found.boxes
        ),
    )


def unnamed(nest: LoopNest) -> LoopNest:
    """The nest with numbers in place of the names of its buffers and bodies."""
    numbers: dict[str, str] = {}
    named = {name for name, _ in nest.buffers}

    def number(name: str) -> str:
        return numbers.setdefault(name, f"b{len(numbers)}")

    def arg(value: Arg) -> Arg:
        if isinstance(value, str) and value in named:
            return number(value)
        if isinstance(value, tuple):
            return tuple(arg(each) for each in value)
        if isinstance(value, Block):
            return Block(tuple(op(each) for each in value.ops), arg(value.result))
        return value

    def op(each: Op) -> Op:
        kwargs = tuple((key, arg(value)) for key, value in each.kwargs)
        return replace(each, args=tuple(arg(value) for value in each.args), kwargs=kwargs)

    bodies = tuple(
        replace(body, name=str(k), block=Block(tuple(map(op, body.block.ops)), body.block.result))
        for k, body in enumerate(nest.bodies)
    )
    buffers = [(number(name), dtype) for name, dtype in nest.buffers]
    return replace(nest, name="", bodies=bodies, buffers=tuple(sorted(buffers, key=str)))


@lru_cache(maxsize=REMEMBERED)
def _choose(
    one: _Alike,
    cuts: tuple[tuple[sympy.Symbol, tuple[sympy.Expr, ...]], ...],
    split: str,
    max_pieces: int,
    threads: int,
) -> Cutting:
    return choose(one.nest, dict(cuts), split, max_pieces, threads, int)


@lru_cache(maxsize=REMEMBERED)
def _choose_group(
    members: tuple[_Alike, ...], depth: int, split: str, max_pieces: int, threads: int
) -> GroupCutting:
    searches = [member.search for member in members]
    return choose_group(searches, depth, split, max_pieces, threads, int)


def _inside(nest: LoopNest, part: Inside) -> Inside:
    return replace(part, pieces=_pieces(nest, part.pieces))


def _pieces(nest: LoopNest, like: Pieces) -> Pieces:
    """The same boxes of a nest with its own names."""
    return tuple((box, restrict(nest, box)) for box, _ in like)
