"""The machine model: what the system and torch say, and None where they don't."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from torch_piecewise.bench import machine as bench_machine
from torch_piecewise.plan import machine
from torch_piecewise.plan.machine import Cache, this_machine


def _cache(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")


def test_caches_are_read_as_linux_lists_them(tmp_path: Path) -> None:
    _cache(tmp_path / "index0", type="Data", level="1", size="48K", shared_cpu_list="0")
    _cache(tmp_path / "index1", type="Instruction", level="1", size="32K", shared_cpu_list="0")
    _cache(tmp_path / "index2", type="Unified", level="2", size="2048K", shared_cpu_list="0-1")
    _cache(tmp_path / "index3", type="Unified", level="3", size="300M", shared_cpu_list="0-3,8")
    _cache(tmp_path / "index4", type="Unified", level="4", size="1G")  # sharing is hidden
    _cache(tmp_path / "index5", type="Unified", level="5")  # and so is the size
    assert machine._caches_of_system(tmp_path) == (
        Cache(1, 48 * 2**10, 1),
        Cache(2, 2**21, 2),
        Cache(3, 300 * 2**20, 5),
        Cache(4, 2**30, None),
    )
    assert machine._caches_of_system(tmp_path / "nothing") == ()


def test_what_nobody_says_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "SYSFS", tmp_path)
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "absent")
    monkeypatch.setattr(machine, "_torch_says", dict)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    found = this_machine()
    assert found.cpu is None and found.vector_bits is None and found.caches == ()
    assert found.lanes(torch.float32) is None and found.cache(2) is None


def test_torch_stands_in_for_the_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "SYSFS", tmp_path)
    monkeypatch.setattr(machine, "_torch_says", lambda: {"l1d_cache_size": 49152})
    assert this_machine().caches == (Cache(1, 49152),)


def test_the_system_names_the_processor_where_torch_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A CPU @ 2\nmodel name: B\n")
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(machine, "_torch_says", dict)
    assert this_machine().cpu == "A CPU @ 2"
    (tmp_path / "cpuinfo").write_text("processor: 0\n")
    assert this_machine().cpu is None


def test_a_benchmark_says_of_the_machine_what_the_model_says() -> None:
    found, facts = this_machine(), bench_machine.facts()
    said = (facts["cpu"], facts["cores"], facts["capability"])
    assert said == (found.cpu, found.cores, found.instruction_set)
    assert [Cache(**c) for c in facts["caches"]] == list(found.caches)
    assert facts["system"].endswith(found.architecture)


def test_this_machine(request: pytest.FixtureRequest) -> None:
    threads = torch.get_num_threads()
    request.addfinalizer(lambda: torch.set_num_threads(threads))
    torch.set_num_threads(3)
    found = this_machine()
    assert found.threads == 3
    assert 1 <= found.cores <= (os.cpu_count() or 1)
    assert found.instruction_set == torch.backends.cpu.get_cpu_capability()
    if found.vector_bits:
        assert found.lanes(torch.float32) == 2 * (found.lanes(torch.float64) or 0)
