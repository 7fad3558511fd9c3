"""The stages of a graph as plain data, for `explain`."""

from __future__ import annotations

from collections.abc import Sequence

from torch_piecewise.graph.axes import Range, named
from torch_piecewise.graph.regions import Regions, Stage

from .plan import Reason, RegionPlan


def region_plans(regions: Regions, ranges: Sequence[Range], dim: int) -> tuple[RegionPlan, ...]:
    """What runs in ranges and what whole, in order; `dim` is the one that the user gave ranges."""
    reasons = {r.node: Reason(r.code, named(r.node), r.text) for r in regions.refused}
    plans = []
    for number, stage in enumerate(regions.stages):
        cut = stage.is_cut
        plans.append(
            RegionPlan(
                name=f"region {number}",
                operators=tuple(named(node) for node in (*stage.combines, *stage.nodes)),
                ranges=tuple(map(str, ranges)) if cut else (),
                reason=_began(number, stage, dim),
                dims=tuple(sorted({own for _, own in stage.cuts.values()})),
                left=() if cut else tuple(reasons[n] for n in stage.nodes if n in reasons),
            )
        )
    return tuple(plans)


def _began(number: int, stage: Stage, dim: int) -> Reason:
    where = f"region {number}"
    if stage.combines:
        return Reason("combined", where, "combines what the ranges of a reduction gave")
    if not stage.is_cut:
        return Reason("whole", where, "nothing in it is along the dim that is cut")
    if number <= 1:
        return Reason("ranges", where, f"the ranges given for dim {dim} of the output")
    return Reason("ranges", where, "takes values whole, or along another dim, that are ready now")
