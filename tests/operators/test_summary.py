"""What the end of a run says of the sweep, whoever ran which part of it."""

from __future__ import annotations

import json

from .summary import covered, lines
from .sweep import Outcome, calls_of, compare


def test_an_operator_is_counted_once_however_many_parts_name_it():
    pad, cat, half, *_ = calls_of("sin")
    (mul, *_) = calls_of("mul")
    first = [Outcome(pad, "", 4, 0, 1), Outcome(half, "", 2, 2, 0), Outcome(mul, "", 0, 0, 1)]
    second = [Outcome(cat, "", 3, 0, 1)]
    records = [json.loads(json.dumps(covered(part))) for part in (first, second, first[:1])]
    assert lines(records) == [
        "2 operators equal eager mode, 2 of them with gradients",
        "by dtype: float32 2, bfloat16 1",
        "1 were really split, 1 of them in a loop that computes the operator and not its input "
        "alone: 13 pieces, and 0 in backwards",
    ]


def test_what_is_wrong_counts_as_not_run():
    (call, *_) = calls_of("sin")
    record = covered([Outcome(call, "differs", 4, 4, 1, 5)])
    assert record["run"] == record["backward"] == record["split"] == []
    assert record["pieces"] == record["backward pieces"] == 0
    assert lines([record])[-1] == "1 have a call that is wrong"


def test_a_loop_that_computes_the_seam_alone_is_not_the_operators():
    """A product is a call of a library: what is cut before it only makes its input."""
    product = next(c for c in calls_of("mm") if c.label == "mm float32 cat")
    sine = next(c for c in calls_of("sin") if c.label == "sin float32 cat")
    found = {o.call.operator: o for o in compare([product, sine])}
    assert found["mm"].pieces >= 2 and found["mm"].own_pieces == 0
    assert found["sin"].pieces >= 2 and found["sin"].own_pieces == found["sin"].pieces
