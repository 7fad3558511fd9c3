"""Plans travel with the code they describe: as JSON in comments of the wrapper's source.

A compile that hits Inductor's caches runs no scheduler, so whatever `explain` needs must be in the
artifact. Inductor keeps the wrapper's source, comments included, and shows it to one hook both
when it was generated and when it came from a cache.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V

from torch_piecewise.plan.plan import Plan, nest_from_json, nest_to_json

from . import scope

MARK = "torch_piecewise plan of "


def write() -> None:
    """Put the nests that were planned since the last call into the wrapper's header."""
    mine = scope.current()
    if mine is None:
        return
    wrapper = V.graph.wrapper_code
    for nest in mine.nests[mine.written :]:
        fact = json.dumps(nest_to_json(nest))
        wrapper.header.writeline(f"{wrapper.comment} {MARK}{_kind()}: {fact}")
    mine.written = len(mine.nests)


def _kind() -> str:
    if V.graph.is_backward:
        return "backward"
    return "inference" if V.graph.is_inference else "forward"


def read(source: str) -> Plan | None:
    """The plan written into a wrapper's source, None where it holds none."""
    kind, nests = "", []
    for line in source.splitlines():
        _, mark, rest = line.partition(MARK)
        if mark:
            kind, _, fact = rest.partition(": ")
            nests.append(nest_from_json(json.loads(fact)))
    return Plan(kind, tuple(nests)) if nests else None


class SourceHook:
    """`GraphLowering.save_output_code`: reports plans to a compile of ours, else does nothing.

    `other` is what was there before; it goes on hearing every source.
    """

    def __init__(self, other: Callable[[str], None] | None):
        self.other = other

    def __call__(self, source: str) -> None:
        if self.other is not None:
            self.other(source)
        mine = scope.current()
        if mine is not None and mine.report is not None:
            plan = read(source)
            if plan is not None:
                mine.report(plan)


def install_hook() -> None:
    """Put the hook where Inductor calls it, unless it is there.

    Called for every compile: a test that replaces the attribute for a while takes our hook away
    with it when it puts back what it found.
    """
    there = GraphLowering.save_output_code
    if not isinstance(there, SourceHook):
        GraphLowering.save_output_code = SourceHook(there)
