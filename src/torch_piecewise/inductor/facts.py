"""Plans travel with the code they describe: as JSON in comments of the wrapper's source.

A compile that hits Inductor's caches runs no scheduler, so whatever `explain` needs must be in the
artifact. Inductor keeps the wrapper's source, comments included, and shows it to one hook both
when it was generated and when it came from a cache.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V

from torch_piecewise.plan.plan import Plan, Reason, nest_from_json, nest_to_json

from . import scope

MARK = "torch_piecewise plan of "


def write() -> None:
    """Put the facts found since the last call, about the kernel just written, into the header."""
    mine = scope.current()
    if mine is None:
        return
    wrapper = V.graph.wrapper_code
    facts: list[Any] = [
        nest_to_json(dataclasses.replace(nest, kernel=mine.kernels))
        for nest in mine.nests[mine.written :]
    ]
    mine.kernels += bool(facts)
    facts = [*map(dataclasses.asdict, mine.notes), *facts]
    mine.notes.clear()
    for fact in facts:
        wrapper.header.writeline(f"{wrapper.comment} {MARK}{_kind()}: {json.dumps(fact)}")
    mine.written = len(mine.nests)


def _kind() -> str:
    if V.graph.is_backward:
        return "backward"
    return "inference" if V.graph.is_inference else "forward"


def read(source: str) -> Plan | None:
    """The plan written into a wrapper's source, None where it holds none."""
    kind, nests, notes = "", [], []
    for line in source.splitlines():
        _, mark, rest = line.partition(MARK)
        if mark:
            kind, _, fact = rest.partition(": ")
            raw = json.loads(fact)
            if "axes" in raw:
                nests.append(nest_from_json(raw))
            else:
                notes.append(Reason(**raw))
    return Plan(kind, tuple(nests), tuple(notes)) if nests else None


class SourceHook:
    """`GraphLowering.save_output_code`: reports plans to a compile of ours, else does nothing.

    `other` is what was there before; it goes on hearing every source.
    """

    def __init__(self, other: Callable[[str], None] | None):
        self.other = other

    def __call__(self, source: str) -> None:
        if self.other is not None:
            self.other(source)
        plan = read(source) if scope.current() is not None else None
        if plan is not None:
            scope.report(plan)


def install_hook() -> None:
    """Put the hook where Inductor calls it, unless it is there.

    Called for every compile: a test that replaces the attribute for a while takes our hook away
    with it when it puts back what it found.
    """
    there = GraphLowering.save_output_code
    if not isinstance(there, SourceHook):
        GraphLowering.save_output_code = SourceHook(there)
