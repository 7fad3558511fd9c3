"""Graphs in ranges as CUDA graphs: what is captured, with what, and why not. No GPU is needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor import compile_fx
from torch._inductor import config as inductor_config
from torch._inductor.utils import fresh_cache

import torch_piecewise
from torch_piecewise.inductor import capture, stitched

OPTIONS = {"ranges": [0, 24, None], "triton.cudagraphs": True}


def fn(x):
    return torch.relu(x) * 2 + 1


X = torch.randn(64, 32)


@dataclass
class Captures:
    """Stands in for Inductor's capture: remembers what it was given, and counts the calls."""

    given: list[dict[str, Any]] = field(default_factory=list)
    models: list[Any] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)

    def cudagraphify(self, model: Any, static_input_idxs: Any = (), **told: Any) -> Any:
        number = len(self.models)
        self.models.append(model)
        self.given.append({"static_input_idxs": tuple(static_input_idxs), **told})

        def replayed(inputs: list[Any]) -> Any:
            self.calls.append(number)
            return model(inputs)

        return replayed


@pytest.fixture
def captures(monkeypatch) -> Captures:
    """As if the CPU were a GPU on which pieces can be captured."""
    found = Captures()
    monkeypatch.setattr(compile_fx, "cudagraphify", found.cudagraphify)
    gpu = torch.device("cuda:0")
    real = capture._devices
    monkeypatch.setattr(
        capture, "_devices", lambda gm, types: {gpu: next(iter(real(gm, types).values()))}
    )
    lowered = stitched._as_lowered

    def as_lowered(*args):
        graph = lowered(*args)
        graph.device_idxs = [0]
        return graph

    monkeypatch.setattr(stitched, "_as_lowered", as_lowered)
    with fresh_cache():
        yield found


def compiled(fn, **how):
    torch._dynamo.reset()
    return torch.compile(fn, backend="piecewise", **{"options": OPTIONS, "dynamic": False, **how})


def test_the_entry_is_what_is_captured(captures) -> None:
    step = compiled(fn)
    for k in range(3):
        torch.testing.assert_close(step(X + k), fn(X + k))
    (entry,), (given,) = captures.models, captures.given
    assert entry.__code__.co_filename == "<entry of torch_piecewise>"  # and no piece by itself
    assert captures.calls == [0, 0, 0]
    assert given["device_index"] == 0 and given["is_inference"] and not given["is_backward"]
    assert len(given["placeholders"]) == 1 and given["mutated_input_idxs"] == ()
    shown = str(torch_piecewise.explain(fn, (X,), options=OPTIONS))
    assert "all pieces are captured as one CUDA graph [cudagraphs]" in shown


def test_so_is_what_came_from_a_cache(captures) -> None:
    compiled(fn)(X)
    torch.testing.assert_close(compiled(fn)(X), fn(X))
    assert len(captures.models) == 2 and captures.models[0] is not captures.models[1]
    assert captures.given[0] == captures.given[1] and captures.calls == [0, 1]


def test_training_with_the_parameters_where_they_are(captures) -> None:
    module = nn.Sequential(nn.Linear(32, 16), nn.Tanh())
    compiled(module)(X).sum().backward()
    got = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    module(X).sum().backward()
    torch.testing.assert_close(got, [p.grad for p in module.parameters()])
    forward, backward = captures.given
    names = [place.name for place in forward["placeholders"]]
    assert [names[k] for k in forward["static_input_idxs"]] == ["primals_1", "primals_2"]
    assert not forward["is_backward"] and backward["is_backward"]


def test_tensors_that_the_graph_holds_and_inputs_that_it_writes_to(captures) -> None:
    def writes(x, y):
        x = x.relu()
        y.add_(1)
        return x * torch.tensor([1.0, 2.0]).sin().sum()

    compiled(writes)(X, torch.zeros(64, 32))
    (given,) = captures.given
    (constant,) = given["constants"]
    assert torch.equal(constant, torch.tensor([1.0, 2.0]))
    assert given["mutated_input_idxs"] == (1,)
    with inductor_config.patch({"triton.cudagraph_support_input_mutation": False}):
        shown = str(torch_piecewise.explain(writes, (X, X.clone()), options=OPTIONS))
    assert "not captured as a CUDA graph: " in shown and "mutat" in shown
    assert len(captures.given) == 1


def test_sizes_that_are_not_known(captures) -> None:
    step = compiled(fn, dynamic=True)
    torch.testing.assert_close(step(X), fn(X))
    assert len(captures.given) == 1
    options = {**OPTIONS, "triton.cudagraph_skip_dynamic_graphs": True}
    step = compiled(fn, dynamic=True, options=options)
    torch.testing.assert_close(step(X), fn(X))
    assert len(captures.given) == 1  # left as it is


def test_an_operator_that_cannot_be_captured(captures) -> None:
    def chosen(x):
        return x.relu() * 2, x[x[:, 0] > 0].sum()

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        shown = str(torch_piecewise.explain(chosen, (X,), options=OPTIONS))
    assert "not captured as a CUDA graph: incompatible op aten.index.Tensor" in shown
    assert not captures.given


@pytest.mark.parametrize("how", [{"options": OPTIONS}, {"mode": "reduce-overhead"}])
def test_a_cpu_is_the_reason_where_there_is_no_gpu(how) -> None:
    options = {**OPTIONS, "triton.cudagraphs": True} if "options" in how else {"ranges": 2, **how}
    shown = str(torch_piecewise.explain(fn, (X,), options=options))
    assert "not captured as a CUDA graph: skipping cudagraphs due to cpu device" in shown
    shown = str(torch_piecewise.explain(fn, (X,), options={"ranges": 2}))
    assert "CUDA" not in shown
