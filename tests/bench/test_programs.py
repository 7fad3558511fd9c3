"""Drawn programs: the same for the same seed, readable, right, and measured like the others."""

from __future__ import annotations

import dataclasses
import json
import random

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from torch_piecewise import explain
from torch_piecewise.bench import programs, run
from torch_piecewise.bench.settings import Settings, Task
from torch_piecewise.bench.steps import KINDS, LEAST, Draw
from torch_piecewise.bench.subjects import tasks
from torch_piecewise.bench.table import table
from torch_piecewise.bench.workloads import bind, disagreement
from torch_piecewise.cli import app

SEED = 11
QUICK = Settings(
    suite="programs", scale="tiny", rounds=2, seconds=0.0, fresh=False, seed=SEED, count=4
)


def step_of(name: str, scale: str = "tiny", seed: int = SEED):
    found = programs.workload(name, seed, scale)
    return bind(found, found.fn, found.inputs("cpu", torch.float32, scale))


def test_the_seed_decides():
    texts = [programs.draw(SEED, k).text for k in range(20)]
    assert texts == [programs.draw(SEED, k).text for k in range(20)]
    assert len(set(texts)) == 20
    assert texts[0] != programs.draw(SEED + 1, 0).text
    assert texts[0] != programs.draw(SEED, 0, "tiny").text


def test_every_kind_of_step_is_drawn():
    text = "".join(programs.draw(SEED, k).text for k in range(40))
    for part in ("cat(", "pad(", "roll(", "(i <", "j <", "::2]", "b[", "mean(", "logsumexp("):
        assert part in text
    assert "amax(" in text and "torch.relu(" in text


@pytest.mark.parametrize("seed", range(3))
def test_programs_run_and_stay_bounded(seed):
    for number in range(30):
        for result in step_of(programs.name_of(number), seed=seed)():
            assert result.isfinite().all() and result.abs().max() < 1e3, number


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_a_step_knows_the_shape_it_makes(kind):
    for seed in range(20):
        state = Draw(random.Random(seed), (40, 70), most=5600, smooth=True)
        kind(state)
        names = {"torch": torch, "F": torch.nn.functional, "a": torch.ones(40, 70)}
        exec("\n".join(state.lines), names | {"y": torch.ones(40, 70)}, names)
        assert names["a"].shape == state.shape and min(state.shape) >= LEAST


def test_trained_programs_are_smooth():
    for number in range(1, 60, 2):
        text = programs.draw(SEED, number).text
        assert not any(kinked in text for kinked in ("relu", "abs()", "clamp", "amax"))


@pytest.mark.parametrize("number", range(4))
def test_sizes_are_large_enough_to_measure(number):
    rows, columns = programs.draw(SEED, number, "cpu").shape
    assert 0.9 * 2**20 <= 4 * rows * columns <= 8 * 2**20


def test_another_program_gives_another_result():
    assert disagreement(step_of("program_000")(), step_of("program_002")())


def test_a_program_is_measured(backend):
    settings = dataclasses.replace(QUICK, only="program_001", backend=backend)
    (record,) = run.measure_all(tasks(settings), settings, Console(quiet=True))
    assert record.problems == ()
    assert record.train and record.difference is not None and record.bytes > 0
    assert [v.name for v in record.variants][0] == "eager" and len(record.variants) == 5


def test_explain_names_lines_of_the_program():
    found = programs.workload("program_000", SEED, "tiny")
    said = str(explain(found.fn, found.inputs("cpu", torch.float32, "tiny")))
    lines = [line.split(": ", 1)[1] for line in said.splitlines() if "from <program_000>" in line]
    assert lines and all(line in found.note for line in lines)


def test_tasks_are_half_trained():
    chosen = tasks(QUICK)
    assert [t.label for t in chosen] == [f"program_00{k}" for k in range(4)]
    assert [t.train for t in chosen] == [False, True, False, True]


def test_what_is_slower_than_the_noise_is_listed():
    settings = dataclasses.replace(QUICK, count=1)
    (record,) = run.measure_all(tasks(settings), settings, Console(quiet=True))
    slow = dataclasses.replace(record.variant("piecewise"), speed=0.9)
    others = tuple(v for v in record.variants if v.name != "piecewise")
    for noise, listed in ((0.05, ["program_000"]), (0.2, [])):
        judged = dataclasses.replace(record, variants=(*others, slow), noise=noise)
        assert run.summary([judged])["slower_than_noise"] == listed
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table([judged], settings))
    assert f"programs of seed {SEED}" in captured.get()


def test_the_command_stores_the_seed_it_drew(tmp_path):
    output = tmp_path / "numbers.json"
    args = ("--count", "1", "--scale", "tiny", "--rounds", "2", "--seconds", "0", "--in-process")
    result = CliRunner().invoke(app, ["bench", "programs", *args, "--output", str(output)])
    assert result.exit_code == 0, result.output
    read = json.loads(output.read_text())
    assert f"of seed {read['settings']['seed']}" in result.output


def test_the_command_shows_a_program():
    args = ["bench", "programs", "--show", "program_003", "--seed", str(SEED)]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0
    assert result.stdout == programs.draw(SEED, 3).text


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["programs", "--show", "program_003"], "write `bench programs --show NAME --seed N`"),
        (["seams", "--show", "x", "--seed", "1"], "write `bench programs --show NAME --seed N`"),
        (["programs", "--show", "swin", "--seed", "1"], "no program is called 'swin'"),
        (["programs", "--count", "2", "--only", "program_002"], "no name of the programs has"),
    ],
)
def test_the_command_says_what_is_wrong(args, said):
    result = CliRunner().invoke(app, ["bench", *args])
    assert result.exit_code == 2
    assert said in result.stderr


def test_an_unknown_program():
    with pytest.raises(KeyError, match="no program is called 'program_x'"):
        run.measure(Task("programs", "program_x"), QUICK)
