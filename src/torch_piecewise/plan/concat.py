"""Decide for one concatenation whether its consumers compute it, or it is stored and read again.

Inductor stores a concatenation on the CPU, since computing it in its consumers costs masks for
every input. Once the consumer's loop is cut at the joins the masks are gone, and the store and the
load are saved. That pays where the consumers are loops of our own, and little is computed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .choose import Choice
from .cost import BYTE, shown
from .plan import Reason

MOST_INPUTS = 8  # each is a range of its own in every consumer


@dataclass(frozen=True)
class Concat:
    """What is known when a concatenation is lowered.

    `elements` of the result, each of `itemsize` bytes, `inputs` joined, `work` nanoseconds for one
    element of them (0 where they are in memory), `readers` by what they do: "pointwise",
    "reduction" (over the joins or along another axis), "unrolled" (a reduction over so few that it
    is written out: all of those make one loop), or the name of what needs the result in memory.
    `byte` is nanoseconds for moving one.
    """

    name: str
    elements: float
    itemsize: int
    inputs: int
    work: float
    readers: Sequence[str]
    byte: float = BYTE


def choose_concat(concat: Concat) -> Choice:
    """`split` True: compute it in its consumers."""

    def stored(code: str, text: str) -> Choice:
        return Choice(False, Reason(code, concat.name, f"stored and read again: {text}"))

    loops = ("pointwise", "reduction", "unrolled")
    others = [r for r in concat.readers if r not in loops]
    if others or not concat.readers:
        return stored("needed", f"{others[0] if others else 'nothing'} reads it from memory")
    if concat.inputs > MOST_INPUTS:
        return stored("many-inputs", f"{concat.inputs} inputs, the cap is {MOST_INPUTS}")
    saved = 3 * concat.elements * concat.itemsize * concat.byte  # one store, one load
    unrolled = concat.readers.count("unrolled")
    times = len(concat.readers) - max(0, unrolled - 1)
    repeated = (times - 1) * concat.work * concat.elements
    numbers = f"saves {shown(saved)} of memory traffic, repeats {shown(repeated)} of work"
    if repeated >= saved:
        return stored("repeated-work", numbers)
    return Choice(True, Reason("computed", concat.name, f"computed in its consumers: {numbers}"))
