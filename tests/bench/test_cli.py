"""The command line says clearly what is wrong, with exit status 2."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from torch_piecewise.cli import InputError, app, load_script

SCRIPT = """
import torch

def periodic():
    return (lambda x: x + x.roll(1, -1)), (torch.ones(4, 300),)

def no_pair():
    return 3

def fails():
    raise ValueError("nothing to see")

number = 1
"""


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(SCRIPT)
    return str(file)


def invoke(*args: str):
    return CliRunner().invoke(app, list(args))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "write file.py:name or module:name"),
        (":nothing", "has nothing called 'nothing'"),
        (":periodc", "nearest: periodic"),
        (":number", "number is int, not a function"),
        (":no_pair", "no_pair() has to return (callable, args), not 3"),
        (":fails", "fails() failed: ValueError: nothing to see"),
    ],
)
def test_explain_names_what_is_wrong(script, name, said):
    result = invoke("explain", script + name)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("absent.py:f", "there is no file absent.py"),
        ("no_such_module_here:f", "importing no_such_module_here failed: ModuleNotFoundError"),
        ("json:dump_it", "json has nothing called 'dump_it'"),
    ],
)
def test_a_script_that_is_not_there(given, said):
    with pytest.raises(InputError) as raised:
        load_script(given)
    assert said in str(raised.value)


def test_a_script_with_a_syntax_error(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("def f(:\n")
    with pytest.raises(InputError, match=r"importing .*broken\.py failed: SyntaxError"):
        load_script(f"{file}:f")


def test_explain_prints_the_plan(script):
    result = invoke("explain", f"{script}:periodic")
    assert result.exit_code == 0, result.output
    assert "300" in result.output


def test_bench_writes_its_numbers(tmp_path, backend):
    output = tmp_path / "numbers.json"
    result = invoke(
        *("bench", "seams", "--only", "residual_gelu", "--scale", "tiny", "--rounds", "2"),
        *("--seconds", "0", "--in-process", "--backend", backend, "--output", str(output)),
    )
    assert result.exit_code == 0, result.output
    assert "control_residual_gelu" in result.output
    assert json.loads(output.read_text())["summary"]["failed"] == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ["--only", "gray_scot_"],
            "no name of the seams has 'gray_scot_'; nearest: roll_gray_scott",
        ),
        (["--backend", "pieceswise"], "has no backend 'pieceswise'; nearest: piecewise"),
        (["--device", "toaster"], "torch knows no device 'toaster'"),
        (["--scale", "huge"], "'--scale'"),
        (["--rounds", "1"], "'--rounds'"),
    ],
)
def test_bench_names_what_is_wrong(args, said):
    result = invoke("bench", *args)
    assert result.exit_code == 2
    assert said in result.stderr
