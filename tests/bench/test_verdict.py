"""The arithmetic over records: means, limits, and which choices were right."""

from __future__ import annotations

import dataclasses
import json

import pytest

from torch_piecewise.bench import run
from torch_piecewise.bench.harness import Record, VariantResult
from torch_piecewise.bench.nests import Heaviest, NestTimes
from torch_piecewise.bench.settings import Settings
from torch_piecewise.bench.table import notes, table
from torch_piecewise.bench.verdict import limit, loss_of, summary
from torch_piecewise.bench.worker import record_from_json

from .test_harness import shown

HEAVIEST = Heaviest("forward op3", 0.75, ("model.py:7: y = x + 1",))
OVER = {"inductor": 1.0, "inductor_again": 1.0}


def record(name: str = "pad_made_up", noise: float = 0.0, nests=(), copy=None, **speeds) -> Record:
    """A record with these speeds over plain Inductor; the backend moves 10 GB/s."""
    results = tuple(
        VariantResult(each, 1.0 / speed, speed, 10.0, 0.1, "", 0.0, (1.0 / speed,) * 2)
        for each, speed in (OVER | speeds).items()
    )
    return Record("seams", name, False, results, noise, copy_gb_per_s=copy, nests=tuple(nests))


def nest(loss: float, noise: float = 0.0, name: str = "op0", pieces: int = 1) -> NestTimes:
    ms = {"chosen": 2.0, "chosen_again": 2.0, "off": 2.0, "seams": 2.0 / loss}
    return NestTimes(
        "forward", name, 0, pieces, 3, ms, loss, loss, noise, "left so", "estimated 9 µs"
    )


def test_controls_are_left_out_of_what_the_backend_is_for():
    found = summary(
        [
            record("pad_a", eager=0.5, inductor_pointwise_cat=1.6, piecewise=2.0),
            record("pad_b", eager=4.0, inductor_pointwise_cat=1.0, piecewise=2.0),
            record("control_c", eager=0.1, inductor_pointwise_cat=1.0, piecewise=0.25),
        ]
    )
    assert found["geometric_mean_speed"] == pytest.approx(1.0)
    seamed = found["without_controls"]
    assert seamed["subjects"] == 2
    assert seamed["over_plain"] == pytest.approx(2.0)
    assert seamed["over_best_rival"] == pytest.approx((1.25 * 0.5) ** 0.5)
    assert found["lowest_speed"] == 0.25
    assert "choices" not in found


def test_plain_inductor_is_a_rival_too():
    found = summary([record(eager=0.5, inductor_pointwise_cat=0.5, piecewise=1.5)])
    assert found["without_controls"]["over_best_rival"] == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("speed", "copy", "by"),
    [
        (1.1, 12.0, "bytes"),
        (1.1, 12.5, "bytes"),
        (1.1, 12.6, "code"),
        (1.2, 12.0, None),
        (1.1, None, None),
    ],
)
def test_what_limits_a_slow_subject(speed, copy, by):
    slow = record(piecewise=speed, copy=copy)
    assert limit(slow) == by
    assert summary([slow])["limited_by"] == ({"pad_made_up": by} if by else {})


@pytest.mark.parametrize(
    ("tested", "noise", "wrong"),
    [
        (1.98, 0.0, []),  # 1% below the best is right
        (1.9, 0.0, ["pad_made_up"]),
        (1.9, 0.06, []),  # the noise could have made it
        (2.5, 0.0, []),  # some of the cuts are better than all or none
    ],
)
def test_a_subjects_choice_is_compared_with_the_better_of_always_and_never(tested, noise, wrong):
    for off, seams in ((1.0, 2.0), (2.0, 1.0)):
        speeds = {"piecewise": tested, "always_off": off, "always_seams": seams}
        found = summary([record(noise=noise, nests=[nest(1.0)], **speeds)])["choices"]
        assert list(found["wrong_subjects"]) == wrong
        assert (found["subjects"], found["right_subjects"]) == (1, 1 - len(wrong))
        assert found["always_off"] == pytest.approx(off)
        assert found["always_seams"] == pytest.approx(seams)


def test_without_a_nest_to_cut_there_is_no_choice():
    speeds = {"piecewise": 0.5, "always_off": 1.0, "always_seams": 1.0}
    assert loss_of(record(**speeds)) is None
    assert summary([record(**speeds)])["choices"]["subjects"] == 0
    assert loss_of(record(nests=[nest(1.0)], piecewise=0.5, always_off=1.0)) is None


def test_the_share_of_right_nests():
    nests = [nest(1.0), nest(1.03), nest(1.04, name="op7", pieces=2), nest(1.04, noise=0.05)]
    judged = record(nests=nests, piecewise=1.0, always_off=1.0, always_seams=1.0)
    found = summary([judged, judged])["choices"]
    assert (found["nests"], found["right_nests"]) == (8, 6)
    assert found["share_of_right_nests"] == 0.75
    assert found["unclear_nests"] == 2
    assert len(found["wrong_nests"]) == 2
    for part in ("pad_made_up", "op7", "2 pieces", "1.04", "left so", "estimated 9 µs"):
        assert part in found["wrong_nests"][0]


def test_the_table_shows_both_ways_and_what_was_wrong():
    speeds = {"piecewise": 1.0, "always_off": 1.0, "always_seams": 1.5}
    judged = record(nests=[nest(1.5), nest(1.0)], copy=100.0, **speeds)
    judged = dataclasses.replace(judged, heaviest=HEAVIEST)
    text = " ".join(shown(table([judged], Settings(choices=True))).split())
    assert "always off always seams" in text
    assert "1 of 2 nests chosen right (50%), 0 of 1 subjects chosen right (0%)" in text
    assert "within the noise" not in text
    assert "always" not in shown(table([record(piecewise=1.0)], Settings()))
    said = [note.plain for note in notes([judged])]
    assert said[0] == "under 1.2x, limited by code: pad_made_up"
    assert said[1] == "pad_made_up: 75% in forward op3, from model.py:7: y = x + 1"
    assert said[2] == "wrong choice: pad_made_up takes 1.50 times the best of off and seams"
    assert said[3].startswith("wrong choice: pad_made_up, forward, op0: whole takes 1.50 times")
    assert len(said) == 4
    fast = dataclasses.replace(judged, copy_gb_per_s=None)
    assert not any("model.py" in note.plain for note in notes([fast]))


def test_nests_are_json():
    judged = record(nests=[nest(1.5)], piecewise=1.0, always_off=1.0, always_seams=1.5)
    judged = dataclasses.replace(judged, heaviest=HEAVIEST)
    read = json.loads(json.dumps(run.report(Settings(choices=True), [judged])))
    assert record_from_json(read["records"][0]) == judged
    assert read["summary"]["choices"]["share_of_right_nests"] == 0.0
