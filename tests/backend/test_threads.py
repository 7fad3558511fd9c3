"""Several threads compile and run at once, with this backend and with plain Inductor."""

import pytest
import torch
import torch.nn.functional as F

from .harness import compiled, plain, run_all, same_as_plain


def shift(by):
    return lambda x: torch.roll(x * by, by, 0) + F.pad(x, (by, -by))


def test_compiles_side_by_side():
    torch._dynamo.reset()
    x = torch.randn(64, 96)
    makers = [plain, compiled, lambda fn: compiled(fn, "seams"), lambda fn: compiled(fn, "off")]

    def task(make, by):
        fn = shift(by)
        call = make(fn)
        for _ in range(3):
            torch.testing.assert_close(call(x), fn(x))

    run_all([lambda m=m, by=by + 1: task(m, by) for by, m in enumerate(makers)])


def test_one_function_called_from_many_threads():
    torch._dynamo.reset()
    fn = shift(2)
    call = compiled(fn, "seams")

    def task(seed):
        x = torch.randn(64, 96, generator=torch.Generator().manual_seed(seed))
        for _ in range(20):
            assert torch.equal(call(x), fn(x))

    run_all([lambda s=s: task(s) for s in range(4)])


def test_backward_in_another_thread():
    """Backward compiles lazily, in the thread that asks for it."""
    torch._dynamo.reset()
    fn = shift(3)
    x = torch.randn(64, 96, requires_grad=True)
    out = compiled(fn, "seams")(x)
    run_all([lambda: out.square().sum().backward()])
    y = x.detach().clone().requires_grad_()
    fn(y).square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("threads", [1, 3])
def test_all_of_a_vector_is_added_to_one_place(threads):
    """In a piece the place of a scatter may be a constant, or the same for a whole vector."""

    def fn(x, at):
        return torch.zeros(10).index_add(0, F.pad(at, (20, 30), value=3), x.sin())

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        same_as_plain(fn, torch.randn(1000), torch.arange(950) % 10, exact=False)
    finally:
        torch.set_num_threads(before)
