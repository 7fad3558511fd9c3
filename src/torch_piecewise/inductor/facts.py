"""Plans travel with the code they describe: as JSON in comments of the wrapper's source.

A compile that hits Inductor's caches runs no scheduler, so whatever `explain` needs must be in the
artifact. `CompiledFxGraph.source_code` keeps the wrapper's source, comments included.
"""

from __future__ import annotations

import json

from torch._inductor.virtualized import V

from torch_piecewise.plan.plan import NestPlan, nest_from_json, nest_to_json

from . import scope

MARK = "torch_piecewise nest:"


def write() -> None:
    """Put the nests that were planned since the last call into the wrapper's header."""
    mine = scope.current()
    if mine is None:
        return
    wrapper = V.graph.wrapper_code
    for nest in mine.nests[mine.written :]:
        wrapper.header.writeline(f"{wrapper.comment} {MARK} {json.dumps(nest_to_json(nest))}")
    mine.written = len(mine.nests)


def read(source: str) -> tuple[NestPlan, ...]:
    """The nests written into a wrapper's source, in order."""
    lines = (line.partition(MARK)[2] for line in source.splitlines() if MARK in line)
    return tuple(nest_from_json(json.loads(line)) for line in lines if line)
