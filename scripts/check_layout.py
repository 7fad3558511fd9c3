"""Checks the layout: who imports whom, which folder touches torch's internals, how long things are.

    python scripts/check_layout.py

Exit status 1 and a line for each fault. Functions of more than 40 lines are listed too, as a hint.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "torch_piecewise"

FILE_LINES = 400
FUNCTION_LINES, FUNCTION_GOAL = 60, 40

# Each part of the package, and the parts that it may import, itself aside. Data flows downwards:
# the loop IR knows nothing of Inductor, and nothing that compiles knows of reports or benchmarks.
CORE = {"errors", "config", "loops", "graph", "plan"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "loops": {"errors"},
    "graph": {"errors", "loops"},
    "config": {"errors", "graph"},
    "plan": {"errors", "config", "loops", "graph"},
    "targets": CORE,
    "store": CORE,
    "run": CORE | {"targets", "store"},
    "inductor": CORE | {"targets", "store", "run"},
    "report": CORE | {"targets", "store", "run", "inductor"},
    "backend": CORE | {"inductor", "report"},
    "__init__": CORE | {"targets", "store", "run", "inductor", "backend", "report"},
    "bench": {"errors", "plan", "inductor", "__init__"},
    "cli": {"errors", "bench", "__init__"},
}

# Only `inductor` may: the rest stays as it is when these change with the version of torch.
INTERNALS = ("torch._inductor", "torch._dynamo")
MAY_USE_INTERNALS = {"inductor"}


def main() -> int:
    faults = [*import_faults(ROOT / "src" / PACKAGE)]
    hints = []
    for folder in ("src", "tests", "scripts"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for fault, line in size_faults(path):
                (faults if fault else hints).append(line)
    for line in hints:
        print(f"hint: {line}")
    for line in faults:
        print(f"fault: {line}")
    print(f"layout: {len(faults)} faults, {len(hints)} hints")
    return 1 if faults else 0


def import_faults(package: Path) -> Iterator[str]:
    """A line for every import that goes the wrong way."""
    for path in sorted(package.rglob("*.py")):
        part = part_of(path, package)
        if part not in MAY_IMPORT:
            yield f"{_name(path)}: scripts/check_layout.py does not know the part {part!r}"
            continue
        allowed = MAY_IMPORT[part] | {part}
        for line, module in imports(path, package):
            place = f"{_name(path)}:{line}"
            if module.startswith(INTERNALS) and part not in MAY_USE_INTERNALS:
                yield f"{place}: {part} uses {module}, which only inductor/ may"
            if module == PACKAGE or module.startswith(PACKAGE + "."):
                other = (module.split(".") + ["__init__"])[1]
                if other not in allowed:
                    yield f"{place}: {part} may not import {other}"


def part_of(path: Path, package: Path) -> str:
    """The folder right under the package, or the module where the file lies there itself."""
    first = path.relative_to(package).parts[0]
    return first.removesuffix(".py")


def imports(path: Path, package: Path) -> Iterator[tuple[int, str]]:
    """Line and full module name of all imports, and of dotted uses such as `torch._dynamo.reset`.

    An import for type checking only counts too: a type is knowledge.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, path, package)
            for alias in node.names:  # `from torch_piecewise import plan` imports a part
                yield node.lineno, f"{base}.{alias.name}" if _is_part(base, alias) else base
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            dotted = f"{node.value.id}.{node.attr}"
            if dotted in INTERNALS:
                yield node.lineno, dotted


def _absolute(node: ast.ImportFrom, path: Path, package: Path) -> str:
    """The module that a `from` names, with leading dots resolved."""
    if not node.level:
        return node.module or ""
    folder = path.relative_to(package.parent).parent.parts
    base = folder[: len(folder) - node.level + 1]
    return ".".join((*base, *((node.module,) if node.module else ())))


def _is_part(base: str, alias: ast.alias) -> bool:
    return base in (PACKAGE, "torch") and (
        alias.name in MAY_IMPORT or f"torch.{alias.name}" in INTERNALS
    )


def size_faults(path: Path) -> Iterator[tuple[bool, str]]:
    """(is a fault, a line) for the file and each of its functions that is too long."""
    text = path.read_text()
    lines = len(text.splitlines())
    if lines > FILE_LINES:
        yield True, f"{_name(path)}: {lines} lines, {FILE_LINES} at most"
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > FUNCTION_GOAL:
            limit = FUNCTION_LINES if length > FUNCTION_LINES else FUNCTION_GOAL
            said = f"{node.name} has {length} lines, {limit} at most"
            yield length > FUNCTION_LINES, f"{_name(path)}:{node.lineno}: {said}"


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    sys.exit(main())
