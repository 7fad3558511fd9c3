"""The harness measures what it says, and sees a wrong result."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch
from rich.console import Console

from torch_piecewise.bench import run
from torch_piecewise.bench.harness import Record, measure_subject
from torch_piecewise.bench.plans import PlanFacts, count, share_in_ir
from torch_piecewise.bench.settings import Settings, Task
from torch_piecewise.bench.subjects import TRAINED, Subject, prepare, tasks
from torch_piecewise.bench.table import compile_table, notes, problems, table
from torch_piecewise.bench.variants import EAGER, PLAIN, Variant, compiled, own_code, variants
from torch_piecewise.bench.worker import WorkerFailed, ask_measure, record_from_json
from torch_piecewise.plan.plan import NestPlan, Piece, Plan, Reason

QUICK = Settings(scale="tiny", rounds=2, seconds=0.0, fresh=False)
UNCOMPILED = (EAGER, Variant("inductor", None), Variant("piecewise", None))


def shown(renderable) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def test_variants_have_code_objects_of_their_own():
    def kernel(x, y=2):
        return x * y

    copies = [own_code(kernel, v.name) for v in variants()]
    codes = [copy.__code__ for copy in copies]
    assert len({id(code) for code in [*codes, kernel.__code__]}) == 6
    assert len(set(codes)) == 5  # by value too, as some of Dynamo's tables go by it
    assert all(copy(3) == 6 for copy in copies)


def test_closures_and_keywords_survive_the_copy():
    offset = 5

    def kernel(x, *, scale=2):
        return x * scale + offset

    copy = own_code(kernel, "copy")
    assert copy(1) == 7
    assert copy(1, scale=3) == 8


def test_only_functions_can_be_copied():
    with pytest.raises(TypeError, match="plain Python function"):
        own_code(torch.nn.ReLU(), "copy")


@pytest.mark.parametrize("name", ["pad_heat_step", "slice_swiglu"])
def test_a_record_has_all_numbers(name, backend):
    settings = dataclasses.replace(QUICK, only=name, backend=backend)
    (record,) = run.measure_all(tasks(settings), settings, Console(quiet=True))
    assert record.problems == ()
    assert [v.name for v in record.variants] == [v.name for v in variants()]
    for result in record.variants:
        assert len(result.samples) == record.rounds == 2
        assert result.ms > 0 and result.speed > 0 and result.gb_per_s > 0 and result.first_s > 0
        assert math.isfinite(result.difference)
    assert record.variant("inductor").speed == 1.0
    assert record.train == (name == "slice_swiglu")
    assert record.copy_gb_per_s > 0 and record.bytes > 0
    assert record.difference is not None
    if backend == "piecewise":
        assert record.plan.nests >= 1 and record.plan.pieces >= record.plan.nests
        assert record.plan.graphs == (2 if record.train else 1)


def test_results_are_json(tmp_path):
    settings = dataclasses.replace(QUICK, only="residual_gelu")
    record = fake_record()
    file = tmp_path / "new" / "result.json"
    run.write(file, run.report(settings, [record]))
    read = json.loads(file.read_text())
    assert set(read) == {"settings", "machine", "summary", "records"}
    assert read["settings"]["scale"] == "tiny"
    assert read["machine"]["torch"] == torch.__version__
    assert set(read["machine"]) >= {"cpu", "cores", "compiler", "python", "torch_piecewise"}
    assert read["summary"]["share_in_ir"] == 0.75
    assert record_from_json(read["records"][0]) == record


def fake_record(noise: float = 0.03) -> Record:
    subject = subject_that(lambda out: out)
    record = measure_subject(subject, QUICK, UNCOMPILED, plans=False)
    facts = PlanFacts(graphs=1, nests=4, in_ir=3, cut=1, pieces=12, reasons={"no-seams": 3})
    return dataclasses.replace(record, plan=facts, noise=noise)


def subject_that(spoils, name: str = "piecewise") -> Subject:
    """A subject whose result under one variant is what `spoils` makes of it."""
    x = torch.arange(4.0)

    def double(x):
        return x * 2

    def bind(fn):
        ours = fn.__name__.endswith(f"__{name}")
        return lambda: (spoils(fn(x)) if ours else fn(x),)

    return Subject(Task("seams", "double"), double, (x,), bind, "eager", bytes=32)


def test_a_wrong_result_is_reported():
    record = measure_subject(subject_that(lambda out: out + 1), QUICK, UNCOMPILED, plans=False)
    assert len(record.problems) == 1
    assert record.problems[0].startswith("piecewise: tensor 0")
    assert record.difference == 1.0
    assert "piecewise: tensor 0" in shown(list(problems([record]))[0])
    assert run.summary([record])["failed"] == 1


def test_what_plain_inductor_gives_too_is_no_fault():
    record = measure_subject(
        subject_that(lambda out: out + 1, "eager"), QUICK, UNCOMPILED, plans=False
    )
    assert record.problems == ()
    assert record.inductors_own.startswith("tensor 0")
    said, *_ = notes([record])
    assert said.plain.startswith("double: plain Inductor differs too: tensor 0")


@pytest.mark.parametrize("name", ["inductor", "piecewise"])
def test_what_only_one_of_them_gives_is_a_fault(name):
    record = measure_subject(
        subject_that(lambda out: out + 1, name), QUICK, UNCOMPILED, plans=False
    )
    assert len(record.problems) == (name == "piecewise")

    def bind(fn):
        added = {"eager": 0, "inductor": 1, "piecewise": 2}[fn.__name__.split("__")[-1]]
        return lambda: (fn(x) + added,)

    x = torch.ones(4)
    apart = dataclasses.replace(subject_that(lambda out: out), bind=bind)
    record = measure_subject(apart, QUICK, UNCOMPILED, plans=False)
    assert [p.split(":")[0] for p in record.problems] == ["piecewise"]


def test_a_missing_tensor_is_reported():
    def bind(fn):
        return lambda: (fn(x),) if "piecewise" in fn.__name__ else (fn(x), x)

    x = torch.ones(4)
    subject = dataclasses.replace(subject_that(lambda out: out), bind=bind)
    record = measure_subject(subject, QUICK, UNCOMPILED, plans=False)
    assert record.problems == ("piecewise: 1 tensors instead of 2",)
    assert record.difference is None


def test_writing_to_an_input_is_reported():
    subject = subject_that(lambda out: out)
    (x,) = subject.args

    def bind(fn):
        ours = "piecewise" in fn.__name__
        return lambda: (fn(x.add_(0) if ours else x),)

    subject = dataclasses.replace(subject, bind=bind)
    record = measure_subject(subject, QUICK, UNCOMPILED, plans=False)
    assert record.problems == ("piecewise: an input was written to",)


def test_a_failed_task_does_not_end_the_run():
    chosen = [Task("seams", "no_such"), Task("seams", "nor_this")]
    records = run.measure_all(chosen, QUICK, Console(quiet=True))
    assert [r.error for r in records] == [
        "KeyError: \"no workload is called 'no_such'\"",
        "KeyError: \"no workload is called 'nor_this'\"",
    ]
    assert "failed" in shown(table(records, QUICK))


def test_a_failed_process_says_why():
    with pytest.raises(WorkerFailed, match="no workload is called 'no_such'"):
        ask_measure(Task("seams", "no_such"), QUICK)


def test_the_table_marks_what_is_noise():
    assert "~" in shown(table([fake_record(noise=1e9)], QUICK))
    text = shown(table([fake_record(noise=0.0)], QUICK))
    assert "12 / 4" in text
    assert "75.0% of the nests pass through the loop IR" in " ".join(text.split())


def test_cold_compiles_alternate(monkeypatch):
    asked = []

    def ask(task, variant, settings):
        asked.append(variant)
        return 2.0 if variant == "inductor" else 3.0

    monkeypatch.setattr(run, "ask_compile", ask)
    settings = dataclasses.replace(QUICK, only="heat_step")
    (record,) = run.compile_all(tasks(settings), settings, Console(quiet=True))
    assert asked == ["inductor", "piecewise", "piecewise", "inductor", "inductor", "piecewise"]
    assert record.ratio == 1.5
    assert "1.50" in shown(compile_table([record], settings))
    assert run.report(settings, [record])["compile"][0]["ratio"] == 1.5


@pytest.mark.long
def test_cold_compile_in_a_process_of_its_own(backend):
    settings = dataclasses.replace(QUICK, only="heat_step", compile_repeats=1, backend=backend)
    (record,) = run.compile_all(tasks(settings), settings, Console(quiet=True))
    assert not record.error
    assert record.ratio > 0


@pytest.mark.long
def test_a_process_of_its_own_gives_the_same_record(backend):
    settings = dataclasses.replace(QUICK, only="heat_step", fresh=True, backend=backend)
    (record,) = run.measure_all(tasks(settings), settings, Console(quiet=True))
    assert record.problems == ()
    assert record.rounds == 2


def test_plans_are_counted():
    def nest(pieces: int, in_ir: bool) -> NestPlan:
        made = tuple(Piece(f"p{i}", (("i0", "0", "1"),)) for i in range(pieces))
        return NestPlan(
            "n", (), (), made, Reason("cut" if pieces > 1 else "whole", "n", ""), in_ir=in_ir
        )

    facts = count(
        [Plan("forward", (nest(3, True), nest(1, False))), Plan("backward", (nest(1, True),))]
    )
    assert facts == PlanFacts(2, nests=3, in_ir=2, cut=1, pieces=5, reasons={"cut": 1, "whole": 2})
    assert share_in_ir([facts]) == 2 / 3
    assert share_in_ir([]) is None


def test_tasks_of_the_suites():
    assert len(tasks(Settings())) == 27
    labels = [task.label for task in tasks(Settings(suite="models"))]
    assert len(labels) == 10 + len(TRAINED)
    assert "llama (train)" in labels


@pytest.mark.parametrize(
    ("only", "count"), [("gray", 1), ("gray,jacobi", 2), ("gray,,pad_", 6), ("stencils", 9)]
)
def test_only_takes_several_words_and_a_group(only, count):
    found = [t.label for t in tasks(Settings(only=only))]
    assert len(found) == count == len(set(found))
    assert "roll_gray_scott" in found


def test_eager_is_the_function_itself():
    subject = prepare(Task("seams", "pad_heat_step"), QUICK)
    assert not hasattr(compiled(EAGER, subject.fn), "_torchdynamo_orig_callable")
    assert hasattr(compiled(PLAIN, subject.fn), "_torchdynamo_orig_callable")
