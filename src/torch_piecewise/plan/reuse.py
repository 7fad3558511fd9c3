"""Decide for one value whether it is stored for its readers, or each of them computes it."""

from __future__ import annotations

from collections.abc import Iterable

from .choose import Choice
from .cost import BYTE, FUNCTIONS, WEIGHTS, shown
from .plan import Reason

CONDITIONS = frozenset(("where", "masked"))


def functions_take(operations: Iterable[str]) -> float:
    """Nanoseconds for one element of those operations that are functions, each counted once.

    Divisions and roots are instructions: they are as good as free beside a load.
    """
    kinds = (FUNCTIONS[name] for name in operations if name in FUNCTIONS)
    return sum(WEIGHTS[kind] for kind in kinds if kind != "division")


def choose_store(
    name: str, operations: Iterable[str], elements: float, itemsize: int, readers: int
) -> Choice:
    """`split` True: store it. `operations` are the names of those that make one element.

    Under a condition a function may be needed for a few elements only, so that cutting there is
    what saves most.
    """
    operations = frozenset(operations)
    if operations & CONDITIONS:
        text = "computed by each reader: it depends on a condition"
        return Choice(False, Reason("repeated", name, text))
    repeated = (readers - 1) * functions_take(operations) * elements
    moved = 3 * elements * itemsize * BYTE  # one store, one load
    numbers = f"{readers} readers would repeat {shown(repeated)}, moving it takes {shown(moved)}"
    if repeated > moved:
        return Choice(True, Reason("once", name, f"computed once for its readers: {numbers}"))
    return Choice(False, Reason("repeated", name, f"computed by each reader: {numbers}"))
