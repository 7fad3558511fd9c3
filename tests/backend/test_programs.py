"""Random programs of boundary operations on integers: equal to eager, bit for bit."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import arange, cat, where
from torch._inductor.exc import InductorError

from .harness import compiled, plain
from .table import put
from .test_conditions import CHEAP, CONDITIONS

LARGEST = 120  # sizes stay below this


def index_like(n, dim):
    return arange(n)[:, None] if dim == 0 else arange(n)


def pad(rng, x):
    by = [rng.randint(-2, 5) for _ in range(4)]
    value = rng.randint(-3, 3)
    return lambda x: F.pad(x, by, value=value)


def roll(rng, x):
    by, dims = rng.choice([(rng.randint(-9, 9), rng.choice((0, 1))), ((2, -3), (0, 1))])
    return lambda x: torch.roll(x, by, dims)


def cut(rng, x):
    start, step, dim = rng.randint(0, 4), rng.choice((1, 1, 2, 3)), rng.choice((0, 1))
    return (lambda x: x[start::step]) if dim == 0 else (lambda x: x[:, start::step])


def turn(rng, x):
    return rng.choice((lambda x: x.t(), lambda x: x.flip(0), lambda x: x.flip(1)))


def choose(rng, x):
    name, dim = rng.choice(CHEAP), rng.choice((0, 1))

    def run(x):
        chosen = CONDITIONS[name](arange(x.shape[dim]))
        return where(chosen[:, None] if dim == 0 else chosen, x * 2, x + 1)

    return run


def box(rng, x):
    low, high = rng.randint(0, 9), rng.randint(5, 30)
    return lambda x: where(
        (index_like(x.shape[0], 0) >= low) & (index_like(x.shape[1], 1) < high), x, -x
    )


def join(rng, x):
    dim, most = rng.choice((0, 1)), rng.randint(1, 9)
    if dim == 0:
        return lambda x: cat([x * 2, x[:most] + 1, x])
    return lambda x: cat([x * 2, x[:, :most] + 1, x], 1)


def pick(rng, x):
    slope, offset, kind = rng.choice((1, 1, 2, 3)), rng.randint(-9, 9), rng.choice("wc")

    def run(x):
        n = x.shape[1]
        at = arange(n) * slope + offset
        return x[:, at % n if kind == "w" else at.clamp(0, n - 1)] + x

    return run


def assign(rng, x):
    start, stop, step = rng.randint(0, 5), rng.randint(6, 40), rng.choice((1, 2, 3))
    where = rng.choice((slice(start, stop, step), (slice(None), slice(start, stop, step))))
    return lambda x: put(x, where, 7) * 3


def overlap(rng, x):
    a, b = rng.randint(0, 5), rng.randint(0, 5)

    def run(x):
        left, right = F.pad(x, (a, 0, 0, b)), F.pad(x, (0, a, b, 0))
        return left * 2 - right

    return run


def reduce(rng, x):
    dim, kind = rng.choice((0, 1)), rng.choice(("sum", "amax", "amin", "argmax"))
    return lambda x: x - getattr(x, kind)(dim, keepdim=True)


def fold(rng, x):
    return lambda x: x.reshape(x.shape[1], x.shape[0]) + 1


def repeat(rng, x):
    return rng.choice((lambda x: x.repeat(1, 2), lambda x: x.repeat_interleave(2, 1)))


def narrow(rng, x):
    dtype = rng.choice((torch.int32, torch.int16, torch.uint8, torch.float64))
    return lambda x: (x.to(dtype) + 3).to(torch.int64)


STEPS = [pad, roll, cut, turn, choose, box, join, pick, assign, overlap, reduce, fold, repeat]
STEPS += [narrow, pad, roll, choose, overlap]  # more often


def program(seed, length=5):
    """A function of a matrix and an argument for it; its steps are valid for that argument."""
    rng = random.Random(seed)
    x = torch.randint(-9, 10, (rng.randint(8, 50), rng.randint(8, 50)))
    steps, y, names = [], x, []
    while len(steps) < length:
        make = rng.choice(STEPS)
        step = make(rng, y)
        try:
            new = step(y)
        except (RuntimeError, IndexError):
            continue
        if 0 < new.numel() and max(new.shape) <= LARGEST:
            steps.append(step)
            names.append(make.__name__)
            y = new & 1023
    kept = rng.randrange(length)

    def run(x):
        results = []
        for number, step in enumerate(steps):
            x = step(x) & 1023
            if number == kept:
                results.append(x)
        return [*results, x]

    return run, x, names


def differing(seeds, split="seams"):
    """The seeds whose program gives something else than eager; all are compiled together."""
    torch._dynamo.reset()
    made = [program(seed) for seed in seeds]
    args = [x for _, x, _ in made]

    def together(*xs):
        return [f(x) for (f, _, _), x in zip(made, xs)]

    try:
        results = compiled(together, split, options={"max_pieces": 40})(*args)
    except Exception:
        if len(seeds) > 1:
            return [wrong for seed in seeds for wrong in differing([seed], split)]
        torch._dynamo.reset()
        with pytest.raises(InductorError):  # only what plain Inductor can't compile either
            plain(together)(*args)
        return []
    return [
        (seed, names)
        for seed, (_, _, names), got, want in zip(seeds, made, results, together(*args))
        if not all(a.equal(b) and a.stride() == b.stride() for a, b in zip(got, want))
    ]


@pytest.mark.parametrize("first", [0])
def test_a_few(first):
    assert differing(range(first, first + 2)) == []


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 1120, 6))
@pytest.mark.parametrize("split", ["auto", "seams"])
def test_many(first, split):
    assert differing(range(first, first + 6), split) == []
