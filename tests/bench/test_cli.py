"""The command line says clearly what is wrong, with exit status 2."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from torch_piecewise import __version__
from torch_piecewise.cli import app, load_script
from torch_piecewise.errors import InputError

SCRIPT = """
import torch

def periodic():
    return (lambda x: x + x.roll(1, -1)), (torch.ones(4, 300),)

def no_pair():
    return 3

def fails():
    raise ValueError("nothing to see")

number = 1

def raises():
    def mine(x):
        y = x.roll(1, 0) * 2
        if x.shape[0] == 4:
            raise ValueError("wrong size")
        return y
    return mine, (torch.ones(4, 300),)

def multiplied():
    return (lambda x: x.roll(1, 0) @ x), (torch.ones(4, 300),)

def one_too_few():
    return (lambda x, y: x), (torch.ones(4, 300),)

class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        try:
            {}["absent"]
        except KeyError as error:
            raise RuntimeError("in backward") from error

def fails_in_backward():
    return Doubled.apply, (torch.ones(4, 300, requires_grad=True),)
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


@pytest.mark.parametrize(
    ("options", "pieces"),
    [
        ([], "1 piece\n"),
        (["--split", "seams"], "2 pieces"),
        (["--split", "seams", "--option", "max_pieces=1"], "1 piece\n"),
        (["--option", "split=seams", "--option", "max-autotune=True"], "2 pieces"),
    ],
)
def test_explain_with_options(script, options, pieces):
    result = invoke("explain", f"{script}:periodic", *options)
    assert result.exit_code == 0, result.output
    assert pieces in result.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--split", "of"], "'--split'"),
        (["--option", "splt=off"], "error: options=: there is no option 'splt'"),
        (["--option", "max_pieces=many"], "'max_pieces' is 'many' (str)"),
        (["--option", "max_pieces"], "error: --option: write name=value, not 'max_pieces'"),
    ],
)
def test_explain_names_a_wrong_option(script, options, said):
    result = invoke("explain", f"{script}:periodic", *options)
    assert result.exit_code == 2
    assert said in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("name", "lines", "said"),
    [
        ("raises", ["in mine"], "ValueError: wrong size"),
        ("multiplied", [], "x.roll(1, 0) @ x"),
        ("one_too_few", [], "missing 1 required positional argument: 'y'"),
        ("fails_in_backward", ["in backward", "in backward"], "RuntimeError: in backward"),
    ],
)
def test_an_error_of_the_users_function_shows_the_users_frames(script, name, lines, said):
    result = invoke("explain", f"{script}:{name}")
    assert result.exit_code == 1, result.output
    assert said in result.stderr
    frames = [line for line in result.stderr.splitlines() if line.startswith("  File")]
    assert [line.split(", ")[-1] for line in frames] == lines
    assert all(script in line for line in frames)


def test_a_failing_compiler_keeps_its_traceback(script, monkeypatch):
    def fails(*args):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("torch_piecewise.inductor.compile.compile_graph", fails)
    result = invoke("explain", f"{script}:periodic")
    assert "ZeroDivisionError" in repr(result.exception)


def test_version():
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout == f"torch-piecewise {__version__}, torch {torch.__version__}\n"


def test_bench_writes_its_numbers(tmp_path, backend):
    output = tmp_path / "numbers.json"
    result = invoke(
        *("bench", "seams", "--only", "residual_gelu", "--scale", "tiny", "--rounds", "2"),
        *("--seconds", "0", "--in-process", "--backend", backend, "--output", str(output)),
    )
    assert result.exit_code == 0, result.output
    assert "control_residual_gelu" in result.output
    assert json.loads(output.read_text())["summary"]["failed"] == 0


def test_bench_of_choices(tmp_path):
    output = tmp_path / "numbers.json"
    result = invoke(
        *("bench", "--choices", "--only", "heat_step,residual_gelu", "--scale", "tiny"),
        *("--dtype", "float64", "--rounds", "2", "--seconds", "0", "--in-process"),
        *("--output", str(output)),
    )
    assert result.exit_code == 0, result.output
    found = json.loads(output.read_text())
    assert found["settings"]["choices"] and found["settings"]["dtype"] == "float64"
    assert found["summary"]["choices"]["nests"] == found["summary"]["choices"]["subjects"] == 1
    assert "always off" in result.output and "nests chosen right" in result.output


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
        (["--only", "gray,jacoby"], "has 'jacoby'; nearest: pad_jacobi_step"),
        (["models", "--choices"], "--choices: only for seams and programs"),
        (["--choices", "--backend", "inductor"], "--choices: those of piecewise, not of inductor"),
    ],
)
def test_bench_names_what_is_wrong(args, said):
    result = invoke("bench", *args)
    assert result.exit_code == 2
    assert said in result.stderr
