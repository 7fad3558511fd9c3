"""What `explain` returns, and its text: graphs, nests, seams, pieces, reasons, source lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch_piecewise.plan.plan import NestPlan, Plan, Reason, RegionPlan, Seam


@dataclass(frozen=True)
class SourceLine:
    """A line of the user's code; `code` is empty where the file can't be read."""

    file: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f": {self.code}" if self.code else "")


@dataclass(frozen=True)
class Explanation:
    """The plans of all graphs of one call, forward before backward.

    `lines` gives for each plan, and in it for each nest, the lines of the user's code behind it.
    """

    plans: tuple[Plan, ...]
    lines: tuple[tuple[tuple[SourceLine, ...], ...], ...] = field(repr=False)

    @property
    def nests(self) -> tuple[NestPlan, ...]:
        return tuple(n for p in self.plans for n in p.nests)

    @property
    def pieces(self) -> int:
        """Pieces of all nests together; a whole nest is one."""
        return sum(len(n.pieces) for n in self.nests)

    def __str__(self) -> str:
        return "\n".join(self._text())

    def _text(self) -> Iterator[str]:
        cut = sum(n.split for n in self.nests)
        counts = (_count(len(self.plans), "graph"), _count(len(self.nests), "loop nest"))
        whole = len(self.nests) - cut
        ranges = sum(any(region.cut for region in plan.regions) for plan in self.plans)
        in_ranges = f" ({ranges} in ranges)" if ranges else ""
        yield (
            f"{counts[0]}{in_ranges}, {counts[1]}: {cut} cut, {whole} whole; "
            f"{_count(self.pieces, 'piece')}"
        )
        for number, (plan, lines) in enumerate(zip(self.plans, self.lines, strict=True)):
            yield f"\ngraph {number} ({plan.kind})"
            yield from (line for region in plan.regions for line in region_text(region))
            yield from (f"  {note.where}: {note}" for note in plan.notes)
            for nest, own in zip(plan.nests, lines, strict=True):
                yield from nest_text(nest, own)


MOST_SHOWN = 6  # ranges, or operators, of a region


def region_text(region: RegionPlan) -> Iterator[str]:
    """One region for reading: what is cut where, or left whole, and why."""
    operators = _shown(region.operators)
    if region.cut:
        dims = " and ".join(map(str, region.dims)) or "reduced"
        said = f"dim {dims} in {_count(len(region.ranges), 'range')}: {_shown(region.ranges)}"
    else:
        said = "whole"
    yield f"  {region.name}: {said}; {region.reason}"
    yield f"    {_count(len(region.operators), 'operator')}: {operators}"
    yield from (f"    left: {reason.where}: {reason}" for reason in region.left)


def _shown(texts: tuple[str, ...]) -> str:
    more = len(texts) - MOST_SHOWN
    return ", ".join(texts[:MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


def nest_text(nest: NestPlan, lines: tuple[SourceLine, ...] = ()) -> Iterator[str]:
    """One nest for reading: axes, what was done and why, seams, pieces, source lines."""
    axes = ", ".join(f"{a.name} in [0, {a.size}){' reduced' * a.reduce}" for a in nest.axes)
    of = f" of {_shown(nest.parts)}" if nest.parts else ""
    yield f"  nest {nest.name}{of}: {axes or 'no axes'}"
    reason, notes = _reasons(nest)
    yield f"    {f'cut into {len(nest.pieces)} pieces' if nest.split else 'whole'}: {reason}"
    for seam in _in_order(nest):
        at = nest.cut_at(seam)
        where = "" if at == seam.position else ", not cut" if at is None else f", cut at {at}"
        yield f"    seam at {seam.axis} = {seam.position}{where} ({seam.cause})"
    if nest.split:
        for piece in nest.pieces:
            yield f"    piece {piece.name}: {piece.where}, by {piece.target}"
    yield from (f"    left: {note}" for note in notes)
    yield from (f"    from {line}" for line in lines)


def plan_text(plan: Plan) -> str:
    """A plan alone, without source lines."""
    notes = (f"  {note.where}: {note}" for note in plan.notes)
    regions = (line for region in plan.regions for line in region_text(region))
    return "\n".join(
        [f"plan ({plan.kind})", *regions, *notes, *(t for n in plan.nests for t in nest_text(n))]
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _reasons(nest: NestPlan) -> tuple[Reason, list[Reason]]:
    """The reason and the other notes. A note may be the reason, and then has the closer code."""
    same = [note for note in nest.notes if note.text == nest.reason.text]
    notes = [note for note in nest.notes if note not in same]
    return (same[0] if same else nest.reason), notes


def _in_order(nest: NestPlan) -> list[Seam]:
    """Seams by axis and position; symbolic positions come last, in the order of their cuts."""
    axes = [axis.name for axis in nest.axes]

    def place(seam: Seam) -> tuple[int, bool, int]:
        try:
            return axes.index(seam.axis), False, int(seam.position)
        except ValueError:
            starts = nest.starts(seam.axis)
            cut = seam.position in starts
            return axes.index(seam.axis), True, starts.index(seam.position) if cut else len(starts)

    return sorted(nest.seams, key=place)
