"""Blocks compiled once: equal to eager mode, counted, kept in caches, explained."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._inductor.utils import fresh_cache

import torch_piecewise
from torch_piecewise.inductor import composite
from torch_piecewise.plan import sharing

WIDTH = 16
BLOCKS = {"reuse": "blocks"}


class Layer(nn.Module):
    def __init__(self, dropout=0.0, eps=1e-5):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, eps=eps)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = dropout

    def forward(self, x, table):
        hidden = F.gelu(self.up(self.norm(x) * table))
        return x + F.dropout(self.down(hidden), self.dropout, self.training)


class Model(nn.Module):
    """Equal layers between two that differ; `collect` returns what every layer gives."""

    def __init__(self, layers=6, collect=False, odd=None, tied=False, **kwargs):
        super().__init__()
        given = [{**kwargs, **(odd or {})} if k == 3 else kwargs for k in range(layers)]
        made = [Layer(**each) for each in given]
        self.layers = nn.ModuleList([made[0]] * layers if tied else made)
        self.first, self.last = nn.Linear(4, WIDTH), nn.Linear(WIDTH, 3)
        self.collect = collect

    def forward(self, x):
        table = torch.sin(torch.arange(WIDTH, device=x.device) * 0.1)
        x, seen = self.first(x), []
        for layer in self.layers:
            x = layer(x, table)
            seen.append(x)
        return (self.last(x), *seen[:-1]) if self.collect else self.last(x)


@pytest.fixture(autouse=True)
def _always(monkeypatch):
    """Blocks of these sizes are too small to be shared by default."""
    monkeypatch.setattr(sharing, "CALL", 0.0)
    torch._dynamo.reset()


@pytest.fixture
def compiles(monkeypatch):
    """The names of the parts that are compiled."""
    names: list[str] = []
    kept = composite.compile_part

    def compile_part(part, **kwargs):
        names.append(part.name)
        return kept(part, **kwargs)

    monkeypatch.setattr(composite, "compile_part", compile_part)
    with fresh_cache():
        yield names


def compiled(model, **options):
    return torch.compile(model, backend="piecewise", options={**BLOCKS, **options}, dynamic=False)


def results(value):
    return value if isinstance(value, tuple) else (value,)


def same(got, want) -> None:
    for one, other in zip(results(got), results(want), strict=True):
        torch.testing.assert_close(one, other)
        assert one.stride() == other.stride() and one.dtype == other.dtype


X = torch.randn(5, 4)


@pytest.mark.parametrize("how", [{}, {"collect": True}, {"tied": True}], ids=str)
def test_inference(compiles, how) -> None:
    model = Model(**how).eval()
    with torch.no_grad():
        run, want = compiled(model), model(X)
        same(run(X), want)
        same(compiled(model, reuse=False)(X), want)
        same(run(X * 2), model(X * 2))
        same(run(X), want)  # what was returned before is not written to again
    assert [name.rsplit("_", 1)[0] for name in compiles] == ["before", "block_0", "rest"]


def test_any_size(compiles) -> None:
    model = Model().eval()
    run = torch.compile(model, backend="piecewise", options=BLOCKS, dynamic=True)
    with torch.no_grad():
        for rows in (5, 9):
            x = torch.randn(rows, 4)
            same(run(x), model(x))
    assert len(compiles) == 3


def trained(model, run, x=X):
    model.zero_grad()
    torch.manual_seed(3)
    out = run(x)
    sum(t.square().sum() for t in results(out)).backward()
    return (*results(out), *(p.grad.clone() for p in model.parameters()))


def test_training(compiles) -> None:
    model = Model(layers=8)
    same(trained(model, compiled(model)), trained(model, model))
    kinds = [name.rsplit("_", 1)[0] for name in compiles]
    assert kinds.count("block_0") == 2  # forward and backward


def test_dropout_draws_what_it_draws_in_one_graph(compiles) -> None:
    model = Model(layers=8, dropout=0.5)
    got = trained(model, compiled(model))
    assert any(name.startswith("block_0") for name in compiles)
    same(got, trained(model, compiled(model, reuse=False)))


def test_a_layer_with_another_constant_is_not_shared(compiles) -> None:
    model = Model(layers=9, odd={"eps": 1e-2}).eval()
    with torch.no_grad():
        same(compiled(model)(X), model(X))
    (note,) = _notes(model)
    assert note.code == "reused" and note.text.startswith(("6 equal", "7 equal"))


def _notes(model, **options):
    with torch.no_grad():
        (plan,) = torch_piecewise.explain(model, (X,), options={**BLOCKS, **options}).plans
    return [note for note in plan.notes if note.where == "reuse"]


def test_what_explain_says(monkeypatch) -> None:
    model = Model().eval()
    (note,) = _notes(model)
    assert note.code == "reused" and "one compiled, 4 reused" in note.text
    assert _notes(model, reuse=False) == []
    (note,) = _notes(model, cpp_wrapper=True)
    assert note.code == "setting" and "cpp_wrapper" in note.text
    monkeypatch.undo()
    (note,) = _notes(Model(layers=7).eval())  # another, since plans come from caches
    assert note.code == "small" and "compiled in place" in note.text


def test_an_argument_that_is_written_to(compiles) -> None:
    model = Model().eval()

    def fn(x):
        x.add_(1)
        return model(x)

    with torch.no_grad():
        given, other = X.clone(), X.clone()
        same(compiled(fn)(given), fn(other))
        same(given, other)
    assert any(name.startswith("block_0") for name in compiles)


def test_equal_tiles_are_compiled_once_unless_told_otherwise(compiles) -> None:
    def fn(x):
        return torch.relu(x) * 2

    for reuse, count in ((True, 1), (False, 4)):
        torch._dynamo.reset()
        compiles.clear()
        same(
            compiled(fn, ranges=4, reuse=reuse)(torch.full((8, 16), 2.0)), torch.full((8, 16), 4.0)
        )
        assert len(compiles) == count


SCRIPT = """
import json, torch
from torch._dynamo.utils import counters
from torch_piecewise.plan import sharing
from tests.inductor.test_blocks import Model, X, compiled, trained
sharing.CALL = 0.0
torch.manual_seed(0)
model = Model(layers=8)
with torch.no_grad():
    compiled(model)(X)
trained(model, compiled(model))
print(json.dumps({**counters["inductor"], **counters["aot_autograd"]}))
"""


def test_a_second_process_hits_all_of_it(tmp_path) -> None:
    env = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    found = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout.splitlines()[-1]))
    cold, warm = found
    assert cold["autograd_cache_saved"] == 2 and cold["fxgraph_cache_miss"] == 4 + 4 + 4
    assert warm["autograd_cache_hit"] == 2 and "fxgraph_cache_miss" not in warm
