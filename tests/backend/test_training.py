"""Gradients: forward and backward are cut, and give what plain Inductor gives."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from .harness import SPLITS, assert_near, assert_same, clone, compiled, plain, seeded
from .table import CASES, groups, joined

FAST = ["pad", "roll_two", "nested", "softmax"]
DIFFERENTIABLE = [case.name for case in CASES.values() if case.grad]


def gradients(fn, args):
    """Results of `fn` and the gradients of its arguments, for fixed random weights."""
    args = [a.detach().requires_grad_() for a in clone(args)]
    out = [o for o in torch.utils._pytree.tree_leaves(fn(*args)) if o.requires_grad]
    rng = torch.Generator().manual_seed(3)
    weights = [torch.randn(o.shape, generator=rng).to(o.dtype) for o in out]
    return out, list(torch.autograd.grad(out, args, weights, allow_unused=True))


def check_gradients(names, dtype, splits=("seams",)):
    cases = [CASES[name] for name in names]
    fn = joined(cases)
    args = [a for i, case in enumerate(cases) for a in case.args(dtype, seed=i)]
    torch._dynamo.reset()
    expected = gradients(plain(fn), args)
    for split in splits:
        got = gradients(compiled(fn, split), args)
        assert_same(got, expected, exact=False, what=f"{names} {split}")
        assert_near(got, gradients(fn, args), f"{names} {split}")


@pytest.mark.parametrize("names", groups(FAST, 4), ids="-".join)
def test_fast(names):
    check_gradients(names, torch.float32)


@pytest.mark.long
@pytest.mark.parametrize("names", groups(DIFFERENTIABLE, 4), ids="-".join)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_wide(names, dtype):
    if names := [name for name in names if CASES[name].takes(dtype)]:
        check_gradients(names, dtype, SPLITS)


class Net(nn.Module):
    """Padding by hand, a shift, a join, tied weights, running statistics, dropout."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 24)
        self.norm = nn.BatchNorm1d(24)
        self.mix = nn.Linear(48, 24)
        self.out = nn.Linear(24, 40, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("scale", torch.full((24,), 0.5))

    def forward(self, index):
        x = self.embed(index)
        x = torch.cat([F.pad(x[:, :-1], (0, 0, 1, 0)), x * self.scale], -1)
        x = self.norm(self.mix(x).transpose(1, 2)).transpose(1, 2)
        return self.out(torch.roll(F.dropout(x, 0.1, self.training), 1, 1) + x)


def train(module, call, steps=3):
    """A few steps; the losses, and afterwards all state."""
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        index = torch.randint(0, 40, (8, 16), generator=torch.Generator().manual_seed(step))
        loss = seeded(lambda i=index: F.cross_entropy(call(i).flatten(0, 1), i.flatten()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, dict(module.state_dict())


def test_module_trains_as_under_plain():
    torch._dynamo.reset()
    start = Net()
    module = copy.deepcopy(start)
    expected = train(module, plain(module))
    for split in ("seams",):
        module = copy.deepcopy(start)
        call = compiled(module, split)
        got = train(module, call)
        torch.testing.assert_close(got, expected)
        assert module.out.weight is module.embed.weight
        assert {k.removeprefix("_orig_mod.") for k in call.state_dict()} == set(got[1])
        module.eval()
        index = torch.arange(32).view(2, 16)
        with torch.no_grad():
            torch.testing.assert_close(call(index), module(index))
            module.scale.mul_(2)  # no stale constants
            torch.testing.assert_close(call(index), module(index))


def twice(x, w):
    y = torch.roll(x * w, 1, 1) + F.pad(x * x, (1, -1))
    return y, y * 2


def test_backward_twice_and_retained():
    torch._dynamo.reset()
    results = []
    for fn in (plain(twice), compiled(twice), compiled(twice, "seams"), twice):
        x, w = (torch.ones(64, 96).mul_(k).requires_grad_() for k in (2, 3))
        first, second = fn(x, w)
        first.sum().backward(retain_graph=True)
        second.sum().backward()
        again, _ = fn(x, w)
        again.mean().backward()
        with pytest.raises(RuntimeError, match="second time"):
            again.mean().backward()
        results.append((first, second, x.grad, w.grad))
    for got in results[1:-1]:
        assert_same(got, results[0], exact=False)
        assert_near(got, results[-1])


def test_grad_modes_and_partial_gradients():
    torch._dynamo.reset()
    x, w = torch.randn(64, 96), torch.randn(64, 96)
    calls = {split: compiled(twice, split) for split in SPLITS} | {"plain": plain(twice)}
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        for needs in ((False, True), (True, False)):
            args = [a.clone().requires_grad_(n) for a, n in zip((x, w), needs, strict=True)]
            with mode():
                results = {name: call(*args) for name, call in calls.items()}
            for split in SPLITS:
                assert_same(results[split], results["plain"], what=f"{split} {mode} {needs}")
                assert results[split][0].is_inference() == results["plain"][0].is_inference()


def test_custom_function_and_checkpoint():
    from torch.utils.checkpoint import checkpoint

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return F.pad(x, (1, 2)) * 2

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad[:, 1:-2] * 3 + torch.roll(x, 1, 0)

    def fn(x):
        return Scale.apply(x) + checkpoint(lambda t: F.pad(t.sin(), (2, 1)), x, use_reentrant=False)

    torch._dynamo.reset()
    args = [torch.randn(64, 96)]
    expected = gradients(plain(fn), args)
    assert_same(gradients(compiled(fn, "seams"), args), expected, exact=False)
    assert_near(expected, gradients(fn, args))
