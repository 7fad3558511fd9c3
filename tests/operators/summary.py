"""What a run of the sweep covered, from what its tests recorded: lines for the end of the run.

A record is plain values, since workers send theirs as text: for each kind of what is counted the
names of operators, which are counted once however many records name them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .sweep import Outcome

Record = dict[str, Any]


def covered(outcomes: Sequence[Outcome]) -> Record:
    """The record of one test; what has a problem counts as nothing."""
    right = [o for o in outcomes if not o.problem]
    return {
        "run": _names(right),
        "backward": _names([o for o in right if o.gradients]),
        "split": _names([o for o in right if o.pieces]),
        "split itself": _names([o for o in right if o.own_pieces]),
        "wrong": _names([o for o in outcomes if o.problem]),
        "dtypes": {
            dtype: _names([o for o in right if str(o.call.dtype) == f"torch.{dtype}"])
            for dtype in sorted({str(o.call.dtype).removeprefix("torch.") for o in right})
        },
        "pieces": sum(o.pieces for o in right),
        "backward pieces": sum(o.backward_pieces for o in right),
    }


def _names(outcomes: Sequence[Outcome]) -> list[str]:
    return sorted({o.call.operator for o in outcomes})


def lines(records: Sequence[Record]) -> list[str]:
    def count(what: str) -> int:
        return len({name for record in records for name in record[what]})

    dtypes: dict[str, set[str]] = {}
    for record in records:
        for dtype, names in record["dtypes"].items():
            dtypes.setdefault(dtype, set()).update(names)
    most = sorted(dtypes.items(), key=lambda item: -len(item[1]))
    pieces, backward = (sum(record[k] for record in records) for k in ("pieces", "backward pieces"))
    said = [
        f"{count('run')} operators equal eager mode, {count('backward')} of them with gradients",
        "by dtype: " + ", ".join(f"{name} {len(names)}" for name, names in most),
        f"{count('split')} were really split, {count('split itself')} of them in a loop that "
        f"computes the operator and not its input alone: {pieces} pieces, and {backward} in "
        "backwards",
    ]
    return [*said, f"{count('wrong')} have a call that is wrong"] if count("wrong") else said
