"""Graphs in ranges in Inductor's and AOTAutograd's caches: hits, misses, damage."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.backend.harness import run_all
from torch import nn
from torch._dynamo.utils import counters
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config
from torch._inductor.runtime.cache_dir_utils import cache_dir
from torch._inductor.utils import fresh_cache

import torch_piecewise

SCRIPT = """
import json, torch
from torch._dynamo.utils import counters
from torch.utils._pytree import tree_leaves

NUMBERS = torch.tensor([1.0, 2.0, 3.0, 4.0])

def inference(x):
    x.add_(1)
    return torch.relu(x) * torch.tensor([1.0, 2.0, 3.0, 4.0]) + NUMBERS, x.amax(0)

def trained(x, w):
    return torch.tanh(x @ w) * 2

def whole_backward(x):
    return x.sum(1) * 2, x.relu().sum()

def run(name, fn, *args, dynamic=False, grad=False):
    torch._dynamo.reset()
    counters.clear()
    args = [a.clone().requires_grad_(grad) for a in args]
    eager = [a.detach().clone().requires_grad_(grad) for a in args]
    options = {"ranges": [0, 20, None]}
    compiled = torch.compile(fn, backend="piecewise", options=options, dynamic=dynamic)
    got, want = compiled(*args), fn(*eager)
    if grad:
        for each in (got, want):
            sum(t.sum() for t in tree_leaves(each)).backward()
        got, want = [got, *(a.grad for a in args)], [want, *(a.grad for a in eager)]
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(args, eager)
    first = tree_leaves(got)[0]
    before = first.detach().clone()
    compiled(*[a.detach() * 3 if not grad else a for a in args])
    assert torch.equal(first, before), "a later call changed what was returned"
    counts = {k: v for k, v in counters["inductor"].items() if k.startswith("fxgraph_cache")}
    hits = {k: v for k, v in counters["aot_autograd"].items() if k.startswith("autograd_cache")}
    found[name] = {**counts, **hits}

found = {}
x, w = torch.randn(64, 4), torch.randn(4, 6)
run("inference", inference, x, dynamic=True)
run("trained", trained, x, w, grad=True)
run("whole backward", whole_backward, x, grad=True)
print(json.dumps(found))
"""


def run_apart(cache: Path) -> dict:
    """Three functions compiled in a process of their own: the counters of each."""
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_second_process_hits_all_of_it(tmp_path) -> None:
    cold, warm = run_apart(tmp_path), run_apart(tmp_path)
    for name, counts in cold.items():
        assert counts["fxgraph_cache_miss"] >= 3, name  # the whole, and its pieces
        assert counts["autograd_cache_saved"] == counts["autograd_cache_miss"] >= 1, name
    for name, counts in warm.items():
        assert counts.pop("autograd_cache_hit") == cold[name]["autograd_cache_miss"], name
        assert set(counts) == {"fxgraph_cache_hit"}, (name, counts)  # no miss, no bypass
    assert warm["trained"]["fxgraph_cache_hit"] == 2  # forward and backward, each with its pieces


def fn(x):
    return torch.relu(x) * 2 + 1


X = torch.randn(64, 32)


def counted(step, *args):
    """What a call gives, and what the caches counted meanwhile: (graph hits, misses, AOT hits)."""
    counters.clear()
    got = step(*args)
    graphs, whole = counters["inductor"], counters["aot_autograd"]
    found = graphs["fxgraph_cache_hit"], graphs["fxgraph_cache_miss"], whole["autograd_cache_hit"]
    return got, found


def compiled(fn=fn, dynamic=False, **options):
    torch._dynamo.reset()
    options = {"ranges": [0, 24, None], **options}
    return torch.compile(fn, backend="piecewise", options=options, dynamic=dynamic)


@pytest.fixture
def own_cache():
    """Empty caches, for a test that counts."""
    counters.clear()
    with fresh_cache():
        yield Path(cache_dir())


def check(hits, x=X, fn=fn, **how):
    """Compile, compare with eager mode, and with what the caches should have counted."""
    got, found = counted(compiled(fn, **how), x)
    torch.testing.assert_close(got, fn(x))
    assert found == hits


MISSES, HITS = (0, 3, 0), (1, 0, 1)


def test_what_determines_the_code_is_in_the_key(own_cache, monkeypatch) -> None:
    check(MISSES)
    check(HITS)
    check((0, 2, 0), ranges=2)  # two equal pieces, compiled once
    check((0, 3, 0), dim=1)
    check((0, 3, 0), stitch="streaming")
    from torch_piecewise.inductor import fingerprint as module

    module.fingerprint.cache_clear()
    monkeypatch.setattr(module, "machine", lambda: ("another",))
    try:
        check(MISSES)
    finally:
        monkeypatch.undo()
        module.fingerprint.cache_clear()
    check(HITS)


@pytest.mark.parametrize("part", ["forward", "backward", "whole backward"])
def test_the_plan_comes_from_the_cache_too(own_cache, part) -> None:
    def trained(x):
        return (x.sum(1) * 2, x.relu().sum()) if part == "whole backward" else (x.tanh() * 2,)

    x = X.clone().requires_grad_(part != "forward")
    made, found = (
        torch_piecewise.explain(trained, (x,), options={"ranges": [0, 24, None]}) for _ in range(2)
    )
    assert counters["aot_autograd"]["autograd_cache_hit"] == 1
    assert made.plans == found.plans and made.nests
    assert len(made.plans) == (1 if part == "forward" else 2)


def test_tensors_that_a_graph_holds_are_told_apart_by_value(own_cache) -> None:
    def holding(*numbers):
        return lambda x: x * torch.tensor(numbers).sin().sum() + x

    check((0, 4, 0), fn=holding(1.0, 2.0))
    check((3, 1, 0), fn=holding(1.0, 3.0))  # the pieces are handed what the tensor gives
    check(HITS, fn=holding(1.0, 2.0))


def test_sizes_have_guards(own_cache) -> None:
    """The piece [0, 24) of a size that is not known is wrong for one of 10."""
    check(MISSES, dynamic=True)
    check(HITS, torch.randn(64, 32), dynamic=True)
    check((0, 1, 0), torch.randn(10, 32), dynamic=True)  # one range, one graph
    check(HITS, torch.randn(50, 32), dynamic=True)
    check(HITS, torch.randn(11, 32), dynamic=True)


def test_bounds_that_the_user_knows_are_guards_too(own_cache) -> None:
    """Made for 30 to 100 rows, where [0, 24) is inside without a look."""
    x = torch.randn(64, 32)
    torch._dynamo.mark_dynamic(x, 0, min=30, max=100)
    check(MISSES, x, dynamic=None)
    x = torch.randn(64, 32)
    torch._dynamo.mark_dynamic(x, 0)
    step = compiled(dynamic=None)
    got, found = counted(step, x)
    torch.testing.assert_close(got, fn(x))
    assert found == HITS
    for size in (26, 10, 200):
        x = torch.randn(size, 32)
        torch.testing.assert_close(step(x), fn(x))


def damage(folder: Path, keep: float) -> int:
    entries = [path for path in folder.rglob("*") if path.is_file()]
    for path in entries:
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * keep)])
    return len(entries)


@pytest.mark.parametrize("keep", [0.0, 0.6])
@pytest.mark.parametrize("folder", ["fxgraph", "aotautograd"])
def test_a_damaged_entry_is_a_miss_and_made_again(own_cache, folder, keep) -> None:
    check(MISSES)
    assert damage(own_cache / folder, keep) == (3 if folder == "fxgraph" else 1)
    lost, whole = (0, 0) if folder == "fxgraph" else (1, 0)
    got, found = counted(compiled(), X)
    torch.testing.assert_close(got, fn(X))
    assert found[0] == lost and found[2] == whole
    check(HITS)


def test_an_entry_whose_pieces_are_all_that_is_left(own_cache) -> None:
    check(MISSES)
    (kept,) = [path for path in (own_cache / "fxgraph").rglob("*-*") if path.is_dir()]
    for path in kept.iterdir():
        path.unlink()
    got, found = counted(compiled(), X)
    assert found == (2, 2, 0)  # AOTAutograd asks for it, and so do we; the pieces are there
    check(HITS)


def test_what_cannot_be_kept_says_so(own_cache) -> None:
    with inductor_config.patch(post_grad_custom_pre_pass=lambda graph: None):
        got, found = counted(compiled(), X)
        torch.testing.assert_close(got, fn(X))
        assert found == (0, 0, 0) and counters["inductor"]["fxgraph_cache_bypass"] == 3
        shown = str(torch_piecewise.explain(fn, (X,), options={"ranges": 2}))
    assert "not kept in Inductor's cache: Unsupported post grad custom pass" in shown
    assert "[uncached]" in shown


def test_a_piece_that_cannot_be_kept(own_cache, monkeypatch) -> None:
    from torch_piecewise.inductor import composite

    theirs = composite.compile_fx_inner

    def unnamed(*args, **kwargs):
        made = theirs(*args, **kwargs)
        made._fx_graph_cache_key = None
        return made

    monkeypatch.setattr(composite, "compile_fx_inner", unnamed)
    shown = str(torch_piecewise.explain(fn, (X,), options={"ranges": 2}))
    assert "does not keep one of the pieces [uncached]" in shown
    got, found = counted(compiled(ranges=2), X)
    torch.testing.assert_close(got, fn(X))
    assert found[2] == 0 and not counters["aot_autograd"]["autograd_cache_saved"]


def test_in_a_bundled_entry(own_cache) -> None:
    with functorch_config.patch(bundled_autograd_cache=True):
        check((0, 0, 0))
        check((0, 0, 1))


def test_as_artifacts_that_travel() -> None:
    with fresh_cache():
        check(MISSES)
        torch.compiler._cache.CacheArtifactManager.clear()
        check(HITS)
        saved = torch.compiler.save_cache_artifacts()
    assert saved is not None
    with fresh_cache():
        torch.compiler.load_cache_artifacts(saved[0])
        check(HITS)


def test_copies_and_options_of_one_module(own_cache) -> None:
    """Each has code and memory of its own, whether it was compiled or came from a cache."""
    module = nn.Sequential(nn.Linear(32, 32), nn.Tanh())
    with torch.no_grad():
        want = module(X)
        steps = [
            torch.compile(module, backend="piecewise", options={"ranges": ranges})
            for ranges in (2, [0, 20, None], 2)
        ]
        steps += [copy.deepcopy(step) for step in steps]
        got = [step(X) for step in steps]
        for step, each in zip(steps, got, strict=True):
            step(X * 2)
            torch.testing.assert_close(each, want)
        steps[-1]._orig_mod[0].weight.zero_()
        torch.testing.assert_close(steps[0](X), want)
        assert not torch.allclose(steps[-1](X), want)


def test_two_threads_call_what_came_from_a_cache(own_cache) -> None:
    big = torch.randn(512, 512)
    compiled()(big)
    step = compiled()
    _, found = counted(step, big)
    assert found == HITS

    def work(k):
        for n in range(20):
            assert torch.equal(step(big + k + n), fn(big + k + n))

    run_all([lambda k=k: work(k) for k in range(2)])
