"""Imports go one way, and only inductor/ touches torch's internals."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def layout():
    spec = importlib.util.spec_from_file_location("check_layout", ROOT / "scripts/check_layout.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_imports_go_one_way(layout):
    assert list(layout.import_faults(ROOT / "src" / "torch_piecewise")) == []


@pytest.mark.parametrize(
    ("place", "code", "said"),
    [
        ("loops/a.py", "import torch._inductor.ir", "loops uses torch._inductor.ir"),
        ("loops/a.py", "from torch import _dynamo", "loops uses torch._dynamo"),
        ("plan/a.py", "import torch\ntorch._dynamo.reset()", "plan uses torch._dynamo"),
        ("loops/a.py", "from ..inductor import gate", "loops may not import inductor"),
        ("loops/a.py", "from torch_piecewise import plan", "loops may not import plan"),
        ("plan/a.py", "def f():\n    from torch_piecewise.cli import app", "may not import cli"),
        ("novel/a.py", "", "does not know the part 'novel'"),
    ],
)
def test_a_wrong_import_is_found(layout, tmp_path, place, code, said):
    package = tmp_path / "torch_piecewise"
    file = package / place
    file.parent.mkdir(parents=True)
    file.write_text(code)
    (fault,) = layout.import_faults(package)
    assert said in fault


def test_what_is_allowed_is_not_a_fault(layout, tmp_path):
    file = tmp_path / "torch_piecewise" / "inductor" / "a.py"
    file.parent.mkdir(parents=True)
    file.write_text("import torch._inductor\nfrom ..loops import ir\nfrom . import b\n")
    assert list(layout.import_faults(tmp_path / "torch_piecewise")) == []


def test_long_functions_and_files_are_found(layout, tmp_path):
    file = tmp_path / "a.py"
    file.write_text("def f():\n" + "    pass\n" * 60 + "x = 1\n" * 400)
    faults = [line for fault, line in layout.size_faults(file) if fault]
    assert len(faults) == 2


def _imported(file: Path) -> set[str]:
    """The packages that a module imports when it is imported."""
    names = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(str(node.module))
    return {name.split(".")[0] for name in names}


def test_what_is_imported_is_a_dependency():
    """Of the package, and of `make demo`: what the tests bring along may be missing there."""
    declared = re.search(r"^dependencies = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.M)
    assert declared is not None
    package = set(re.findall(r'"([a-z_]+)', declared[1]))
    files = (ROOT / "src").rglob("*.py")
    imported = set().union(*map(_imported, files)) - set(sys.stdlib_module_names)
    assert imported - {"torch_piecewise"} <= package
    assert package - {"torch"} <= set((ROOT / "requirements/run.txt").read_text().split())
