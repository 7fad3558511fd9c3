"""The machine that code is made for, as torch and the operating system describe it.

Nothing is assumed: what neither of them says is None, and is printed as "unknown".
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

CPUINFO = Path("/proc/cpuinfo")
SYSFS = Path("/sys/devices/system/cpu/cpu0/cache")
# Bits of a vector register by the name that torch gives to the instruction set it picked.
VECTOR_BITS = {"AVX512": 512, "AVX2": 256, "SVE256": 256, "ZVECTOR": 128}
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class Cache:
    """A data cache as the first core sees it; `shared_by` counts logical cores, None if unknown."""

    level: int
    size: int  # bytes
    shared_by: int | None = None


@dataclass(frozen=True)
class Machine:
    """`cores` may be used by this process, `threads` are what torch uses for one operation."""

    cpu: str | None
    architecture: str
    cores: int
    threads: int
    instruction_set: str
    vector_bits: int | None
    caches: tuple[Cache, ...]

    def cache(self, level: int) -> Cache | None:
        return next((c for c in self.caches if c.level == level), None)

    def lanes(self, dtype: torch.dtype) -> int | None:
        """How many elements of a dtype one vector register holds."""
        return self.vector_bits // (8 * dtype.itemsize) if self.vector_bits else None


def this_machine() -> Machine:
    """Read anew at every call, since the number of threads may change."""
    said = _torch_says()
    return Machine(
        cpu=said.get("cpu_name") or _cpu_of_system(CPUINFO),
        architecture=platform.machine(),
        cores=_cores(),
        threads=torch.get_num_threads(),
        instruction_set=torch.backends.cpu.get_cpu_capability(),
        vector_bits=VECTOR_BITS.get(torch.backends.cpu.get_cpu_capability()),
        caches=_caches_of_system(SYSFS) or _caches_of_torch(said),
    )


def _torch_says() -> dict[str, Any]:
    """What torch's own probe found; older versions have none."""
    probe = getattr(torch.cpu, "get_capabilities", dict)
    return dict(probe())


def _cpu_of_system(file: Path) -> str | None:
    """The name of the first core, which Linux writes as "model name : AMD EPYC"."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), None)


def _cores() -> int:
    """Those that the process may run on, where the system can say."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _caches_of_system(folder: Path) -> tuple[Cache, ...]:
    """Linux lists every cache of a core: its level, kind, size ("48K") and the cores sharing it."""
    found = []
    for index in sorted(folder.glob("index*")):
        try:
            kind, level, size = ((index / n).read_text().strip() for n in ("type", "level", "size"))
            if kind != "Instruction":
                found.append(Cache(int(level), _bytes(size), _shared(index)))
        except (OSError, ValueError, KeyError):
            continue  # a virtual machine may hide some of it
    return tuple(found)


def _bytes(text: str) -> int:
    return int(text[:-1]) * UNITS[text[-1]] if text[-1:] in UNITS else int(text)


def _shared(index: Path) -> int | None:
    """From a list of cores as in "0-3,8"."""
    try:
        parts = (index / "shared_cpu_list").read_text().strip().split(",")
        ends = [tuple(map(int, part.split("-"))) for part in parts]
    except (OSError, ValueError):
        return None
    return sum(end[-1] - end[0] + 1 for end in ends)


def _caches_of_torch(said: dict[str, Any]) -> tuple[Cache, ...]:
    sizes = ((1, said.get("l1d_cache_size")), (2, said.get("l2_cache_size")))
    return tuple(Cache(level, size) for level, size in sizes if size)
