"""What a measurement depends on besides the code: the machine and the versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from typing import Any

import torch


def facts() -> dict[str, Any]:
    """Facts for a result file, without anything that names the machine or its paths."""
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": f"{platform.system()} {platform.machine()}",
        "load": _load(),
        "compiler": _compiler(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_piecewise": _version(),
    }


def _cpu_name() -> str:
    import cpuinfo  # reading it takes a second

    return str(cpuinfo.get_cpu_info().get("brand_raw", platform.processor()))


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
