"""All cases in three ranges: cut and right, or refused with the reason that is stated here."""

from __future__ import annotations

import inspect

import pytest
import torch

import torch_piecewise.inductor.composite as composite

from . import (
    test_caches,
    test_contract,
    test_dynamic_sizes,
    test_graph_breaks,
    test_splitting,
    test_stitching,
)

MODULES = (
    *(test_caches, test_contract, test_dynamic_sizes),
    *(test_graph_breaks, test_splitting, test_stitching),
)
CASES = {
    name: fn
    for module in MODULES
    for name, fn in vars(module).items()
    if name.startswith("test_") and "compiled" in inspect.signature(fn).parameters
    if not hasattr(fn, "pytestmark")  # one is known to fail with every backend
}
REFUSED = {
    "test_11_operators_with_several_results": "sort",
    "test_12_single_tensor_stays_single": "no-dim",  # a sum of all
    "test_15_tied_weights_and_cond": "no-rule",  # branches that the data chooses
    "test_32_sizes_that_depend_on_data": "data-dependent",
    "test_36_custom_autograd_function": "no-dim",  # a sum of all
}
WHOLE = {"test_09_input_as_output"}  # without an operator there is no graph

pytestmark = pytest.mark.long


def in_three_ranges(fn, *, options=None, mode=None, **given):
    own = {**(options or {}), "ranges": 3, **({"mode": mode} if mode else {})}
    return torch.compile(fn, backend="piecewise", options=own, **given)


@pytest.mark.parametrize("name", CASES)
def test_in_three_ranges(name, monkeypatch):
    stitched, counts = composite.stitched, []

    def counted(gm, parts, plans, **kwargs):
        counts.append(sum(part.range is not None for part in parts))
        return stitched(gm, parts, plans, **kwargs)

    monkeypatch.setattr(composite, "stitched", counted)
    case = CASES[name]
    given = {"compiled": in_three_ranges, "backend": "piecewise"}
    wanted = {k: v for k, v in given.items() if k in inspect.signature(case).parameters}
    if name in REFUSED:
        with pytest.raises(Exception, match=rf"RangeError.*\[{REFUSED[name]}\]"):
            case(**wanted)
    else:
        case(**wanted)
        assert bool(counts and max(counts) > 1) == (name not in WHOLE)
