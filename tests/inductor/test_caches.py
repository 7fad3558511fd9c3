"""Inductor's caches: a second process starts warm, options miss, plain entries stay plain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys, torch
from torch._dynamo.utils import counters
backend, options, register = json.loads(sys.argv[1])
if register:
    import torch_piecewise.inductor.gate as gate
    gate.install()
def fn(x):
    y = torch.nn.functional.pad(x, (1, 1))
    return (y[:, 2:] - y[:, :-2]).sin()
x = torch.ones(64, 96, requires_grad=True)
torch.compile(fn, backend=backend, options=options)(x).sum().backward()
counts = {k: v for k, v in counters["inductor"].items() if k.startswith("fxgraph_cache")}
counts["bypass"] = sum(v for k, v in counters["aot_autograd"].items() if "bypass" in k)
counts["autograd_hit"] = counters["aot_autograd"]["autograd_cache_hit"]
if backend == "piecewise":
    import torch_piecewise
    plans = torch_piecewise.explain(fn, (x,), options=options).plans
    counts["plans"] = [[p.kind, [len(n.pieces) for n in p.nests]] for p in plans]
print(json.dumps(counts))
"""


def run(cache: Path, backend: str, register: bool = False, **options: object) -> dict:
    """Compile one function, forward and backward, in a process of its own; its cache counters."""
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}
    arguments = json.dumps([backend, options, register])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, arguments], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    """A cache that one plain and one piecewise process filled."""
    cache = tmp_path_factory.mktemp("cache")
    assert run(cache, "inductor")["fxgraph_cache_miss"] == 2
    first = run(cache, "piecewise", split="seams")
    assert first["fxgraph_cache_miss"] == 2 and first["bypass"] == 0
    return cache


def test_a_second_process_starts_warm_and_still_knows_its_plan(filled: Path) -> None:
    warm = run(filled, "piecewise", split="seams")
    assert warm["fxgraph_cache_hit"] >= 2  # forward and backward; explain hits again
    assert warm.get("fxgraph_cache_miss", 0) == 0
    assert warm["bypass"] == 0
    assert warm["autograd_hit"] >= 1
    kinds = [kind for kind, _ in warm["plans"]]
    assert kinds == ["forward", "backward"]
    assert all(max(pieces) == 3 for _, pieces in warm["plans"])


@pytest.mark.parametrize(
    "options",
    [
        {"split": "off"},
        {"split": "seams", "max_pieces": 2},
        {"split": "seams", "piece_functions": True},
        {"split": "seams", "epilogue_fusion": False},
    ],
    ids=str,
)
def test_another_option_misses(filled: Path, options: dict) -> None:
    assert run(filled, "piecewise", **options)["fxgraph_cache_miss"] == 2


def test_plain_entries_are_found_as_before_also_with_the_gate_installed(filled: Path) -> None:
    for register in (False, True):
        counts = run(filled, "inductor", register)
        assert counts["fxgraph_cache_hit"] == 2
        assert counts.get("fxgraph_cache_miss", 0) == 0


def test_our_own_source_and_the_machine_are_in_the_key(monkeypatch) -> None:
    from torch_piecewise.config import Config
    from torch_piecewise.inductor import fingerprint as module
    from torch_piecewise.inductor.scope import Scope

    before = Scope(Config()).key()
    module.fingerprint.cache_clear()
    monkeypatch.setattr(module, "machine", lambda: ("another",))
    try:
        assert Scope(Config()).key() != before
    finally:
        monkeypatch.undo()
        module.fingerprint.cache_clear()
    assert Scope(Config()).key() == before
