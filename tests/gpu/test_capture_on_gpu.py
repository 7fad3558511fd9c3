"""Graphs in ranges on a GPU, pieces captured as one CUDA graph. Skipped where there is no GPU."""

from __future__ import annotations

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache

import torch_piecewise

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: torch.cuda.is_available() is False"
)

CAPTURED = {"ranges": [0, 200, 512, None], "mode": "reduce-overhead"}


def compiled(fn, dynamic=False, **options):
    torch._dynamo.reset()
    counters.clear()
    options = {**CAPTURED, **options}
    return torch.compile(fn, backend="piecewise", options=options, dynamic=dynamic)


def fn(x, w):
    x = torch.relu(x @ w) * 2 + 1
    return torch.softmax(x, 1), x.sum(0), x - x.mean(0)


def inputs(size=1000):
    return torch.randn(size, 256, device="cuda"), torch.randn(256, 128, device="cuda")


def agree(got, want):
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)


def test_several_calls_are_equal_and_replayed():
    step = compiled(fn)
    for _ in range(5):  # the first warms up, the second records
        given = inputs()
        agree(step(*given), fn(*given))
    assert counters["inductor"]["cudagraph_skips"] == 0
    shown = str(torch_piecewise.explain(fn, inputs(), options=CAPTURED))
    assert "all pieces are captured as one CUDA graph" in shown


def test_one_replay_a_call_and_no_more_memory():
    step, given = compiled(fn), inputs()
    for _ in range(3):
        step(*given)
    torch.cuda.synchronize()
    gc.collect()
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    places = set()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        for _ in range(10):
            places.add(step(*given)[0].data_ptr())
    torch.cuda.synchronize()
    gc.collect()
    after = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    assert after == before and len(places) == 1
    names = [event.name for event in seen.events()]
    assert names.count("cudaGraphLaunch") in (0, 10)  # 0 where the runtime isn't traced
    assert not any("aten::empty_strided" in name for name in names)


def test_what_was_cloned_is_never_changed_by_a_later_call():
    step, given = compiled(fn), inputs()
    kept = [tuple(each.clone() for each in step(*given)) for _ in range(4)]
    step(*(each * 3 for each in given))
    for each in kept:
        agree(each, fn(*given))


@pytest.mark.parametrize("captured", [True, False])
def test_training(captured):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(256, 64), nn.GELU(), nn.LayerNorm(64)).cuda()
    same = nn.Sequential(nn.Linear(256, 64), nn.GELU(), nn.LayerNorm(64)).cuda()
    same.load_state_dict(module.state_dict())
    step = compiled(module, **({} if captured else {"mode": None}))
    for k in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.randn(1000, 256, device="cuda")
        for each, call in ((module, step), (same, same)):
            loss = F.mse_loss(call(x), x[:, :64])
            loss.backward()
            with torch.no_grad():
                for p in each.parameters():
                    p -= 0.1 * p.grad
                    p.grad = None
        agree([*module.parameters()], [*same.parameters()])
        assert k or counters["inductor"]["cudagraph_skips"] == 0


def test_sizes_that_are_not_known():
    step = compiled(fn, dynamic=True)
    for size in (1000, 900, 1000, 900, 640):
        given = inputs(size)
        agree(step(*given), fn(*given))


def test_an_input_that_is_written_to():
    def writes(x, w):
        y = torch.relu(x) * 2
        w.add_(1)
        return y

    step = compiled(writes)
    given = inputs()
    own = tuple(each.clone() for each in given)
    for _ in range(4):
        agree(step(*given), writes(*own))
        agree(given, own)


def test_a_graph_with_a_tensor_on_the_cpu_says_why_not():
    def both(x, y):
        return torch.relu(x) * 2, y.sin()

    x, y = torch.randn(1000, 256, device="cuda"), torch.randn(1000, 256)
    agree(compiled(both)(x, y), both(x, y))
    assert counters["inductor"]["cudagraph_skips"] >= 1
    shown = str(torch_piecewise.explain(both, (x, y), options=CAPTURED))
    assert "not captured as a CUDA graph" in shown and "cpu device" in shown


@pytest.mark.parametrize("captured", [True, False])
def test_from_the_cache(captured):
    how = {} if captured else {"mode": None}
    with fresh_cache():
        given = inputs()
        for hits in (0, 1):
            step = compiled(fn, **how)
            for _ in range(3):
                agree(step(*given), fn(*given))
            assert counters["aot_autograd"]["autograd_cache_hit"] == hits
            assert counters["inductor"]["cudagraph_skips"] == 0
