"""Models in ranges of their batch: every graph cut whole, and rules for what they are made of."""

from __future__ import annotations

import pytest
import torch

import torch_piecewise
import torch_piecewise.graph.rules
from torch_piecewise.bench import models
from torch_piecewise.graph.axes import PARTIAL_RULES, find_rule, is_tensor, named

# rwkv's loop over the tokens is unrolled, and takes minutes to compile once
MODELS = [m for m in models.MODELS if m.name != "rwkv"]

pytestmark = pytest.mark.long


def built(model):
    module, inputs = model.build()
    return module, tuple(x.repeat(6 // len(x), *[1] * (x.ndim - 1)) for x in inputs)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("model", models.MODELS, ids=lambda m: m.name)
def test_in_three_ranges(model):
    module, inputs = built(model)
    with torch.no_grad():
        torch._dynamo.reset()
        compiled = torch.compile(module, backend="piecewise", options={"ranges": 3})
        got, want = compiled(*inputs), module(*inputs)
        found = torch_piecewise.explain(module, inputs, options={"ranges": 3})
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3 * want.abs().max().item())
    regions = [region for plan in found.plans for region in plan.regions]
    assert any(region.cut for region in regions)
    left = {reason.code for region in regions for reason in region.left}
    # whole: of weights alone, and where rwkv writes to a buffer
    assert left <= ({"mutation"} if model.name == "rwkv" else set())


# one of the graphs of basic_unet is a convolution alone: no loop of Inductor's
WITH_LOOPS = [m for m in MODELS if m.name != "basic_unet"]


@pytest.mark.parametrize("model", WITH_LOOPS, ids=lambda m: m.name)
def test_in_three_ranges_inside_the_kernels(model):
    module, inputs = built(model)
    options = {"ranges": 3, "stitch": "loops"}
    with torch.no_grad():
        torch._dynamo.reset()
        compiled = torch.compile(module, backend="piecewise", options=options)
        got, want = compiled(*inputs), module(*inputs)
        found = torch_piecewise.explain(module, inputs, options=options)
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3 * want.abs().max().item())
    cut = [nest.reason.code == "ranges" for nest in found.nests]
    assert sum(cut) > 0.7 * len(cut)  # others have nothing of the batch, but weights


def test_nine_in_ten_operators_have_a_rule(monkeypatch):
    import torch_piecewise.inductor.composite as composite

    seen, missing = 0, []

    def count(graph):
        nonlocal seen
        for node in graph.nodes:
            if node.op == "call_function" and is_tensor(node):
                seen += 1
                if find_rule(node) is None and node.target not in PARTIAL_RULES:
                    missing.append(named(node))
        raise _Counted

    monkeypatch.setattr(composite, "normalise", count)
    monkeypatch.setattr(torch._inductor.config, "force_disable_caches", True)  # look at each graph
    for model in models.MODELS:
        module, inputs = built(model)
        torch._dynamo.reset()
        with torch.no_grad(), pytest.raises(Exception, match="_Counted"):
            torch.compile(module, backend="piecewise", options={"ranges": 3})(*inputs)
    assert seen > 1000 and len(missing) < seen / 10, missing


class _Counted(Exception):
    pass
