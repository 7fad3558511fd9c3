"""Code of which Dynamo captures only parts."""

from __future__ import annotations

import torch

from .close import assert_same


def test_40_graph_break(compiled):
    """pytorch#102053, hidet#431: both sides of a graph break are compiled, and joined."""

    def broken(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    x = torch.randn(3)
    assert_same(compiled(broken)(x), broken(x))
