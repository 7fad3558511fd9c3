"""Memory that an entry keeps from call to call: never what somebody else holds."""

from __future__ import annotations

import gc

import torch

from torch_piecewise.run.buffers import Pool

from .harness import run_all
from .test_ranges import compiled, fn

BIG = torch.randn(512, 512)  # large enough to be kept


def test_a_result_is_never_changed_by_a_later_call():
    step = compiled(fn, ranges=2)
    first = step(BIG)
    kept, part = first.clone(), step(BIG + 1)[100:]
    held = part.clone()
    array = step(BIG + 2).numpy()
    storage, copied = (r := step(BIG + 4)).untyped_storage(), r.clone()
    del r
    seen = array.copy()
    for k in range(5):
        step(BIG + 10 + k)
    assert torch.equal(first, kept) and torch.equal(part, held) and (array == seen).all()
    assert torch.equal(torch.empty(0).set_(storage).view(512, 512), copied)


def test_memory_that_nobody_holds_is_used_again():
    step = compiled(fn, ranges=2)
    step(BIG)
    gc.collect()
    places = {step(BIG).data_ptr() for _ in range(5)}
    assert len(places) == 1


def test_what_is_dead_is_used_again_for_buffers_of_as_many_bytes():
    pool, cpu = Pool(), torch.device("cpu")
    first = pool.empty((256, 512), (512, 1), torch.float32, cpu)
    other = pool.empty((256, 512), (1, 256), torch.float32, cpu)
    place = first.data_ptr()
    assert other.data_ptr() != place
    del first
    again = pool.empty((512, 2, 256), (512, 256, 1), torch.bfloat16, cpu)
    assert again.data_ptr() == place and again.stride() == (512, 256, 1)
    assert again.dtype == torch.bfloat16


def test_memory_of_inference_mode_is_not_bound_to_it():
    step = compiled(fn, ranges=2)
    with torch.inference_mode():
        assert step(BIG).is_inference() and step(BIG).is_inference()
    with torch.no_grad():
        out = step(BIG)
    assert not out.is_inference()
    (out * torch.ones(1, requires_grad=True)).sum().backward()


def test_what_a_backward_has_saved_is_not_used_again():
    def bounded(x):
        return (x.sigmoid() * 2).tanh()

    step = compiled(bounded, ranges=2)
    x = BIG.clone().requires_grad_()
    out = step(x)
    for k in range(4):
        step((BIG + k).requires_grad_())
    out.backward(torch.ones_like(out))
    want = BIG.clone().requires_grad_()
    bounded(want).backward(torch.ones_like(out))
    torch.testing.assert_close(x.grad, want.grad)


def test_memory_that_others_may_have_is_not_used_again():
    """Another process may map what was shared; what was resized is other memory."""
    step = compiled(fn, ranges=2)
    shared = step(BIG)
    shared.share_memory_()
    place = shared.data_ptr()
    handle = shared.untyped_storage()._share_fd_cpu_()
    other = torch.UntypedStorage._new_shared_fd_cpu(*handle)
    mapped = torch.empty(0).set_(other, 0, (512, 512), (512, 1))
    kept = mapped.clone()
    del shared
    assert step(BIG + 1).data_ptr() != place and torch.equal(mapped, kept)
    freed = step(BIG)
    freed.untyped_storage().resize_(0)
    del freed
    torch.testing.assert_close(step(BIG + 2), fn(BIG + 2))


def test_threads_share_an_entry():
    step = compiled(fn, ranges=2)
    step(BIG)

    def work(k):
        x = BIG + k
        for _ in range(20):
            assert torch.equal(step(x), fn(x))

    run_all([lambda k=k: work(k) for k in range(4)])
