"""Results that share memory with something, or that are no tensors."""

from __future__ import annotations

import pytest
import torch

from .close import assert_same


def test_24_mutated_input(compiled):
    """pytorch#91310, tt-mlir#9328: the caller sees what was written to its tensor."""

    def double_in_place(x):
        x.mul_(2)
        return x + 1

    got, want = torch.ones(3), torch.ones(3)
    assert_same(compiled(double_in_place)(got), double_in_place(want))
    assert_same(got, want)


@pytest.mark.xfail(
    strict=True,
    reason="pytorch#191449: AOTAutograd returns one object for an output and a view of all of it; "
    "plain Inductor does the same (a mend is proposed in pytorch PR 191844)",
)
def test_27_output_and_its_view_are_two_objects(compiled):
    """pytorch#191449: two outputs that share memory are two tensors, as in eager mode."""

    def with_view(x):
        y = x + 1
        return y, y.view(y.shape)

    a, b = compiled(with_view)(torch.ones(4))
    assert a.data_ptr() == b.data_ptr()
    assert a is not b


def test_28_outputs_that_are_no_tensors(compiled):
    """pytorch PR 114955: None and numbers among the outputs keep their places."""
    got = compiled(lambda x: (None, x.sin(), None, 3))(torch.ones(2))
    assert got[0] is None
    assert got[2] is None
    assert got[3] == 3
