"""What was decided for one compiled graph, as pure data; nests round-trip through JSON.

A `Plan` lists the graph's loop nests; each `NestPlan` has its axes, seams, pieces and a reason.
Bounds are text, since they may be symbolic ("s0 - 1").
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from .vectors import moved


@dataclass(frozen=True)
class Reason:
    """Why something was done or left: a stable `code`, a `text`, and a `hint` on what to do."""

    code: str
    where: str
    text: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.text} [{self.code}]" + (f" ({self.hint})" if self.hint else "")


@dataclass(frozen=True)
class AxisPlan:
    name: str
    size: str
    reduce: bool = False


@dataclass(frozen=True)
class Seam:
    """A place on an axis where the body changes: `cause` is what changes there."""

    axis: str
    position: str
    cause: str


@dataclass(frozen=True)
class Piece:
    """A nest limited to a box; `box` has (axis, start, stop) for each axis."""

    name: str
    box: tuple[tuple[str, str, str], ...]
    target: str = "inductor"

    @property
    def where(self) -> str:
        return ", ".join(f"{axis} in [{start}, {stop})" for axis, start, stop in self.box)


@dataclass(frozen=True)
class NestPlan:
    """One nest. It is whole where it has one piece; `reason` then says why, else why it was cut.

    `in_ir` is False where the adapter could not express the nest. `seams` are those found, cut or
    not. `origins` are (kind, name) of graph nodes: names in the graph that Dynamo gave. `kernel`
    counts the calls of kernels that have nests: nests with the same number run in the same call.
    `parts` are the parts of a graph in ranges that it is of, which have the same code.
    """

    name: str
    axes: tuple[AxisPlan, ...]
    seams: tuple[Seam, ...]
    pieces: tuple[Piece, ...]
    reason: Reason
    notes: tuple[Reason, ...] = ()
    origins: tuple[str, ...] = ()
    in_ir: bool = True
    text: str = ""  # the nest in the loop IR
    kernel: int = 0
    parts: tuple[str, ...] = ()

    @property
    def split(self) -> bool:
        return len(self.pieces) > 1

    def starts(self, axis: str) -> list[str]:
        """Where the pieces begin on an axis, in order, its own begin first."""
        return list(dict.fromkeys(a for p in self.pieces for name, a, _ in p.box if name == axis))

    def cut_at(self, seam: Seam) -> str | None:
        """Where a piece begins for a seam: there, or at a whole vector close by.

        None where the nest is whole, or was not cut at this seam.
        """
        begins = self.starts(seam.axis)
        places = [seam.position]
        size = next((axis.size for axis in self.axes if axis.name == seam.axis), "")
        if size.isdigit() and seam.position.isdigit():
            places.append(str(moved(int(seam.position), int(size))))
        return next((place for place in places if place in begins), None)


@dataclass(frozen=True)
class RegionPlan:
    """Operators of a graph that run together: cut into pieces by ranges, or whole.

    `dims` say which dim of how many values is cut, `ranges` are those of the output's dim, `reason`
    says why the region began. `left` are operators that stay whole, each with the reason.
    """

    name: str
    operators: tuple[str, ...]
    ranges: tuple[str, ...]
    reason: Reason
    dims: tuple[int, ...] = ()
    left: tuple[Reason, ...] = ()

    @property
    def cut(self) -> bool:
        return bool(self.ranges)


@dataclass(frozen=True)
class Plan:
    """Everything decided for one graph. `kind` is "inference", "forward" or "backward".

    `notes` are decisions above the nests: which concatenations are computed by their readers.
    `regions` are in the order in which they run; none where the graph is compiled as one.
    """

    kind: str
    nests: tuple[NestPlan, ...]
    notes: tuple[Reason, ...] = ()
    regions: tuple[RegionPlan, ...] = ()


def nest_to_json(nest: NestPlan) -> dict[str, Any]:
    """One nest as plain values for a JSON writer."""
    return dataclasses.asdict(nest)


def nest_from_json(raw: dict[str, Any]) -> NestPlan:
    """Back from what a JSON reader gives; KeyError or TypeError where that is no nest."""
    return NestPlan(
        name=raw["name"],
        axes=tuple(AxisPlan(**a) for a in raw["axes"]),
        seams=tuple(Seam(**s) for s in raw["seams"]),
        pieces=tuple(
            Piece(p["name"], tuple((a, b, c) for a, b, c in p["box"]), p["target"])
            for p in raw["pieces"]
        ),
        reason=Reason(**raw["reason"]),
        notes=tuple(Reason(**r) for r in raw["notes"]),
        origins=tuple(raw["origins"]),
        in_ir=raw["in_ir"],
        text=raw["text"],
        kernel=raw["kernel"],
        parts=tuple(raw.get("parts", ())),
    )
