"""Samples are taken in turns; a ratio inside the noise is no claim."""

from __future__ import annotations

import gc

import pytest
import torch

from torch_piecewise.bench.table import speed
from torch_piecewise.bench.timing import Samples, geometric_mean, take_turns


def test_every_round_runs_each_step_once_in_a_changing_order():
    calls: list[str] = []
    steps = {name: (lambda name=name: calls.append(name) or ()) for name in "abc"}
    samples = take_turns(steps, rounds=20, warm_up=0, calls=1)
    rounds = [calls[i : i + 3] for i in range(0, len(calls), 3)]
    assert len(rounds) == 20
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1
    assert {len(times) for times in samples.ms.values()} == {20}
    assert gc.isenabled()


def test_rounds_go_on_while_there_is_time():
    samples = take_turns({"a": lambda: ()}, rounds=2, seconds=0.2, calls=1)
    assert len(samples.ms["a"]) > 2


def test_short_steps_are_called_several_times_a_sample():
    x = torch.ones(1)
    assert take_turns({"a": lambda: (x + 1,)}, rounds=2).calls > 10


def test_ratios_are_taken_round_by_round():
    # the machine slowed down by ten in the second half, for both alike
    samples = Samples({"plain": (2.0, 2.0, 20.0, 20.0), "ours": (1.0, 1.0, 10.0, 10.0)}, calls=1)
    assert samples.ratio("plain", "ours") == 2.0
    assert samples.noise("plain", "plain") == 0.0


def test_noise_counts_the_bias_and_the_spread():
    biased = Samples({"plain": (1.1,) * 9, "again": (1.0,) * 9}, calls=1)
    assert biased.noise("plain", "again") == pytest.approx(0.1)
    spread = Samples({"plain": (1.0,) * 9, "again": (0.8, 1.0, 1.25) * 3}, calls=1)
    assert spread.ratio("plain", "again") == 1.0
    assert spread.noise("plain", "again") > 0.1


def test_a_speed_inside_the_noise_is_marked():
    assert speed(1.02, noise=0.03).plain == "~1.02x"
    assert speed(0.98, noise=0.03).plain == "~0.98x"
    assert speed(1.5, noise=0.03).plain == "1.50x"
    assert speed(0.9, noise=0.03).plain == "0.90x"


def test_geometric_mean():
    assert geometric_mean([0.5, 2.0]) == 1.0
