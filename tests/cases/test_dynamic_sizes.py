"""Sizes that change from call to call."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from .close import assert_same


def test_30_one_compile_for_a_marked_range(backend):
    """pytorch#129423, #135005: mark_dynamic(min=, max=) gives one compile for the whole range."""

    def double(x):
        return (x * 2).relu()

    counter = CompileCounterWithBackend(backend)
    run = torch.compile(double, backend=counter)
    x = torch.randn(4, 3)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=8)
    assert_same(run(x), double(x))
    for rows in (2, 6, 8):
        x = torch.randn(rows, 3)
        assert_same(run(x), double(x))
    assert counter.frame_count == 1


def test_31_specialised_dynamic_size_is_an_error(compiled):
    """pytorch#136002, #152918: code that fixes a size marked dynamic raises and says so."""

    def special(x):
        return x * 2 if x.size(0) == 5 else x + 1

    x = torch.randn(5)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(Exception, match="(?i)constraint"):
        compiled(special)(x)


def test_32_sizes_that_depend_on_data(compiled):
    """pytorch#172728, #117461: nonzero gives an unbacked size."""

    def pick(x):
        return x[x.nonzero().squeeze(1)].sin()

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        run = compiled(pick)
        for x in (torch.tensor([0.0, 1.0, 2.0]), torch.tensor([3.0, 0.0, 4.0])):
            assert_same(run(x), pick(x))
