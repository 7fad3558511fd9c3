"""The demo's simulation is a real one, and every backend makes the same of it."""

from __future__ import annotations

import pytest
import torch
from rich.console import Console

from torch_piecewise.bench import demo
from torch_piecewise.bench.seams.roll import gray_scott_step


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(demo, "SIDE", 64)


def test_the_start_is_the_same_every_time():
    for first, again in zip(demo.start(64), demo.start(64), strict=True):
        assert torch.equal(first, again)


def test_a_calm_field_stays_calm_and_a_seeded_one_does_not():
    calm = (torch.ones(32, 32), torch.zeros(32, 32))
    assert torch.equal(gray_scott_step(*calm)[1], calm[1])
    u, v = demo.start(64)
    for _ in range(200):
        u, v = gray_scott_step(u, v)
    assert 0.1 < float(v.max()) < 1.0
    assert float(v.min()) >= 0.0


def test_backends_simulate_the_same_steps(small):
    with torch.no_grad():
        shown, field = demo.simulate(50)
        u, v = demo.start(64)
        for _ in range(50):
            u, v = gray_scott_step(u, v)
    assert shown.steps == 2
    assert not shown.problems
    assert {len(times) for times in shown.samples.ms.values()} == {demo.ROUNDS}
    torch.testing.assert_close(field, v)
    assert any(nest.seams for plan in shown.plans for nest in plan.nests)


def test_a_picture_shows_where_the_field_is_high():
    field = torch.zeros(64, 64)
    field[32:40, 32:40] = 1.0
    lines = demo.picture(field, rows=4, columns=8).split("\n")
    assert len(lines) == 4
    assert lines[2][4:6] == "@@"
    assert lines[0].strip() == ""


@pytest.mark.long
def test_the_whole_demo(small):
    console = Console(width=120, record=True, quiet=False)
    assert demo.run(steps=25, console=console)
    text = console.export_text()
    for word in ("Gray-Scott step", "rotary embedding", "DenseNet concat block", "steps/s"):
        assert word in text
