"""Nests whose loops Inductor changes before it generates code: split, aligned, low precision."""

import pytest
import torch
import torch.nn.functional as F
from tests.inductor.code import generated
from torch import arange, where

from torch_piecewise.report.explain import explain

from .harness import same_as_plain


def axes(fn, *args):
    """The sizes and the number of pieces of each nest."""
    nests = explain(fn, args, options={"split": "seams"}).nests
    return [([int(a.size) for a in n.axes], len(n.pieces)) for n in nests]


def per_group(x, scale):
    """A factor for each 30 channels: the index `channel // 30` makes Inductor split that loop."""
    return scale[:, None, :, None].expand(2, 64, 32, 30).reshape(x.shape)


def early_rows(x, scale):
    by = per_group(x, scale)
    return where(arange(64)[:, None] < 5, x * by, x.sin() + by)


def early_channels(x, scale):
    by = per_group(x, scale)
    return where(arange(960) < 310, x * by, x.sin() + by)


@pytest.mark.parametrize("fn, pieces", [(early_rows, 2), (early_channels, 6)])
def test_a_loop_that_inductor_split_is_cut(fn, pieces):
    args = torch.randn(2, 64, 960), torch.randn(2, 32)
    assert axes(fn, *args) == [([2, 64, 32, 30], pieces)]
    same_as_plain(fn, *args)


def flat_reader(x, w):
    """The first node needs two loops, the second could do with one: Inductor aligns them."""
    y = where(arange(6)[:, None] < 2, x[:, :128] * 3, x[:, :128])
    return y, y * w


def test_nodes_over_the_same_elements_share_a_space():
    args = torch.randn(6, 200), torch.randn(6, 128)
    assert axes(flat_reader, *args) == [([6, 128], 2)]
    same_as_plain(flat_reader, *args)


def masked(x):
    return where(arange(x.shape[-1]) < 23, x * 1.7 + 0.3, x.tanh())


def copied(x):
    return F.pad(x, (3, 2, 1, 0), value=0.3)


def joined(x):
    return torch.cat([x, -x[:, :20]], -1) * 1.5


def wrapped(x):
    return x + x.roll((1, -2), (0, 1)) * 0.1


def rounded_inside(x):
    y = where(arange(x.shape[-1]) < 23, x.float() * 1.7, x.float()).to(x.dtype)
    return y.float() * 1.3 + F.pad(x[:, 2:], (2, 0))


@pytest.mark.parametrize("fn", [masked, copied, joined, wrapped, rounded_inside])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_pieces_in_low_precision_equal_plain(fn, dtype):
    x = torch.randn(37, 70).to(dtype)
    assert all(pieces > 1 for _, pieces in axes(fn, x))
    # eager rounds where Inductor does not
    same_as_plain(fn, x, eager=fn is not rounded_inside)


def test_the_loads_of_a_joined_piece_are_contiguous():
    x = torch.randn(64, 128).bfloat16()
    code = generated(turned, x, split="seams")
    assert code.count("// piece") == 2
    assert "tmpbuf" not in code  # element by element, into a buffer


def turned(x):
    return x * 0.5 + torch.cat([-x[:, 64:], x[:, :64]], -1)
