"""What a measurement depends on besides the code: the machine and the versions."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
import shutil
import subprocess
from typing import Any

import torch

from torch_piecewise.plan.machine import this_machine


def facts() -> dict[str, Any]:
    """Facts for a result file, without anything that names the machine or its paths."""
    machine = this_machine()
    return {
        "cpu": machine.cpu,
        "cores": machine.cores,
        "capability": machine.instruction_set,
        "caches": [dataclasses.asdict(cache) for cache in machine.caches],
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": f"{platform.system()} {machine.architecture}",
        "load": _load(),
        "compiler": _compiler(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_piecewise": _version(),
    }


def _load() -> float | None:
    """Processes that wanted a core over the last minute: a busy machine measures badly."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def _compiler() -> str | None:
    name = os.environ.get("CXX", "g++")
    if shutil.which(name) is None:
        return None
    said = subprocess.run([name, "-dumpfullversion"], capture_output=True, text=True, check=False)
    return f"{os.path.basename(name)} {said.stdout.strip()}"


def _version() -> str | None:
    try:
        return importlib.metadata.version("torch-piecewise")
    except importlib.metadata.PackageNotFoundError:
        return None
