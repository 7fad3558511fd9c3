"""The option piece_functions: symbols and line information for each piece."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from .code import fresh, generated


def rolled(x: torch.Tensor) -> torch.Tensor:
    return (x + x.roll((1, -1), (0, 1)) * 2).relu_()


X = torch.randn(130, 70)


@pytest.mark.parametrize("threads", [1, 2])
def test_each_piece_is_a_function_called_once(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        code = generated(rolled, X, split="seams", piece_functions=True)
        compiled = torch.compile(
            fresh(rolled), backend="piecewise", options={"split": "seams", "piece_functions": True}
        )
        torch.testing.assert_close(compiled(X), rolled(X), rtol=0, atol=0)
    finally:
        torch.set_num_threads(before)
    names = re.findall(r"noinline\)\) void (piecewise_\w+)\(", code)
    assert names == [f"piecewise_op0_{k}" for k in range(4)]
    for name in names:
        assert len(re.findall(rf"^\s*{name}\(", code, re.MULTILINE)) == 1


def test_without_the_option_there_are_no_functions() -> None:
    assert "noinline" not in generated(rolled, X, split="seams")


@pytest.mark.skipif(
    not shutil.which("nm") or not shutil.which("addr2line"), reason="needs binutils"
)
def test_the_library_has_the_symbols_and_knows_their_lines(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch.compile(
        fresh(rolled), backend="piecewise", options={"split": "seams", "piece_functions": True}
    )(X)
    found = {}
    for library in tmp_path.rglob("*.so"):
        table = subprocess.run(["nm", library], capture_output=True, text=True).stdout
        for address, name in re.findall(r"^(\w+) T (piecewise_op0_\d)$", table, re.MULTILINE):
            line = ["addr2line", "-i", "-e", library, address]  # with what was inlined there
            found[name] = subprocess.run(line, capture_output=True, text=True).stdout
    assert sorted(found) == [f"piecewise_op0_{k}" for k in range(4)]
    for where in found.values():
        file, _, number = where.splitlines()[-1].partition(":")
        assert file.endswith(".cpp") and int(number.split()[0]) > 0
