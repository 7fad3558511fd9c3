"""Graphs drawn from what has rules, in ranges that are drawn, forward and backward, of any size."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F

ROWS, COLUMNS = 12, 10

# each keeps the shape [rows, COLUMNS]; `w` is square in the columns, `v` in the rows
STEPS = {
    "gelu": lambda x, w, v: F.gelu(x),
    "times": lambda x, w, v: x * v[:, :1] + x[:1],
    "product": lambda x, w, v: x @ w,
    "product from the left": lambda x, w, v: v @ x / x.shape[0],
    "softmax": lambda x, w, v: torch.softmax(x, 1),
    "softmax over the rows": lambda x, w, v: torch.softmax(x, 0),
    "layer_norm": lambda x, w, v: F.layer_norm(x, (COLUMNS,)),
    "mean of the rows": lambda x, w, v: x - x.mean(0, keepdim=True),
    "deviation": lambda x, w, v: x / (1 + x.var(0)),
    "largest": lambda x, w, v: x - x.amax(1, keepdim=True),
    "running sum": lambda x, w, v: x.cumsum(1) / COLUMNS,
    "rolled": lambda x, w, v: x.roll(5, 0) + x.roll(-1, 1),
    "padded": lambda x, w, v: F.pad(x, (1, 0, 2, 1))[3:, 1:] * 0.5,
    "joined": lambda x, w, v: torch.cat([x[7:], x[:7] * 2], 0),
    "flipped": lambda x, w, v: x.flip(0),
    "transposed": lambda x, w, v: (x.t() * 2).t(),
    "views": lambda x, w, v: (x.view(-1, 2, 5) * 2).view(-1, COLUMNS),
    "split": lambda x, w, v: torch.cat(x.split(5, 1)[::-1], 1),
    "masked": lambda x, w, v: x.masked_fill(torch.arange(x.shape[0])[:, None] % 5 == 2, 0.25),
    "taken": lambda x, w, v: x[:, torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3])],
    "convolved": lambda x, w, v: F.conv1d(x[None], v[:, :, None] / x.shape[0])[0],
    "neighbours": lambda x, w, v: F.avg_pool2d(x[None], 3, 1, 1)[0],
    "convolved in planes": lambda x, w, v: F.conv2d(
        x[None, None], w[None, None, :3, :3], padding=1
    )[0, 0],
    "as one line": lambda x, w, v: F.conv1d(x[:, None], w[:1, None, :3], padding=1)[:, 0],
    "contracted": lambda x, w, v: x @ torch.tanh(x.t() @ x / x.shape[0]),
    "contracted and added": lambda x, w, v: x @ torch.addmm(w, x.t(), v @ x, alpha=0.01).tanh(),
    "attention": lambda x, w, v: attended(x, x @ w, causal=False),
    "causal attention": lambda x, w, v: attended(x, x @ w, causal=True),
    "best of the rows": lambda x, w, v: x + x.max(0)[0],
    "place of the best": lambda x, w, v: x * (1 + x.argmin(0)),
    "product of the rows": lambda x, w, v: x / (1 + x.sigmoid().prod(0)),
    "range of the rows": lambda x, w, v: torch.stack([x, x.amax(0) - x.amin(0) + x])[1],
    "length": lambda x, w, v: F.normalize(x, dim=0),
    "in the wide": lambda x, w, v: torch.logsumexp(x, 0) - x,
    "gathered": lambda x, w, v: x.gather(1, x.detach().argsort(1)),
    "largest of neighbours": lambda x, w, v: F.max_pool2d(x[None], 3, 1, 1)[0],
    "picked": lambda x, w, v: torch.where(x > x.mean(0), x, v[:, :1]),
    "twice": lambda x, w, v: x.repeat(2, 1)[: x.shape[0]] * 0.5,
    "set": lambda x, w, v: torch.cat([x[:1] * 3, torch.slice_scatter(x, x[:2], 0, 1, 3)])[1:],
}


def attended(x, y, causal):
    """Two heads."""
    q, k = (each.view(1, -1, 2, 5).transpose(1, 2) for each in (x, y))
    out = F.scaled_dot_product_attention(q, k, q, is_causal=causal)
    return out.transpose(1, 2).reshape(x.shape)


def drawn(number):
    rng = random.Random(number)
    steps = [STEPS[rng.choice(list(STEPS))] for _ in range(rng.randint(2, 6))]
    side = rng.random() < 0.3

    def fn(x, w, v):
        kept = x
        for k, step in enumerate(steps):
            x = step(x, w, v)
            if k == 1:
                kept = x
        x = x + kept
        return (x, x.sum(0)) if side else x

    ranges = rng.choice([2, 3, 5, [0, 1, 7, None], [0, 12], [0, 6, 11, 12], [0.0, 0.3, 1.0]])
    return fn, ranges, rng.choice([0, 0, 1, -1])


def results(fn, args):
    own = [a.detach().clone().requires_grad_() for a in args]
    found = fn(*own)
    values = list(found) if isinstance(found, tuple) else [found]
    entering = torch.linspace(-1, 1, args[0].numel()).view(args[0].shape)
    gradients = torch.autograd.grad(values[0], own, entering, allow_unused=True)
    return [*values, *(g for g in gradients if g is not None)]


def check(number, rows=(ROWS,)):
    """Whether a drawn graph was cut; with several numbers of rows it is compiled for any."""
    fn, ranges, dim = drawn(number)
    fixed = isinstance(ranges, list) and 12 in ranges
    if fixed and (dim in (1, -1) or len(rows) > 1):
        ranges = 4
    generator = torch.Generator().manual_seed(number)
    torch._dynamo.reset()
    options = {"ranges": ranges, "dim": dim}
    step = torch.compile(fn, backend="piecewise", options=options, dynamic=len(rows) > 1)
    for size in rows:
        shapes = ((size, COLUMNS), (COLUMNS, COLUMNS), (size, size))
        args = [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes]
        try:
            got = results(step, args)
        except Exception as error:
            if "is in the way" in str(error):
                return False
            raise
        for a, b in zip(got, results(fn, args), strict=True):
            torch.testing.assert_close(a, b)
    return True


@pytest.mark.parametrize("block", range(2))
def test_drawn_graphs(block):
    cut = [check(number) for number in range(5 * block, 5 * block + 5)]
    assert sum(cut) >= 1  # what can't be cut says so; most of the rest is


def test_drawn_graphs_of_any_size():
    assert sum(check(number, rows=(12, 19)) for number in (1000, 1016)) == 2


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_many_drawn_graphs_of_any_size(block):
    for number in range(1004 + 8 * block, 1012 + 8 * block):
        check(number, rows=(12, 19, 30))


@pytest.mark.long
@pytest.mark.parametrize("block", range(2, 40))
def test_many_drawn_graphs(block):
    for number in range(8 * block, 8 * block + 8):
        check(number)
