"""What the records of a run say together: means, losses, limits, and how often a choice was right.

Controls have no seams and are no part of the means over what this backend is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch_piecewise.bench.compile_time import CompileRecord
from torch_piecewise.bench.harness import Record
from torch_piecewise.bench.nests import NestTimes, is_right
from torch_piecewise.bench.plans import share_in_ir
from torch_piecewise.bench.settings import Task
from torch_piecewise.bench.timing import geometric_mean
from torch_piecewise.bench.variants import EAGER, FORCED, OFF, PLAIN, SEAMS

RIVALS = (EAGER, PLAIN, FORCED)
FAST = 1.2  # a speed below this asks for what limits it
NEAR_COPY = 0.8  # the share of a copy's bytes a second from which bytes are the limit


def summary(records: Iterable[Record]) -> dict[str, Any]:
    """The few numbers that say how a run went."""
    every = list(records)
    speeds = _speeds(every, "piecewise")
    slower = [name for r in every if speeds.get(name := label_of(r), 1.0) < 1.0 - r.noise]
    slowest = min(speeds, key=lambda name: speeds[name], default=None)
    seamed = [record for record in every if not is_control(record)]
    rivals = [x for x in map(over_best_rival, seamed) if x is not None]
    result: dict[str, Any] = {
        "subjects": len(every),
        "failed": sum(bool(record.problems) for record in every),
        "equal_to_inductor": sum(record.difference == 0.0 for record in every),
        "geometric_mean_speed": _mean(speeds.values()),
        "without_controls": {
            "subjects": len(rivals),
            "over_plain": _mean(_speeds(seamed, "piecewise").values()),
            "over_best_rival": _mean(rivals),
        },
        "lowest_speed": speeds[slowest] if slowest else None,
        "slowest": slowest,
        "slower_than_noise": slower,
        "limited_by": {label_of(r): by for r in seamed if (by := limit(r))},
        "share_in_ir": share_in_ir([r.plan for r in every if r.plan is not None]),
    }
    if any(record.variant(SEAMS.name) for record in every):
        result["choices"] = choices(every)
    return result


def label_of(record: Record | CompileRecord) -> str:
    return Task(record.suite, record.name, record.train).label


def is_control(record: Record) -> bool:
    return record.suite == "seams" and record.name.startswith("control_")


def over_best_rival(record: Record) -> float | None:
    """How many times faster the backend is than the fastest of the others."""
    tested = record.variant("piecewise")
    rivals = [found.speed for v in RIVALS if (found := record.variant(v.name))]
    return tested.speed / max(rivals) if tested and rivals else None


def limit(record: Record) -> str | None:
    """What keeps a slow subject from more: "bytes" where it moves them nearly as fast as a copy.

    Else "code". None where the subject is fast, or nothing is known about its bytes.
    """
    tested = record.variant("piecewise")
    if tested is None or tested.speed >= FAST or not (tested.gb_per_s and record.copy_gb_per_s):
        return None
    return "bytes" if tested.gb_per_s >= NEAR_COPY * record.copy_gb_per_s else "code"


def choices(records: Sequence[Record]) -> dict[str, Any]:
    """How often the default was the measured best of cutting always and never, and where not.

    Of a subject that is the whole of it, where any of its nests can be cut; "off" leaves its
    concatenations to Inductor too. Of a nest it is its kernel alone, with the same concatenations.
    Unclear nests are among the right ones: they lose more than is allowed, but inside the noise.
    """
    chosen = [(r, loss) for r in records if (loss := loss_of(r)) is not None]
    wrong = {label_of(r): loss for r, loss in chosen if not is_right(loss, r.noise)}
    nests = [(label_of(record), nest) for record in records for nest in record.nests]
    right = sum(nest.right for _, nest in nests)
    cuttable = [record for record, _ in chosen]
    return {
        "always_off": _mean(_speeds(cuttable, OFF.name).values()),
        "always_seams": _mean(_speeds(cuttable, SEAMS.name).values()),
        "always_chosen": _mean(_speeds(cuttable, "piecewise").values()),
        "subjects": len(chosen),
        "right_subjects": len(chosen) - len(wrong),
        "wrong_subjects": wrong,
        "nests": len(nests),
        "right_nests": right,
        "unclear_nests": sum(nest.unclear for _, nest in nests),
        "share_of_right_nests": right / len(nests) if nests else None,
        "wrong_nests": [wrong_nest(name, nest) for name, nest in nests if not nest.right],
    }


def loss_of(record: Record) -> float | None:
    """How many times faster the better of always and never is; None where there is no choice."""
    tested, *others = (record.variant(name) for name in ("piecewise", OFF.name, SEAMS.name))
    speeds = [other.speed for other in others if other]
    return max(speeds) / tested.speed if tested and len(speeds) == 2 and record.nests else None


def wrong_nest(label: str, nest: NestTimes) -> str:
    """A line for what the cost model got wrong: what was measured, and what it said."""
    chosen = "whole" if nest.pieces == len(nest.name.split()) else f"{nest.pieces} pieces"
    return (
        f"{label}, {nest.graph}, {nest.name}: {chosen} takes {nest.loss:.2f} times the best; cut "
        f"into {nest.pieces_at_seams} measured {nest.gain:.2f}x (±{100 * nest.noise:.1f}%), "
        f"{nest.estimate}; chosen: {nest.reason}"
    )


def _speeds(records: Iterable[Record], variant: str) -> dict[str, float]:
    return {label_of(r): found.speed for r in records if (found := r.variant(variant))}


def _mean(speeds: Iterable[float]) -> float | None:
    every = list(speeds)
    return geometric_mean(every) if every else None
