"""What the piecewise backend decided for a function, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any

from torch_piecewise import Explanation, explain
from torch_piecewise.bench.variants import own_code
from torch_piecewise.plan.plan import Plan


@dataclass(frozen=True)
class PlanFacts:
    """Counts over all graphs of a function, backward included.

    `in_ir` nests went through the loop IR, `cut` ones have more than one piece. `reasons` counts
    the reason codes of all nests.
    """

    graphs: int = 0
    nests: int = 0
    in_ir: int = 0
    cut: int = 0
    pieces: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


def plans_of(fn: Callable[..., Any], args: Sequence[Any]) -> tuple[Plan, ...]:
    """The plans of `fn(*args)`: one for each graph, with its backward if an argument needs it."""
    return _explained(fn, args).plans


def lines_of(fn: Callable[..., Any], args: Sequence[Any]) -> dict[tuple[str, str], tuple[str, ...]]:
    """The lines of code behind each nest of `fn(*args)`, by the kind of its graph and its name."""
    found = _explained(fn, args)
    return {
        (plan.kind, nest.name): tuple(f"{Path(s.file).name}:{s.line}: {s.code}" for s in own)
        for plan, lines in zip(found.plans, found.lines, strict=True)
        for nest, own in zip(plan.nests, lines, strict=True)
    }


def _explained(fn: Callable[..., Any], args: Sequence[Any]) -> Explanation:
    if isinstance(fn, FunctionType):
        fn = own_code(fn, "explained")
    return explain(fn, tuple(args))


def count(plans: Sequence[Plan]) -> PlanFacts:
    nests = [nest for plan in plans for nest in plan.nests]
    return PlanFacts(
        graphs=len(plans),
        nests=len(nests),
        in_ir=sum(nest.in_ir for nest in nests),
        cut=sum(nest.split for nest in nests),
        pieces=sum(len(nest.pieces) for nest in nests),
        reasons=dict(Counter(nest.reason.code for nest in nests)),
    )


def share_in_ir(facts: Sequence[PlanFacts]) -> float | None:
    """The share of all nests that pass through the loop IR; None if there are none."""
    nests = sum(each.nests for each in facts)
    return sum(each.in_ir for each in facts) / nests if nests else None
