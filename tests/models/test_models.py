"""Real models give what plain Inductor gives: outputs, and gradients of a training step."""

from __future__ import annotations

import dataclasses
import sys

import pytest
import torch
from rich.console import Console

from torch_piecewise.bench import models, run
from torch_piecewise.bench.plans import count, plans_of
from torch_piecewise.bench.settings import Settings, Task
from torch_piecewise.bench.subjects import TRAINED, Subject, prepare, tasks
from torch_piecewise.bench.variants import PLAIN, compiled, piecewise
from torch_piecewise.bench.workloads import disagreement

SETTINGS = Settings(suite="models", threads=2)
EVERY = tasks(SETTINGS)
QUICKEST = ("qwen2", "vit (train)")  # to compile; the others take up to minutes each


def same_as_plain(subject: Subject, backend: str) -> str:
    """Why the backend's result of a step is not plain Inductor's, or ''."""
    results = []
    for variant in (PLAIN, piecewise(backend)):
        torch.manual_seed(0)
        results.append(subject.bind(compiled(variant, subject.fn))())
    plain, tested = results
    assert all(t.isfinite().all() for t in plain)
    return disagreement(tested, plain)


def marked(task: Task):
    # Inductor compiles rwkv's unrolled loop for minutes, twice, and more on a busy machine
    marks = () if task.label in QUICKEST else (pytest.mark.long, pytest.mark.timeout(3600))
    return pytest.param(task, id=task.label.replace(" ", "_"), marks=marks)


@pytest.mark.parametrize("task", [marked(task) for task in EVERY])
def test_same_as_plain_inductor(task, backend):
    subject = prepare(task, SETTINGS)
    assert not same_as_plain(subject, backend)


@pytest.mark.parametrize("name", TRAINED)
def test_a_training_step_has_gradients(name):
    subject = prepare(Task("models", name, train=True), SETTINGS)
    weights = list(subject.args[0].parameters())
    _, *gradients = subject.bind(subject.fn)()
    assert len(gradients) > 0.9 * len(weights)
    assert sum(bool(g.any()) for g in gradients) > 0.9 * len(gradients)


@pytest.mark.parametrize("model", models.MODELS, ids=lambda m: m.name)
def test_models_are_built_the_same_every_time(model):
    first, again = (model.build() for _ in range(2))
    assert not first[0].training
    for a, b in zip(first[0].parameters(), again[0].parameters(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(first[1], again[1], strict=True):
        assert torch.equal(a, b)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(models.MissingPackage, match="this model needs diffusers"):
        models.find("unet2d").build()


@pytest.mark.long
def test_the_bench_measures_a_model(backend):
    settings = dataclasses.replace(
        SETTINGS, only="qwen2", rounds=2, seconds=0.0, fresh=True, backend=backend
    )
    (record,) = run.measure_all(tasks(settings), settings, Console(quiet=True))
    assert record.problems == ()
    assert record.bytes is None
    if backend == "piecewise":
        assert record.plan.nests > 10
        assert record.plan.in_ir / record.plan.nests >= 0.9


@pytest.mark.long
def test_share_of_nests_in_the_loop_ir(backend):
    subject = prepare(Task("models", "swin"), SETTINGS)
    with torch.no_grad():
        facts = count(plans_of(*subject.explained))
    assert facts.in_ir / facts.nests >= 0.9
