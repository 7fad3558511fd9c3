"""Small functions over a boundary, one line each: pads, shifts, masks, joins, index arithmetic.

A case runs in every dtype, with gradients, and with symbolic sizes. `A` and `B` are shapes of its
arguments; sizes are large enough for splits, and odd in one case of two so that vectors have tails.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import arange, cat, roll, where

A, B, C = (64, 96), (130, 70), (2, 6, 20, 34)


@dataclass(frozen=True)
class Case:
    name: str
    fn: Callable
    shapes: tuple[tuple[int, ...], ...]
    exact: bool = True  # elementwise: bits equal plain Inductor's
    kind: str = "any"  # "float", "int", "signed" or "any": the dtypes that it is made for
    grad: bool = True  # has a gradient
    sizes: bool = True  # works for other sizes too
    joins: bool = False  # a concatenation: fused, it is not rounded to half precision between

    def exact_in(self, dtype):
        return self.exact and not (self.joins and dtype in (torch.float16, torch.bfloat16))

    def takes(self, dtype):
        small = dtype in (torch.bool, torch.uint8)
        return {
            "any": dtype != torch.bool,
            "all": True,
            "float": dtype.is_floating_point,
            "int": not dtype.is_floating_point and dtype != torch.bool,
            "signed": not small,
        }[self.kind]

    def args(self, dtype=torch.float32, grow=0, seed=0):
        """Fresh arguments; `grow` makes every size of at least 8 larger."""
        rng = torch.Generator().manual_seed(seed)
        shapes = [[n + grow if n >= 8 else n for n in shape] for shape in self.shapes]
        return tuple(tensor(shape, dtype, rng) for shape in shapes)


def tensor(shape, dtype=torch.float32, rng=None):
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=rng).to(dtype)
    low, high = {torch.bool: (0, 2), torch.uint8: (0, 9)}.get(dtype, (-5, 6))
    return torch.randint(low, high, shape, generator=rng, dtype=torch.int64).to(dtype)


def summed(x):
    at = (rows(x) * columns(x)) % 50
    return torch.zeros_like(x).scatter_add(1, at, x) + F.pad(x, (1, -1))


def swapped(x):
    pairs = x.view(x.shape[0] // 2, 2, -1)
    return pairs.transpose(0, 1).reshape(x.shape) * 2 + x


def put(x, index, value):
    """x with x[index] = value"""
    y = x.clone()
    y[index] = value
    return y


def line(x):
    return arange(x.shape[-2])


def rows(x):
    return line(x)[:, None]


def columns(x):
    return arange(x.shape[-1])


def stencil(x):
    near = roll(x, 1, 0) + roll(x, -1, 0) + roll(x, 1, 1) + roll(x, -1, 1)
    return near - 4 * x


def rotary(x):
    half = x.shape[-1] // 2
    return x * 3 + cat([-x[..., half:], x[..., :half]], -1)


def halves(x):
    return cat([x[:, x.shape[1] // 2 :] * 2, x[:, : x.shape[1] // 2] + 1], 1)


def border(x):
    """the inner part and the border are two formulas"""
    i, j = rows(x), columns(x)
    inner = (i >= 1) & (i < x.shape[0] - 1) & (j >= 1) & (j < x.shape[1] - 1)
    return where(inner, x * 2, x + 1)


def nested(x):
    j = columns(x)
    return where(j < 30, where(j < 10, x, x * 2), where(j >= x.shape[1] - 7, x + 3, x * 4))


def clamped(x):
    at = (columns(x) - 3).clamp(0, x.shape[1] - 1)
    return x[:, at] + x


def wrapped(x):
    at = (columns(x) + 5) % x.shape[1]
    return x[:, at] * 2 + x


def causal(x):
    keep = columns(x) <= rows(x)
    return x.masked_fill(~keep, float("-inf")).softmax(-1)


def window(x):
    taper = where(columns(x) < 8, columns(x), 8)
    return x * taper


def laplace(x):
    p = F.pad(x, (1, 1, 1, 1))
    return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * x


def upwind(x):
    left = cat([x[:, :1], x[:, :-1]], 1)
    return where(x > 0, x - left, left * 2)


def blocks(x):
    """each run of 4 columns takes another formula"""
    j = columns(x)
    return where((j // 4) % 2 == 0, x, x * 2)


FLOAT, SIGNED = {"kind": "float"}, {"kind": "signed"}
NEAR, LOOSE = {"exact": False}, {"kind": "float", "exact": False}
FLAT = {"grad": False}
NAN = float("nan")

# fmt: off
CASES = {c.name: c for c in [
    # pads
    Case("pad", lambda x: F.pad(x, (2, 3, 1, 4), value=2) * 2 + 1, (A,), kind="all"),
    Case("pad_odd", lambda x: F.pad(x, (5, 0, 0, 3)) + 1, (B,)),
    Case("pad_add", lambda x: F.pad(x, (1, 0)) + F.pad(x, (0, 1)), (B,)),
    Case("crop", lambda x: F.pad(x, (-2, 3, 4, -5), value=1) * 2, (A,)),
    Case("pad_reflect", lambda x: F.pad(x[None], (3, 2), mode="reflect") * 2, (A,), **FLOAT),
    Case("pad_replicate", lambda x: F.pad(x[None], (3, 2), mode="replicate") + 1, (B,), **FLOAT),
    Case("pad_circular", lambda x: F.pad(x[None], (3, 2), mode="circular") + 1, (A,)),
    Case("pad_twice", lambda x: F.pad(F.pad(x, (1, 2), value=1) + 1, (2, 1, 1, 1)) * 2, (A,)),
    Case("pad_view", lambda x: F.pad(x, (1, 1)).view(-1) * 2, (A,)),
    Case("pad_transposed", lambda x: F.pad(x.t(), (1, 2, 3, 4)) + 1, (B,)),
    Case("pad_4d", lambda x: F.pad(x, (1, 1, 2, 2)) * 2 + 1, (C,)),
    Case("laplace", laplace, (B,)),
    # shifts
    Case("roll", lambda x: roll(x, 3, 0) + x, (A,), **SIGNED),
    Case("roll_flat", lambda x: roll(x, 7) * 2 + x, (B,)),
    Case("roll_two", lambda x: roll(x, (3, -5), (0, 1)) * 2 + x, (B,)),
    Case("stencil", stencil, (A,), **SIGNED),
    Case("wrapped", wrapped, (B,)),
    Case("flip", lambda x: x.flip(0) - x.flip(1), (A,), **SIGNED),
    Case("diff", lambda x: torch.diff(x, dim=0, prepend=x[:1]) + x, (B,), **SIGNED),
    Case("clamped", clamped, (A,)),
    # joins
    Case("cat_rows", lambda x, y: cat([x * 2, y + 1]) * 3, (A, A), joins=True, **SIGNED),
    Case("cat_columns", lambda x, y: cat([x, y[:, :11], x * 2], 1) + 1, (B, B), joins=True),
    Case("cat_add", lambda x, y: cat([x, y], 1) + cat([y, x], 1), (A, A), joins=True),
    Case("stack", lambda x, y: torch.stack([x, y * 2, x + y], 1) + 1, (B, B), joins=True),
    Case("rotary", rotary, (A,), **SIGNED),
    Case("halves", halves, (B,)),
    Case("tile", lambda x: x.repeat(2, 3) * 2 + 1, (A,)),
    Case("repeat", lambda x: x.repeat_interleave(3, 1) * 2, (A,)),
    Case("cat_bool", lambda x, y: cat([x > 0, y <= 1], 1) ^ cat([y > 1, x < 0], 1), (A, A), **FLAT),
    # masks
    Case("where", lambda x: where(columns(x) < 40, x * 2, x + 1), (A,)),
    Case("where_other", lambda x, y: where(rows(x) >= 100, x, y * 2), (B, B)),
    Case("nested", nested, (A,)),
    Case("border", border, (B,)),
    Case("window", window, (B,)),
    Case("blocks", blocks, (A,)),
    Case("upwind", upwind, (A,), **SIGNED),
    Case("tril", lambda x: x.tril(2) + x.triu(-3) * 2, (B,)),
    Case("fill", lambda x: x.masked_fill(columns(x) % 7 == 3, 0) + 1, (A,)),
    Case("not_last", lambda x: where(columns(x) != x.shape[1] - 1, x, 0) * 2, (B,)),
    # assignments
    Case("assign", lambda x: put(x, slice(3, 20), 1) * 2, (A,)),
    Case("assign_step", lambda x: put(x, (slice(1, None, 3), slice(0, None, 2)), 2) + 1, (B,)),
    Case("assign_row", lambda x, y: put(x, (slice(None), 5), y[:, 3]) * 2, (A, A)),
    Case("assign_twice", lambda x: put(put(x, slice(9), 1), (..., slice(60, None)), 2) + x, (A,)),
    Case("slice_scatter", lambda x, y: x.slice_scatter(y[:30] * 2, 0, 10, 40) + 1, (A, A)),
    Case("diagonal", lambda x, y: x.diagonal_scatter(y.diagonal() * 2) + 1, (A, A)),
    # index arithmetic
    Case("swap", swapped, (A,), sizes=False),
    Case("reshape", lambda x: x.t().reshape(x.shape) * 2 + x, (A,)),
    Case("unfold", lambda x: x.unfold(1, 5, 3) * 2 + 1, (B,)),
    Case("unfold_padded", lambda x: F.unfold(x, 3, padding=1) * 2 + 1, (C,), **FLOAT),
    Case("shuffle", lambda x: F.pixel_shuffle(x[:, :4], 2) * 2, (C,)),
    Case("diag", lambda x: torch.diag_embed(x[:20, :20], 1) + 1, (A,), sizes=False),
    Case("nearest", lambda x: F.interpolate(x, scale_factor=2, mode="nearest") * 2, (C,), **FLOAT),
    Case("bilinear", lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"), (C,), **LOOSE),
    Case("strided", lambda x: x[::2, 1::3] * 2 + 1, (B,)),
    # indirect
    Case("embed", lambda x: F.pad(x[(line(x) * 7) % 64], (2, 1)) * 2, (A,)),
    Case("gather", lambda x: F.pad(x, (1, 1)).gather(1, (rows(x) + columns(x)) % 50) * 2, (B,)),
    Case("scatter_add", summed, (A,), **NEAR),
    Case("index_add", lambda x: x.index_add(0, (line(x) * 3) % 10, x), (A,), **NEAR),
    Case("add_padded", lambda x: x.index_add(0, line(x) % 7, F.pad(x, (1, -1))), (A,), **NEAR),
    Case("put_padded", lambda x: x.index_copy(0, line(x).flip(0), F.pad(x, (1, -1))), (B,)),
    Case("one_hot", lambda x: F.one_hot((x > 0).sum(1) % 50, 50) * 2 + 1, (A,), **FLAT),
    Case("buckets", lambda x: torch.bucketize(F.pad(x, (1, 1)), arange(-3.0, 3.0)), (B,),
         **FLOAT, **FLAT),
    # reductions and more over a seam
    Case("sum", lambda x: F.pad(x, (1, 2, 3, 4), value=1).sum(1), (A,), **NEAR),
    Case("sum_rows", lambda x: F.pad(x, (1, 2, 3, 4), value=1).sum(0), (B,), **NEAR),
    Case("mean_all", lambda x: (roll(x, 3, 1) * x).mean(), (B,), **LOOSE),
    Case("argmax", lambda x: F.pad(x, (1, 2), value=3).argmax(1), (A,), **FLAT),
    Case("amax", lambda x: cat([x, x * 2], 1).amax(1) + 1, (B,)),
    Case("argmax_rows", lambda x: F.pad(x, (1, 2, 3, 0), value=3).argmax(0), (B,), **FLAT),
    Case("var_rows", lambda x: torch.var_mean(F.pad(x, (3, 3, 2, 1), value=1), 0), (A,), **LOOSE),
    Case("norm_rows", lambda x: F.pad(x, (0, 0, 5, 1)).square().sum(1) + 1, (A,), **LOOSE),
    Case("any", lambda x: F.pad(x, (1, 2)).gt(1).any(1), (A,), **FLAT),
    Case("var", lambda x: F.pad(x, (3, 3)).var(1), (A,), **LOOSE),
    Case("softmax", lambda x: F.pad(x, (3, 3)).softmax(1), (A,), **LOOSE),
    Case("causal", causal, (A,), **LOOSE),
    Case("layer_norm", lambda x: F.layer_norm(cat([x, x * 2], 0), x.shape[1:]), (A,), **LOOSE),
    Case("cumsum", lambda x: F.pad(x, (3, 0)).cumsum(1) + 1, (A,), **NEAR),
    Case("sort", lambda x: cat([x, x + 1], 1).sort(1), (A,)),
    Case("topk", lambda x: F.pad(x, (3, 0), value=9).topk(4, 1), (A,)),
    Case("max_pool", lambda x: F.max_pool2d(x, 3, 2, 1) + 1, (C,), **FLOAT),
    Case("avg_pool", lambda x: F.avg_pool2d(x, 3, 1, 1) * 2, (C,), **LOOSE),
    Case("matmul", lambda x, y: F.pad(x @ y.t(), (1, 2)) * 2, (A, A), **LOOSE),
    # other arithmetic
    Case("sine", lambda x: F.pad(x.sin(), (2, 2)).exp(), (A,), **LOOSE),
    Case("gelu", lambda x: F.gelu(roll(x, 2, 1)), (B,), **LOOSE),
    Case("divide", lambda x: F.pad(x, (2, 2), value=1) / 3, (A,), **FLOAT),
    Case("floor_divide", lambda x: roll(x, 3, 1) // 2 + x % 3, (B,), **SIGNED, **FLAT),
    Case("bitwise", lambda x: F.pad(x, (1, 1)) & 3 ^ F.pad(x, (2, 0)), (A,), kind="int", **FLAT),
    Case("cast", lambda x: (F.pad(x.to(torch.float32), (1, 1)) * 2).to(torch.int32), (A,), **FLAT),
    Case("logical", lambda x: ~F.pad(x > 0, (1, 1), value=True), (B,), kind="all", **FLAT),
    Case("nan", lambda x: F.pad(where(x > 1, x / 0, x), (1, 1), value=NAN), (A,), **FLOAT, **FLAT),
]}

FAST = [
    "pad", "crop", "roll_two", "stencil", "cat_columns", "nested", "border", "assign_step", "embed",
    "scatter_add", "argmax", "causal", "cumsum",
]
# fmt: on


def groups(names, size=8):
    """Several cases a compile: the kernels build side by side."""
    return [tuple(names[i : i + size]) for i in range(0, len(names), size)]


def joined(cases):
    """One function over all arguments of the cases, giving a list of their results."""
    counts = [len(case.shapes) for case in cases]

    def run(*args):
        rest, results = list(args), []
        for case, count in zip(cases, counts, strict=True):
            mine, rest = rest[:count], rest[count:]
            results.append(case.fn(*mine))
        return results

    return run
