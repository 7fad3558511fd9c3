"""Both READMEs say the same, and their examples run."""

from __future__ import annotations

import io
import re
import tokenize
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from typer.testing import CliRunner

from torch_piecewise.bench import workloads
from torch_piecewise.cli import app
from torch_piecewise.config import OWN

ROOT = Path(__file__).resolve().parent.parent
READMES = {name: (ROOT / name).read_text() for name in ("README.md", "README.zh-CN.md")}


def code_blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def without_comments(code: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return [t.string for t in tokens if t.type not in (tokenize.COMMENT, tokenize.NL)]


@pytest.mark.parametrize("name", READMES)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_examples_run(name, number):
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(code_blocks(READMES[name])[number], name, "exec"), {"__name__": "example"})
    lasts = ("by inductor", "torch.Size([8192, 1024])\n", "tensor([0., 0., 3., 3., 3., 3.])\n")
    last = lasts[number]
    assert last in printed.getvalue()


def test_both_have_the_same_examples_tables_and_headings():
    english, chinese = READMES.values()
    first, second = ([without_comments(c) for c in code_blocks(t)] for t in (english, chinese))
    assert first == second
    for pattern in (
        r"(?m)^#+ ",
        r"(?m)^\| `\w+`",
        r"(?m)^torch-piecewise \S+",
        r"`[a-z]+_[a-z_]+`",
    ):
        assert re.findall(pattern, english) == re.findall(pattern, chinese), pattern
    assert english.count("\n| ") == chinese.count("\n| ")


def test_options_commands_and_names_exist():
    text = READMES["README.md"]
    assert all(f"| `{name}` |" in text for name in OWN)
    commands = set(re.findall(r"(?m)^torch-piecewise (\w+)", text))
    said = CliRunner().invoke(app, ["--help"]).output
    assert all(command in said for command in commands)
    known = {w.name for w in workloads.WORKLOADS}
    named = set(re.findall(r"`((?:roll|mask|pad|slice|cat)_\w+)`", text))
    rows = re.findall(r"(?m)^\|.*\*\*\d", text)
    assert len(named) == len(rows) and named <= known


def test_the_backend_in_the_guide_runs():
    (code,) = code_blocks((ROOT / "docs" / "ranges.md").read_text())[-1:]
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(code, "ranges.md", "exec"), {"__name__": "example"})
    assert printed.getvalue() == "torch.Size([1000, 64])\n"
