"""Wrong options, missing compilers, operations the IR lacks: a clear error or a recorded reason."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

import torch_piecewise
from torch_piecewise import CompilerMissing, OptionError, UnsupportedSetting, UnsupportedTorch
from torch_piecewise.inductor import compile as piecewise_compile
from torch_piecewise.loops import ops

from .code import fresh


def rolled(x: torch.Tensor) -> torch.Tensor:
    return x + x.roll((1, -1), (0, 1)) * 2


X = torch.randn(130, 70)


def inner_error(caught: pytest.ExceptionInfo[BackendCompilerFailed]) -> BaseException:
    return caught.value.inner_exception


def test_an_unknown_option_names_the_nearest_one() -> None:
    with pytest.raises(BackendCompilerFailed, match="'splt'.*'split'") as caught:
        torch.compile(fresh(rolled), backend="piecewise", options={"splt": "auto"})(X)
    assert isinstance(inner_error(caught), OptionError)


def test_explain_raises_the_same_error_for_a_wrong_option() -> None:
    with pytest.raises(Exception, match="'split' is 'always'"):
        torch_piecewise.explain(rolled, (X,), options={"split": "always"})


def test_a_missing_compiler_is_named(tmp_path) -> None:
    """In a process of its own: Inductor remembers the compiler that it found."""
    script = (
        "import torch\ntorch.compile(lambda x: x + x.roll(1), backend='piecewise')(torch.ones(9))\n"
    )
    env = {**os.environ, "CXX": "/nowhere/c++", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.returncode != 0
    assert CompilerMissing.__name__ in done.stderr
    assert "no working C++ compiler: tried" in done.stderr and "/nowhere/c++" in done.stderr


def test_inductors_subprocess_mode_is_refused() -> None:
    env = {**os.environ, "TORCHINDUCTOR_FX_COMPILE_MODE": "SUBPROCESS"}
    script = "import torch\ntorch.compile(lambda x: x + 1, backend='piecewise')(torch.ones(9))\n"
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.returncode != 0
    assert UnsupportedSetting.__name__ in done.stderr
    assert "TORCHINDUCTOR_FX_COMPILE_MODE is 'SUBPROCESS'" in done.stderr
    assert "unset it" in done.stderr


@pytest.mark.parametrize("version", ["2.10.1", "2.15.0+cpu", "3.0.0", "weird"])
def test_an_unsupported_torch_is_named(monkeypatch, version: str) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(UnsupportedTorch, match=version.replace("+", r"\+")):
        piecewise_compile.config_of(None, None)


@pytest.mark.parametrize("version", ["2.11.0", "2.13.0+cpu", "2.14.1+cu130"])
def test_supported_versions_pass(monkeypatch, version: str) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    piecewise_compile.config_of(None, None)


def test_another_cpu_backend_of_inductors_is_refused() -> None:
    with pytest.raises(Exception, match="cpu_backend is 'halide'"):
        torch.compile(fresh(rolled), backend="piecewise", options={"cpu_backend": "halide"})(X)


def test_an_operation_that_the_ir_lacks_leaves_the_nest_whole_with_a_reason(monkeypatch) -> None:
    monkeypatch.delitem(ops.OPS, "sin")
    with torch.compiler.config.patch(force_disable_caches=True):
        said = torch_piecewise.explain(lambda x: rolled(x).sin(), (X,), options={"split": "seams"})
        (nest,) = said.nests
        assert not nest.in_ir and not nest.split
        assert nest.reason.code == "unknown-operation" and "'sin'" in nest.reason.text
        got = torch.compile(lambda x: rolled(x).sin(), backend="piecewise")(X)
    torch.testing.assert_close(got, rolled(X).sin())


def many_seams(x: torch.Tensor) -> torch.Tensor:
    place, total = torch.arange(x.shape[0]), x
    for limit in range(5, 45, 2):
        total = total + torch.where(place < limit, x + limit, x)
    return total


def test_too_many_seams_are_joined_or_left_with_a_reason() -> None:
    x = torch.randn(1000)
    said = torch_piecewise.explain(many_seams, (x,), options={"split": "seams"})
    (nest,) = said.nests
    assert len(nest.seams) == 20 and len(nest.pieces) == 16
    (note,) = (n for n in nest.notes if n.code == "joined")
    assert "21 pieces at its seams, the cap is 16" in note.text and "max_pieces" in note.hint
    assert "5 of the cuts" in note.text
    options = {"split": "seams", "max_pieces": 1}
    (nest,) = torch_piecewise.explain(many_seams, (x,), options=options).nests
    assert not nest.split and nest.reason.code == "too-many-pieces"
    for options in ({}, {"split": "seams"}, {"split": "seams", "max_pieces": 40}):
        got = torch.compile(fresh(many_seams), backend="piecewise", options=options)(x)
        torch.testing.assert_close(got, many_seams(x), rtol=0, atol=0)


def test_a_periodic_condition_is_left_with_a_reason() -> None:
    def stripes(x: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.arange(x.shape[0]) % 2 == 0, x, -x)

    x = torch.randn(1000)
    (nest,) = torch_piecewise.explain(stripes, (x,), options={"split": "seams"}).nests
    assert not nest.split
    assert any(n.code == "periodic" for n in nest.notes)
    got = torch.compile(stripes, backend="piecewise")(x)
    torch.testing.assert_close(got, stripes(x), rtol=0, atol=0)
