"""The permanent gate: Inductor's registrations, with ours behind a context variable.

Installed once, it decides per scheduler: inside a compile of ours a device's scheduling class is
ours, outside it is what Inductor registered. The cache key works the same way: a device's custom
pass has no identity outside, so plain keys stay what they were.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor import config as inductor_config
from torch._inductor.codegen import common
from torch._inductor.custom_graph_pass import CustomGraphModulePass

from torch_piecewise.errors import UnsupportedSetting

from . import concat, facts, reuse, scope, strides
from .cpu import PiecewiseScheduling
from .gpu import PiecewiseCuda

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


@dataclass(frozen=True)
class Device:
    """A device whose loops we cut: by `scheduling`, where the setting names Inductor's `generator`.

    The setting is one of Inductor's, which chooses a code generator for the device.
    """

    setting: str
    generator: str
    scheduling: Callable[[Any], Any]
    nvidia: bool = False  # torch calls AMD's cards by the same name


DEVICES = {
    "cpu": Device("cpu_backend", "cpp", PiecewiseScheduling),
    "cuda": Device("cuda_backend", "triton", PiecewiseCuda, nvidia=True),
}


class Gate:
    """Constructs a device's scheduling: ours inside a compile of ours, else Inductor's."""

    def __init__(self, device: Device, theirs: Any):
        self.device, self.theirs = device, theirs

    def __call__(self, scheduler: Any) -> Any:
        if scope.current() is None or (self.device.nvidia and torch.version.hip):
            return self.theirs(scheduler)
        setting = self.device.setting
        chosen = getattr(inductor_config, setting)
        if chosen != self.device.generator:
            raise UnsupportedSetting.of(
                f"torch._inductor.config.{setting}",
                chosen,
                f"it cuts the loops of the {self.device.generator} code generator",
                f'set it to "{self.device.generator}", or compile with backend="inductor"',
            )
        return self.device.scheduling(scheduler)


def install() -> None:
    """Put the gate in front of Inductor's registrations; does nothing where it is there."""
    facts.install_hook()
    strides.install()
    concat.install()
    reuse.install()
    with _lock:
        common.init_backend_registration()
        for name, device in DEVICES.items():
            _install(name, device)


def _install(name: str, device: Device) -> None:
    entry = common.device_codegens[name]
    if isinstance(entry.scheduling, Gate):
        return
    gate = Gate(device, entry.scheduling)
    common.device_codegens[name] = dataclasses.replace(entry, scheduling=gate)
    other = common.custom_backend_passes.get(name)
    if not isinstance(other, KeyPass):  # it outlives a registration that somebody put back
        common.custom_backend_passes[name] = KeyPass(other)
