"""The permanent gate: Inductor's CPU registration, with ours behind a context variable.

Installed once, it decides per scheduler: inside a compile of ours the CPU's scheduling class is
`PiecewiseScheduling`, outside it is what Inductor registered. The cache key works the same way:
the CPU's custom pass has no identity outside, so plain keys stay what they were.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import torch
from torch._inductor import config as inductor_config
from torch._inductor.codegen import common
from torch._inductor.custom_graph_pass import CustomGraphModulePass

from torch_piecewise.errors import UnsupportedSetting

from . import concat, facts, reuse, scope, strides
from .cpu import PiecewiseScheduling

_lock = threading.Lock()


class KeyPass(CustomGraphModulePass):
    """Changes no graph; its `uuid` puts what determines our code into Inductor's cache keys.

    `other` is a pass that somebody registered before us: it still runs, and is still in the key.
    """

    def __init__(self, other: CustomGraphModulePass | None):
        self.other = other

    def __call__(self, gm: torch.fx.GraphModule) -> None:
        if self.other is not None:
            self.other(gm)

    def uuid(self) -> Any | None:
        theirs = self.other.uuid() if self.other is not None else None
        ours = scope.current()
        return theirs if ours is None else (theirs, *ours.key())


class Gate:
    """Constructs the CPU's scheduling: ours inside a compile of ours, else Inductor's."""

    def __init__(self, theirs: Any):
        self.theirs = theirs

    def __call__(self, scheduler: Any) -> Any:
        if scope.current() is None:
            return self.theirs(scheduler)
        if inductor_config.cpu_backend != "cpp":
            raise UnsupportedSetting.of(
                "torch._inductor.config.cpu_backend",
                inductor_config.cpu_backend,
                "it cuts the loops of the C++ code generator",
                'set it to "cpp", or compile with backend="inductor"',
            )
        return PiecewiseScheduling(scheduler)


def install() -> None:
    """Put the gate in front of Inductor's CPU registration; does nothing where it is there."""
    facts.install_hook()
    strides.install()
    concat.install()
    reuse.install()
    with _lock:
        common.init_backend_registration()
        entry = common.device_codegens["cpu"]
        if isinstance(entry.scheduling, Gate):
            return
        common.device_codegens["cpu"] = dataclasses.replace(
            entry, scheduling=Gate(entry.scheduling)
        )
        other = common.custom_backend_passes.get("cpu")
        if not isinstance(other, KeyPass):  # it outlives a registration that somebody put back
            common.custom_backend_passes["cpu"] = KeyPass(other)
