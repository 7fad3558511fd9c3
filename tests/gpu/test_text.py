"""What is generated for a GPU, by its text: no GPU is needed."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F

from torch_piecewise.bench.workloads import find
from torch_piecewise.config import Config
from torch_piecewise.inductor import scope
from torch_piecewise.inductor.gate import DEVICES, Gate

from .fake import code_of, compile_for_h200, functions, kernels, needs_triton

pytestmark = needs_triton

X = torch.empty(512, 4096, dtype=torch.bfloat16)


def joined(x, y):
    return F.gelu(torch.cat([x * 2, torch.exp(y), x + y], 1))


def test_one_launch_has_a_branch_free_range_for_each_part_of_a_concatenation():
    (source,) = code_of(joined, [X, X], split="seams")
    (kernel,) = kernels(source)
    parts = functions(kernel)
    ranges = [text for name, text in parts.items() if name.startswith("range_")]
    assert len(ranges) == 3
    assert not any("tl.where" in text or "other=" in text for text in ranges)
    assert source.count(".run(") == 1


def test_by_default_the_whole_is_a_way_too_and_the_first_call_chooses():
    (source,) = code_of(joined, [X, X])
    (kernel,) = kernels(source)
    assert "whole" in functions(kernel)
    ways = re.findall(r"Config\(\{'WAY': (\d)", kernel)
    assert ways == ["0", "1"]
    assert "'grid_type': 'PrecomputedGrid'" in kernel


GIVEN = {"ranges": [0, 100, 300, None], "stitch": "loops"}


def test_ranges_of_the_user_are_those_of_one_launch():
    """They are not timed beside the whole, which would not be what was asked for."""
    (source,) = code_of(lambda x: x.relu() * 2 + 1, [X], **GIVEN)
    (kernel,) = kernels(source)
    *ranges, _ = functions(kernel)
    assert ranges == ["range_0", "range_1", "range_2"]
    assert [
        f"xnumel = {rows * 4096}" in functions(kernel)[f"range_{k}"]
        for k, rows in enumerate((100, 200, 212))
    ]
    assert re.findall(r"Config\(\{'WAY': (\d)", kernel) == ["0"] and source.count(".run(") == 1
    padded = lambda x: F.pad(x * 2, (0, 0, 3, 4)).sin()  # noqa: E731
    for split, count in (("auto", 3), ("seams", 5)):
        (source,) = code_of(padded, [X], split=split, **GIVEN)
        (kernel,) = kernels(source)
        assert len(functions(kernel)) == count + 1


def test_a_reduction_on_a_gpu_is_not_cut_at_ranges_of_the_user():
    with pytest.raises(Exception, match="a launch in ranges can't have a reduction"):
        code_of(lambda x: x.sum(1), [X], **GIVEN)


def test_blocks_of_the_launch_cover_every_tile_of_every_range():
    (source,) = code_of(joined, [X, X], split="seams")
    (kernel,) = kernels(source)
    config = dict(re.findall(r"'([XY]\d)': (\d+)", kernel.split("num_warps")[0]))
    grid = re.search(r"'python': \['([^']*)'", kernel)
    assert grid is not None
    tiles = sum(
        -(-4096 // int(config[f"X{k}"])) * -(-512 // int(config[f"Y{k}"])) for k in range(3)
    )
    assert eval(grid[1]) == tiles


@pytest.mark.parametrize("split", ["auto", "seams"])
def test_a_nest_of_one_point(split):
    def fn(x, y):
        return torch.where(x > 0, x * 2, y.exp())

    (code,) = code_of(fn, [torch.tensor(1.0), torch.tensor(2.0)], split=split)
    assert len(kernels(code)) == 1


def test_other_compiles_for_a_gpu_stay_as_they_are():
    (before,) = code_of(joined, [X, X], backend="inductor")
    code_of(joined, [X, X])
    (after,) = code_of(joined, [X, X], backend="inductor")
    assert kernels(before) == kernels(after)
    assert "range_0" not in after


def test_a_stack_that_is_reduced_over_its_parts_is_not_stored():
    workload = find("cat_ensemble_spread")
    args = workload.inputs("meta", torch.bfloat16, "gpu")
    (source,) = code_of(workload.fn, args)
    assert len(kernels(source)) == 1
    assert len(kernels(code_of(workload.fn, args, backend="inductor")[0])) == 2


def test_what_is_assigned_to_a_slice_is_not_stored_before():
    workload = find("slice_lid_driven")
    args = workload.inputs("meta", torch.float32, "gpu")
    (source,) = code_of(workload.fn, args)
    assert len(kernels(source)) == 1
    assert len(kernels(code_of(workload.fn, args, backend="inductor")[0])) == 3


def test_a_causal_row_reads_the_columns_it_sees():
    workload = find("mask_causal_softmax")
    (source,) = code_of(workload.fn, workload.inputs("meta", torch.bfloat16, "gpu"))
    (kernel,) = kernels(source)
    loops = re.findall(r"for r0_offset in tl.range\((.*?)\):((?:\n        .*)*)", kernel)
    ends = [text.split(",")[0] for text, _ in loops]
    first, last = (
        loops[:2],
        loops[-3:],
    )  # what is hidden is no maximum, so no loop of the first pass
    assert ends[: len(first)] == ["0", "settled_before"]
    assert ends[-len(last) :] == ["0", "settled_before", "settled_after"]
    assert ["tl.load(in_ptr0" in body for _, body in last] == [True, True, False]
    for passed in (first, last):
        assert ["tl.where(tmp" in body for _, body in passed][:2] == [False, True]


def test_a_periodic_reduction_wraps_at_its_ends_only():
    workload = find("roll_circular_correlation")
    (source,) = code_of(workload.fn, workload.inputs("meta", torch.bfloat16, "gpu"))
    (kernel,) = kernels(source)
    ends, inside = kernel.split("for r0_step in")[1].split("for r0_offset in")
    assert ends.count("% 8192") == 8  # of nine shifts one is 0
    assert "% 8192" not in inside
    accumulators = set(re.findall(r"(_tmp\d+) = ", inside))
    assert accumulators == set(re.findall(r"(_tmp\d+) = ", ends)) and len(accumulators) == 9


def test_nodes_whose_loops_are_written_differently_are_one_nest():
    def fn(x):
        y = torch.cat([x * 2, x + 1], 0)
        return y.relu(), (y.reshape(-1) * 3)

    (source,) = code_of(fn, [torch.empty(256, 512)], split="seams")
    assert "unlike-spaces" not in source


@pytest.mark.parametrize("name", ["cat_dense_block", "roll_gray_scott", "mask_taper"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_launches_compile(name, dtype, tmp_path):
    workload = find(name)
    args = workload.inputs("meta", dtype, "gpu")
    (source,) = code_of(workload.fn, args, split="seams")
    for kernel in kernels(source):
        texts = [made.asm["ptx"] for _, made in compile_for_h200(kernel, tmp_path)]
        if dtype == torch.bfloat16 and name != "roll_gray_scott":
            assert texts
            for text in texts:  # one for each way
                assert re.search(r"st\.global\.\w*\.?v4", text), "stores by vectors"


def test_a_reduction_says_why_it_is_whole():
    def fn(x):
        return torch.roll(x, 3, 1).sum(1)

    def reason(columns, **options):
        (source,) = code_of(fn, [torch.empty(64, columns)], split="seams", **options)
        cut = "r0_step" in source
        return "cut" if cut else re.search(r'"reason": {"code": "([\w-]+)"', source)[1]

    assert reason(9000) == "cut"
    assert reason(900) == "small"
    assert reason(9000, **{"triton.force_cooperative_reductions": True}) == "one-step"


DYNAMIC = {
    "pad": lambda x: F.pad(x, (3, 5)).mul(2).sum(1),
    "causal": lambda x: torch.where(
        torch.arange(x.shape[1]) <= torch.arange(x.shape[0])[:, None], x, 0.0
    ).sum(1),
    "joined": lambda x: torch.cat([x * 2, x.exp()], 0).relu(),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_sizes_that_are_not_known_have_the_kernels_names(name):
    (source,) = code_of(DYNAMIC[name], [torch.empty(300, 5000)], dynamic=True, split="seams")
    (kernel,) = kernels(source)
    assert re.search(r"\bks\d", kernel) or "xnumel" in kernel
    assert not re.search(r"\bs\d+\b", kernel)


def test_cards_of_amd_are_left_to_inductor(monkeypatch):
    """torch calls them cuda as well."""
    gate = Gate(DEVICES["cuda"], lambda scheduler: ("Inductor's", scheduler))
    monkeypatch.setattr(torch.version, "hip", "6.4")
    with scope.entered(scope.Scope(Config())):
        assert gate("scheduler") == ("Inductor's", "scheduler")
