"""`explain`: what it takes, what it takes over, what it leaves as it was, and its text."""

from __future__ import annotations

import functools
import threading
from dataclasses import replace

import pytest
import torch
from torch._dynamo import pgo

import torch_piecewise
from torch_piecewise import ArgumentError, Explanation, OptionError, PiecewiseError, explain
from torch_piecewise.inductor.versions import COMPILES_APART, Settings, original, settings
from torch_piecewise.plan.plan import AxisPlan, NestPlan, Piece, Plan, Reason, Seam
from torch_piecewise.report.explanation import nest_text


def rolled(x):
    return x + x.roll(1, 0)


X = torch.randn(64, 8)


def sizes(said: Explanation) -> list[str]:
    return [a.size for n in said.nests for a in n.axes]


# ---- what it takes


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        ((rolled, X), ["args is a Tensor", "(x,)"]),
        ((rolled, 3), ["args is an int", "(x,)"]),
        ((rolled, {"x": X}), ["args is a dict", "{'x': x}"]),
        ((rolled, (X,), [1]), ["kwargs is a list", "a dict", "{'y': y}"]),
        ((rolled, (X,), X), ["kwargs is a Tensor", "options={...}"]),
        ((rolled, (), {1: X}), ["a name in kwargs is an int", "a str"]),
        ((X, (X,)), ["fn is a Tensor", "a function or module"]),
    ],
)
def test_arguments_of_a_wrong_type_are_named(args, parts):
    with pytest.raises(ArgumentError) as caught:
        explain(*args)
    assert [part for part in parts if part not in str(caught.value)] == []
    assert isinstance(caught.value, PiecewiseError) and isinstance(caught.value, TypeError)


def test_options_that_are_no_mapping():
    with pytest.raises(OptionError, match="'options' is .*list.*a dict"):
        explain(rolled, (X,), options=["split"])


def test_a_list_of_arguments_and_keywords():
    assert len(explain(lambda x, *, y: x + y.roll(1, 0), [X], {"y": X}).nests) == 1


# ---- what was compiled already


def compiled_whole():
    return torch.compile(rolled, backend="piecewise", options={"split": "off"})


def test_the_options_of_what_is_compiled_are_used():
    assert explain(compiled_whole(), (X,)).pieces == 1
    assert explain(compiled_whole(), (X,), options={"split": "seams"}).pieces == 2
    assert explain(rolled, (X,), options={"split": "seams"}).pieces == 2


def test_dynamic_is_kept():
    compiled = torch.compile(rolled, backend="piecewise", dynamic=True)
    assert "s" in "".join(sizes(explain(compiled, (X,))))
    assert "s" in "".join(sizes(explain(compiled, (X,), options={"split": "seams"})))


class Rolled(torch.nn.Module):
    def forward(self, x):
        return rolled(x)

    @torch.compile(backend="piecewise", options={"split": "off"})
    def whole(self, x):
        return self(x) * 2


def in_place():
    module = Rolled()
    module.compile(backend="piecewise", options={"split": "off"})
    return module


@pytest.mark.parametrize(
    "make",
    [
        compiled_whole,
        lambda: torch.compile(Rolled(), backend="piecewise", options={"split": "off"}),
        lambda: torch.compile(Rolled(), backend="piecewise_debug", options={"split": "off"}),
        lambda: torch.compile(compiled_whole(), backend="piecewise", options={"split": "off"}),
        in_place,
        lambda: Rolled().whole,
    ],
    ids=["function", "module", "debug", "twice", "in_place", "method"],
)
def test_all_that_may_be_compiled(make):
    fn = make()
    assert settings(fn) == Settings({"split": "off"})
    (nest,) = explain(fn, (X,)).nests
    assert nest.reason.code == "off"


def test_how_other_backends_compiled_it():
    compiled = torch.compile(rolled, options={"max_autotune": True}, dynamic=False)
    assert settings(compiled) == Settings({"max_autotune": True}, None, False)
    assert settings(torch.compile(rolled, backend="eager")) == Settings()
    assert settings(torch.compile(rolled, backend="piecewise", mode="max-autotune")) == Settings(
        None, "max-autotune"
    )
    assert settings(torch.compiler.disable(rolled)) == settings(rolled) == Settings()
    assert settings(Rolled()) == settings(Rolled().forward) == Settings()


def test_a_wrapper_of_something_compiled_is_not_unwrapped():
    inner = compiled_whole()

    @functools.wraps(inner)
    def outer(x):
        return inner(x)

    assert original(outer) is outer and settings(outer) == Settings()
    assert original(inner) is rolled


# ---- what it leaves as it was


def test_each_call_is_as_the_first():
    def fn(x):
        return x + x.roll(1, 0)

    assert sizes(explain(fn, (torch.randn(30, 7),))) == ["30", "7"]
    assert sizes(explain(fn, (torch.randn(40, 7),))) == ["40", "7"]
    compiled = torch.compile(fn, backend="piecewise")
    compiled(torch.randn(50, 7))
    compiled(torch.randn(60, 7))  # dynamic from here on
    assert sizes(explain(compiled, (torch.randn(70, 7),))) == ["70", "7"]


def counted(fn):
    counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
    return torch.compile(fn, backend=counter), counter


def symbolic(graph):
    """Whether a graph has a size among its inputs."""
    inputs = (n for n in graph.graph.nodes if n.op == "placeholder")
    return any(not isinstance(n.meta["example_value"], torch.Tensor) for n in inputs)


def test_the_users_compiles_see_no_size_of_explain():
    def fn(x):
        return x * 2

    mine, counter = counted(fn)
    mine(torch.randn(3, 4))
    explain(fn, (torch.randn(5, 4),))
    explain(fn, (torch.randn(6, 4),))
    mine(torch.randn(3, 4))
    assert counter.frame_count == 1
    mine(torch.randn(7, 4))  # a second size of the user's own: dynamic, as without explain
    mine(torch.randn(8, 4))
    assert counter.frame_count == 2


def test_sizes_of_explain_alone_make_nothing_dynamic():
    def fn(x):
        return x * 2

    explain(fn, (torch.randn(5, 4),))
    mine, counter = counted(fn)
    mine(torch.randn(3, 4))
    mine(torch.randn(7, 4))
    mine(torch.randn(9, 4))
    assert counter.frame_count == 2 and list(map(symbolic, counter.graphs)) == [False, True]


@pytest.mark.skipif(not COMPILES_APART, reason="this torch counts every compile of a function")
def test_explaining_what_ran_into_the_limit_of_recompiles():
    def fn(x, k):
        return x.roll(1, 0) * k

    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        compiled = torch.compile(fn, backend="piecewise")
        for k in range(torch._dynamo.config.recompile_limit + 2):
            compiled(X, k)
        assert len(explain(fn, (X, 99)).nests) == 1
        assert len(explain(compiled, (X, 100)).nests) == 1


def test_marks_of_dynamic_sizes_are_kept():
    x = torch.randn(30, 7)
    torch._dynamo.mark_dynamic(x, 0)
    first, second = sizes(explain(rolled, (x,)))
    assert first.startswith("s") and second == "7"


def test_state_is_put_back_after_an_error():
    before = pgo.get_code_state()

    def fails(x):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        explain(fails, (X,))
    assert pgo.get_code_state() is before
    done = []
    thread = threading.Thread(target=lambda: done.append(torch.compile(rolled, backend="eager")(X)))
    thread.start()
    thread.join(60)
    assert done  # no lock is held any more


def test_the_buffers_behind_a_method_are_put_back():
    module = torch.nn.BatchNorm1d(8)
    explain(module.forward, (X,))
    module.compile(backend="piecewise")
    explain(module, (X,))
    assert module.num_batches_tracked == 0
    assert torch.equal(module.running_mean, torch.zeros(8))


# ---- its text


def nest_of(cuts, seams, reason=("gain", "it pays"), notes=()):
    ends = ["0", *cuts, "s0"]
    pieces = tuple(
        Piece(f"op0_{k}", (("i0", a, b), ("i1", "0", "9")))
        for k, (a, b) in enumerate(zip(ends, ends[1:]))
    )
    found = tuple(Seam(axis, position, f"why {position}") for axis, position in seams)
    return NestPlan(
        "op0",
        (AxisPlan("i0", "s0"), AxisPlan("i1", "9")),
        found,
        pieces,
        Reason(reason[0], "op0", reason[1]),
        tuple(Reason(code, "op0", text) for code, text in notes),
    )


def seam_lines(nest):
    return [line.strip() for line in nest_text(nest) if "seam at" in line]


def test_seams_are_in_order_of_axis_and_position():
    found = [("i1", "3"), ("i0", "s0 - 1"), ("i0", "10"), ("i0", "s0 - 5"), ("i0", "9")]
    nest = nest_of(["9", "10", "s0 - 5", "s0 - 1"], found)
    assert [line.split(" (")[0] for line in seam_lines(nest)] == [
        "seam at i0 = 9",
        "seam at i0 = 10",
        "seam at i0 = s0 - 5",
        "seam at i0 = s0 - 1",
        "seam at i1 = 3, not cut",
    ]


def test_seams_that_were_joined_are_marked():
    def many(x):
        place, total = torch.arange(x.shape[0]), x
        for limit in range(45, 5, -2):
            total = total + torch.where(place < limit, x + limit, x)
        return total

    said = explain(many, (torch.randn(1000),), options={"split": "seams"})
    lines = seam_lines(said.nests[0])
    assert len(lines) == 20 and sum("not cut" in line for line in lines) == 20 - 15  # cap of 16
    assert lines[-1].startswith("seam at i0 = 45 (") and lines[0].startswith("seam at i0 = 7")
    whole = explain(many, (torch.randn(1000),), options={"split": "off"})
    assert all("not cut" in line for line in seam_lines(whole.nests[0]))


def test_a_reason_is_printed_once():
    nest = nest_of([], [], ("left", "x wraps"), [("periodic", "x wraps"), ("two-axes", "y")])
    text = list(nest_text(nest))
    assert text[1:] == ["    whole: x wraps [periodic]", "    left: y [two-axes]"]


def test_numbers_agree_with_their_nouns():
    nest = nest_of([], [])
    one = str(Explanation((Plan("inference", (nest,)),), (((),),)))
    assert one.splitlines()[0] == "1 graph, 1 loop nest: 0 cut, 1 whole; 1 piece"
    plan = Plan("inference", (nest, replace(nest, name="op1")))
    two = str(Explanation((plan, plan), (((), ()), ((), ()))))
    assert two.splitlines()[0] == "2 graphs, 4 loop nests: 0 cut, 4 whole; 4 pieces"


def test_source_lines():
    (lines,) = explain(rolled, (X,)).lines[0]
    assert [(line.file, line.code) for line in lines] == [(__file__, "return x + x.roll(1, 0)")]
    made: dict = {"F": torch.nn.functional}
    exec(compile("def f(x):\n    return F.pad(x, (2, 0)) * 2", "<typed>", "exec"), made)
    assert [str(line) for line in explain(made["f"], (X,)).lines[0][0]] == ["<typed>:2"]


def test_debug_checks_its_options_before_it_prints(capsys):
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="OptionError"):
        torch.compile(rolled, backend="piecewise_debug", options={"splt": 1})(X)
    assert capsys.readouterr().out == ""


def test_public_names():
    for name in torch_piecewise.__all__:
        assert hasattr(torch_piecewise, name)
