"""The doctor: each thing that can be wrong is named, with what to do."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import torch_piecewise
from torch_piecewise.cli import app


def found(what: str) -> torch_piecewise.Finding:
    return next(f for f in torch_piecewise.examine() if f.what == what)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    yield tmp_path
    tmp_path.chmod(0o700)


def test_all_is_well_here() -> None:
    findings = torch_piecewise.examine()
    assert not any(f.broken for f in findings)
    assert {"torch", "backends", "C++ compiler", "cache folder", "data caches"} <= {
        f.what for f in findings
    }
    ended = CliRunner().invoke(app, ["doctor"])
    assert ended.exit_code == 0 and "C++ compiler" in ended.output


def test_a_torch_that_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.9.0")
    assert found("torch").broken and "torch >=2.11" in found("torch").fix
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 1


def test_no_such_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [])
    finding = found("backends")
    assert finding.broken and "no such backend" in finding.fix and "pip install" in finding.fix


def test_a_backend_that_breaks_on_import(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        importlib.metadata.EntryPoint(name, "torch_piecewise.nowhere:x", "torch_dynamo_backends")
        for name in ("piecewise", "piecewise_debug")
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
    assert found("backends").broken and "nowhere" in found("backends").found


def test_no_compiler() -> None:
    with torch._inductor.config.patch({"cpp.cxx": ("no-such-compiler",)}):
        finding = found("C++ compiler")
    assert finding.broken and "g++ or clang++" in finding.fix


def test_the_cache_folder(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found("cache folder").mark == "ok"
    own_cache.chmod(0o777)
    assert found("cache folder").mark == "note" and "chmod o-w" in found("cache folder").fix
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert found("cache folder").broken
    monkeypatch.undo()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(own_cache / "deep" / "er"))
    own_cache.chmod(0o700)
    assert "not made yet" in found("cache folder").found


def test_more_threads_than_cores(request: pytest.FixtureRequest) -> None:
    threads = torch.get_num_threads()
    request.addfinalizer(lambda: torch.set_num_threads(threads))
    torch.set_num_threads(4 * (os.cpu_count() or 1))
    assert "OMP_NUM_THREADS" in found("threads").fix and not found("threads").broken
