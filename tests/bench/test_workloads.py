"""Every workload gives eager mode's result, forward and backward, with every seam cut."""

from __future__ import annotations

import pytest
import torch

from torch_piecewise.bench.variants import own_code
from torch_piecewise.bench.workloads import (
    STENCILS,
    WORKLOADS,
    Workload,
    bind,
    disagreement,
    find,
    traffic,
)

every_workload = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)


def agrees(workload: Workload, backend: str, scale: str, dtype: torch.dtype, split: str) -> str:
    args = workload.inputs("cpu", dtype, scale)
    versions = [a._version for a in args]
    # Inductor stands in for the backend where one wants to know what it does by itself
    options = {"split": split} if backend == "piecewise" else {}
    fn = torch.compile(
        own_code(workload.fn, split), backend=backend, options=options, dynamic=False
    )
    problem = disagreement(bind(workload, fn, args)(), bind(workload, workload.fn, args)())
    assert versions == [a._version for a in args], "an input was written to"
    return problem


@every_workload
def test_cut_at_every_seam(workload, backend):
    assert not agrees(workload, backend, "tiny", torch.float32, "seams")


@pytest.mark.long
@every_workload
def test_cut_at_every_seam_in_bfloat16(workload, backend):
    assert not agrees(workload, backend, "tiny", torch.bfloat16, "seams")


@pytest.mark.parametrize("name", STENCILS)
def test_stencils_in_float64(name, backend):
    assert not agrees(find(name), backend, "tiny", torch.float64, "seams")


@pytest.mark.parametrize("name", STENCILS)
def test_stencils_stay_in_their_dtype(name):
    stencil = find(name)
    results = bind(stencil, stencil.fn, stencil.inputs("cpu", torch.float64, "tiny"))()
    assert {result.dtype for result in results} == {torch.float64}


@pytest.mark.long
@every_workload
@pytest.mark.parametrize("split", ["auto", "seams"])
def test_at_full_size(workload, backend, split):
    assert not agrees(workload, backend, "cpu", torch.float32, split)


def test_names_are_unique():
    assert len({w.name for w in WORKLOADS}) == len(WORKLOADS) == 27


@every_workload
def test_inputs_are_the_same_every_time(workload):
    first = workload.inputs("cpu", torch.float32, "tiny")
    again = workload.inputs("cpu", torch.float32, "tiny")
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_traffic_counts_each_input_and_result_once():
    gelu = next(w for w in WORKLOADS if w.name == "control_residual_gelu")
    assert traffic(gelu, torch.float32, "tiny") == 4 * (3 * 6 * 33 + 33)


def test_disagreement_says_what_differs():
    a = torch.ones(3)
    assert disagreement((a,), (a,)) == ""
    assert "tensor 0" in disagreement((a + 1,), (a,))
    assert disagreement((a, a), (a,)) == "2 tensors instead of 1"
    assert "tensor 0" in disagreement((a.double(),), (a,))
