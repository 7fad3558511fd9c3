"""`torch-piecewise doctor`: whether this backend can work here, and what to do where it can't."""

from __future__ import annotations

import importlib.metadata
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from torch_piecewise.errors import CompilerMissing, UnsupportedTorch
from torch_piecewise.plan.machine import Cache, this_machine

BACKENDS = ("piecewise", "piecewise_debug")
GROUP = "torch_dynamo_backends"
UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, what was found, and what to do; no `fix` where all is well.

    `broken` means that no compile can work before that is done.
    """

    what: str
    found: str
    fix: str = ""
    broken: bool = False

    @property
    def mark(self) -> str:
        return "wrong" if self.broken else "note" if self.fix else "ok"


def examine() -> tuple[Finding, ...]:
    """Look at versions, entry points, compiler, caches and the machine; compiles nothing."""
    looks: tuple[Callable[[], Iterator[Finding]], ...] = (
        _torch,
        _entry_points,
        _compiler,
        _cache,
        _settings,
        _machine,
    )
    return tuple(finding for look in looks for finding in look())


def _torch() -> Iterator[Finding]:
    try:
        UnsupportedTorch.check(torch.__version__)
    except UnsupportedTorch as error:
        yield Finding("torch", torch.__version__, str(error), broken=True)
    else:
        yield Finding("torch", torch.__version__)


def _entry_points() -> Iterator[Finding]:
    """A backend is found by the entry points of the installed package, not by an import."""
    found = {e.name: e for e in importlib.metadata.entry_points(group=GROUP)}
    missing = [name for name in BACKENDS if name not in found]
    if missing:
        fix = (
            "torch.compile says 'no such backend': install the package into this Python "
            "(pip install -e . in a checkout; an entry point is read when it is installed)"
        )
        yield Finding("backends", f"not registered: {', '.join(missing)}", fix, broken=True)
        return
    for name in BACKENDS:
        try:
            found[name].load()
        except Exception as error:  # whatever its import raises
            text = f"{name} can't be loaded: {type(error).__name__}: {error}"
            yield Finding("backends", text, "mend that import; see the error", broken=True)
            return
    yield Finding("backends", f"{', '.join(BACKENDS)}, found by entry point")


def _compiler() -> Iterator[Finding]:
    from torch_piecewise.inductor.environment import compiler

    try:
        command, version = compiler()
    except CompilerMissing as error:
        yield Finding("C++ compiler", "none that works", str(error), broken=True)
    else:
        yield Finding("C++ compiler", f"{os.path.basename(command)}: {version}")


def _cache() -> Iterator[Finding]:
    from torch_piecewise.inductor.environment import cache_folder

    folder = cache_folder(os.environ.get("TORCHINDUCTOR_CACHE_DIR"))
    there = folder if folder.exists() else _nearest_parent(folder)
    if not os.access(there, os.W_OK):
        fix = "set TORCHINDUCTOR_CACHE_DIR to a folder that can be written"
        yield Finding("cache folder", f"{folder} can't be written", fix, broken=True)
    elif there == folder and folder.stat().st_mode & stat.S_IWOTH:
        fix = f"others can put code there that you would run: chmod o-w {folder}"
        yield Finding("cache folder", f"{folder}, writable by everybody", fix)
    else:
        yield Finding("cache folder", f"{folder}{'' if folder.exists() else ' (not made yet)'}")


def _nearest_parent(folder: Path) -> Path:
    return next(p for p in folder.parents if p.exists())


def _settings() -> Iterator[Finding]:
    from torch_piecewise.inductor.versions import compiles_in_child_process

    if compiles_in_child_process():
        fix = "unset it: graphs would be lowered in a process that has no backend of ours"
        yield Finding("TORCHINDUCTOR_FX_COMPILE_MODE", "a child process", fix, broken=True)
    split = os.environ.get("TORCH_PIECEWISE_SPLIT")
    if split is not None:
        yield Finding("TORCH_PIECEWISE_SPLIT", split)


def _machine() -> Iterator[Finding]:
    machine = this_machine()
    yield Finding("processor", f"{machine.cpu or 'unknown'}, {machine.architecture}")
    threads = f"{machine.threads} threads of torch on {machine.cores} cores"
    if machine.threads > machine.cores:
        fix = f"more threads than cores wait for each other: OMP_NUM_THREADS={machine.cores}"
        yield Finding("threads", threads, fix)
    else:
        yield Finding("threads", threads)
    bits = machine.vector_bits
    yield Finding("vectors", f"{machine.instruction_set}, {bits or 'unknown'} bits")
    caches = ", ".join(map(_cache_text, machine.caches))
    yield Finding("data caches", caches or "unknown")


def _cache_text(cache: Cache) -> str:
    size = next((f"{cache.size // n} {unit}" for n, unit in UNITS if cache.size >= n), "0")
    shared = f" for {cache.shared_by} cores" if (cache.shared_by or 1) > 1 else ""
    return f"L{cache.level} {size}{shared}"
