"""Together with the rest of torch: functional transforms, optimizers, convolutions, attention."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torch_piecewise import explain

from .harness import SPLITS, Runs, compiled, plain, same_as_plain
from .table import CASES, FAST, groups, joined

X = (64, 96)


def wave(x):
    return torch.roll(x, 3, -1) * x + F.pad(x, (1, -1))


def test_functional_transforms():
    def fn(x, v):
        grads = torch.func.grad(lambda t: wave(t).square().sum())(x)
        mapped = torch.func.vmap(lambda row: torch.roll(row, 2) * 2 + F.pad(row, (1, -1)))(x)
        out, tangent = torch.func.jvp(wave, (x,), (v,))
        return grads, mapped, out, tangent

    same_as_plain(fn, torch.randn(X), torch.randn(X), exact=False)


def test_vmap_and_grad_over_a_compiled_function():
    torch._dynamo.reset()
    call, x = compiled(wave, "seams"), torch.randn(5, *X)
    torch.testing.assert_close(torch.func.vmap(call)(x), torch.func.vmap(wave)(x))


def test_compiled_inside_compiled():
    inner = compiled(wave, "seams")

    def outer(x):
        return inner(x) * 2 + torch.roll(x, 1, 0)

    torch._dynamo.reset()
    x = torch.randn(X)
    expected = wave(x) * 2 + torch.roll(x, 1, 0)
    torch.testing.assert_close(compiled(outer, "seams")(x), expected)


def test_compiled_optimizer_step():
    def steps(make):
        torch._dynamo.reset()
        params = [torch.full((96,), 0.5), torch.ones(64, 3)]
        optimizer = torch.optim.AdamW(params, 0.1)
        step = make(optimizer.step)
        for k in range(3):
            for p in params:
                p.grad = torch.roll(p, k, 0) - 0.3
            step()
        return params

    expected = steps(plain)
    for got, want in zip(steps(lambda f: compiled(f, "seams")), expected, strict=True):
        torch.testing.assert_close(got, want)


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1, padding_mode="circular")
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 8, 3, padding=2, dilation=2)

    def forward(self, x):
        y = F.silu(self.norm(self.first(x)))
        y = torch.cat([F.pad(self.second(y), (1, 0, 0, 1)), F.pad(y, (0, 1, 1, 0))], 1)
        return F.interpolate(F.avg_pool2d(y, 2, ceil_mode=True), scale_factor=2)


class Attention(nn.Module):
    def __init__(self, size=32):
        super().__init__()
        self.qkv = nn.Linear(size, 3 * size)
        self.bias = nn.Parameter(torch.randn(49) * 0.1)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        n = x.shape[1]
        i, j = torch.arange(n)[:, None], torch.arange(n)
        near = self.bias[(i - j).clamp(-24, 24) + 24]
        scores = q @ k.transpose(-1, -2) / 3 + near.masked_fill(j > i, float("-inf"))
        masked = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return (scores.softmax(-1) @ v + masked).transpose(1, 2).flatten(2)


MODULES = {"conv": (Conv, (2, 3, 20, 33)), "attention": (Attention, (2, 50, 32))}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("freezing", [False, pytest.param(True, marks=pytest.mark.long)])
def test_modules_in_inference(name, freezing):
    make, shape = MODULES[name]
    module, x = make().eval(), torch.randn(shape)
    runs = Runs(module, exact=False)
    options = {"freezing": freezing}
    with torch.no_grad():
        variants = runs(x, options=options)
        runs.check(variants, (torch.randn(shape),))


@pytest.mark.long
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_modules_in_training(name, dtype):
    make, shape = MODULES[name]
    start, x = make().to(dtype), torch.randn(shape).to(dtype)
    results = []
    for wrap in (plain, *(lambda m, s=s: compiled(m, s) for s in SPLITS)):
        torch._dynamo.reset()
        module, mine = copy.deepcopy(start), x.clone().requires_grad_()
        wrap(module)(mine).square().mean().backward()
        results.append([mine.grad, *(p.grad for p in module.parameters()), *module.buffers()])
    for got in results[1:]:
        torch.testing.assert_close(got, results[0], rtol=2e-2, atol=2e-3)


@pytest.mark.long
def test_compiled_autograd():
    def grads(make):
        torch._dynamo.reset()
        x = torch.ones(X).mul_(2).requires_grad_()
        with torch._dynamo.compiled_autograd._enable(make):
            wave(x * x).square().sum().backward()
        return x.grad

    expected = grads(lambda gm: gm)
    for make in (plain, lambda gm: compiled(gm, "seams")):
        torch.testing.assert_close(grads(make), expected)


def test_number_of_pieces():
    """Splits really happen: otherwise the other tests would prove nothing."""
    cases = [CASES[n] for n in ("pad", "crop", "roll_two", "stencil", "nested", "border")]
    args = tuple(a for case in cases for a in case.args())
    for options, wanted in (
        ({"split": "seams"}, [9, 4, 4, 9, 4, 9]),
        ({"split": "off"}, [1] * 6),
        ({"split": "seams", "max_pieces": 1}, [1] * 6),
    ):
        torch._dynamo.reset()
        nests = explain(joined(cases), args, options=options).nests
        assert [len(n.pieces) for n in nests] == wanted


@pytest.mark.parametrize("names", groups([n for n in FAST if CASES[n].exact], 3)[:1], ids="-".join)
def test_pieces_as_functions(names):
    cases = [CASES[name] for name in names]
    args = [a for i, case in enumerate(cases) for a in case.args(seed=i)]
    same_as_plain(joined(cases), *args, options={"piece_functions": True})
