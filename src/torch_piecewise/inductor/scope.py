"""Whether this code runs inside one of our own compiles, and what that compile wants.

The context variable is set around `compile_fx` and again inside its `inner_compile`, since a
backward is compiled later, in whichever thread asks for it. Everything else in the process sees
None and gets Inductor as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from torch_piecewise.config import Config
from torch_piecewise.plan.plan import NestPlan, Plan, Reason

from .along import Along
from .fingerprint import fingerprint


@dataclass
class Scope:
    """One compile of ours. `nests` collects the plans of the graph being lowered, in order, `notes`
    what was decided before there were nests and is not yet written, `inlined` the loops that were
    lowered to be computed by their readers.

    `apply` False plans every nest and leaves the code as Inductor has it. `apart` makes a kernel of
    each nest (of those under one outer loop together), where Inductor has many in one. `report`
    hears the plan of each graph whose code was generated or came from a cache. `traces` are the
    user's stack traces by the name of the node in Dynamo's graph. `along` are the user's ranges
    where the loops of the graph are cut at them.
    """

    config: Config
    report: Callable[[Plan], None] | None = None
    apply: bool = True
    apart: bool = False
    traces: Mapping[str, str] = field(default_factory=dict)
    along: Along | None = None
    nests: list[NestPlan] = field(default_factory=list)
    notes: list[Reason] = field(default_factory=list)
    inlined: list[object] = field(default_factory=list)  # values that each reader computes
    written: int = 0  # how many nests the wrapper's source holds already
    kernels: int = 0  # in how many kernels these are

    def key(self) -> tuple[object, ...]:
        """All that determines our code, for Inductor's cache keys."""
        return ("torch_piecewise", fingerprint(), self.config.key(), self.apply, self.apart)


_current: ContextVar[Scope | None] = ContextVar("torch_piecewise_scope", default=None)


def current() -> Scope | None:
    """The compile of ours that this thread is in, None outside."""
    return _current.get()


@contextmanager
def entered(scope: Scope) -> Iterator[Scope]:
    """Make `scope` the current one for the block."""
    token = _current.set(scope)
    try:
        yield scope
    finally:
        _current.reset(token)


@contextmanager
def unheard() -> Iterator[list[Plan]]:
    """Collects the plans of graphs that are parts of another, instead of reporting them."""
    mine, heard = current(), list[Plan]()
    if mine is None:
        yield heard
        return
    report_to, mine.report = mine.report, heard.append
    try:
        yield heard
    finally:
        mine.report = report_to


def note(reason: Reason) -> None:
    """Write something about the graph that is lowered next into its source; see `facts`."""
    mine = current()
    if mine is not None:
        mine.notes.append(reason)


def report(plan: Plan) -> None:
    """Tell whoever compiles with us, if anybody asked, what was decided for a graph."""
    mine = current()
    if mine is not None and mine.report is not None:
        mine.report(plan)
