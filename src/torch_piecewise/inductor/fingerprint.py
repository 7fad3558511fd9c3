"""What determines our code besides the options: this package's source, and the machine."""

from __future__ import annotations

import functools
import hashlib
import platform
from pathlib import Path

import torch


@functools.cache
def fingerprint() -> str:
    """A digest over every source file of the package and the CPU that code is built for."""
    digest = hashlib.sha256()
    root = Path(__file__).parent.parent
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    digest.update(repr(machine()).encode())
    return digest.hexdigest()


@functools.cache
def machine() -> tuple[str, ...]:
    """The CPU as far as generated code depends on it (Inductor builds with -march=native).

    Which vectors the compiler can build for is not asked: that takes building programs, which a
    graph on a GPU never needs, and code for others of this CPU's vectors is as valid.
    """
    return platform.machine(), torch.backends.cpu.get_cpu_capability(), _cpu_model()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    found = {line.partition(":")[0].strip(): line for line in lines if line.startswith(wanted)}
    return "\n".join(found.values())
