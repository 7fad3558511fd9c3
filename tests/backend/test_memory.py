"""Mutated and aliased arguments, returned views, strides: what becomes of memory."""

import torch
import torch.nn.functional as F

from .harness import same_as_plain

X = (64, 96)


def test_mutated_arguments():
    def fn(x, y, z, w):
        x.mul_(2)
        y[3:20, 5:] = F.pad(x, (1, 2))[3:20, 5:96]
        z[:, ::2].copy_(torch.roll(z, 3, 1)[:, ::2])
        w.copy_(torch.roll(w, 1, 0) + w)
        return x + 1

    same_as_plain(fn, *(torch.randn(X) for _ in range(4)))


def test_mutation_read_again():
    """A piece must not see what another piece of the same step has written."""

    def fn(x):
        for _ in range(2):
            near = torch.roll(x, 1, 0) + torch.roll(x, -1, 0) + torch.roll(x, 1, 1)
            x.add_(near, alpha=0.25)
        x[1:] = x[1:] + x[:-1]
        return x.clone()

    same_as_plain(fn, torch.randn(130, 70))


def test_buffer_used_for_the_last_time():
    """Its memory may be reused for the result, unless some piece reads it elsewhere."""

    def fn(x, w):
        y, z = x @ w, w @ x
        j = torch.arange(64)
        return torch.where(j < 40, y, torch.roll(y, 1, 1)), torch.where(j < 20, z * 2, z + 1)

    same_as_plain(fn, torch.randn(64, 64), torch.randn(64, 64), exact=False)


def test_values_shared_inside_a_nest():
    """Some are stored, some only passed on; a piece may not need all of them."""

    def fn(x, y):
        a = torch.roll(x, 3, 1) + 1
        b = torch.where(torch.arange(96) < 40, a * 2, y)
        c = F.pad(b, (1, -1)) * a
        d = torch.where(torch.arange(64)[:, None] >= 60, b + c, a)
        return b, d * 3, d.to(torch.float64), (d > 0) & (torch.arange(96) > 90)

    same_as_plain(fn, torch.randn(X), torch.randn(X))


def test_views_and_aliased_arguments():
    def fn(x, view, row):
        view.add_(1)
        row.mul_(3)
        return torch.roll(x, 3, 1) + 1, view, view[2:] * 2, F.pad(row, (1, 1))

    x = torch.randn(X)
    same_as_plain(fn, x, x[10:50], x[5])


def test_returned_views_and_duplicates():
    def fn(x):
        y = F.pad(x, (1, 2)) * 2
        return y, y.t(), y[3:], x, x.view(-1), y.unbind(0)[1], y

    same_as_plain(fn, torch.randn(X))


def test_returned_input_is_the_input():
    from .harness import compiled

    x = torch.randn(X)
    got, shifted = compiled(lambda x: (x, torch.roll(x, 1, 0) * 2), "seams")(x)
    assert got is x and torch.equal(shifted, torch.roll(x, 1, 0) * 2)


def test_strides():
    def fn(x, y, last, step, broad):
        return (
            F.pad(x, (1, 2)) * 2,
            torch.roll(y, (1, 3), (0, 1)) + y,
            F.pad(last, (1, 1, 1, 1)) + 1,
            torch.cat([step, step * 2], 1) * 3,
            torch.roll(broad, 5, 1) + broad,
            torch.where(torch.arange(34) < 9, last, last * 2),
        )

    last = torch.randn(2, 6, 20, 34).to(memory_format=torch.channels_last)
    args = torch.randn(96, 64).t(), torch.randn(66, 130, 3)[:, :, 1].t(), last
    same_as_plain(fn, *args, torch.randn(128, 70)[::2, ::2], torch.randn(1, 96).expand(64, 96))


def test_offset_and_unaligned():
    """A slice that starts in the middle: vectors are not aligned."""

    def fn(x):
        return F.pad(x, (2, 1)) + 1, torch.roll(x, 3, 0) * 2

    same_as_plain(fn, torch.randn(64 * 97 + 1)[1:].view(64, 97))


def test_output_written_in_place():
    """`out=`: the result goes into the caller's tensor."""

    def fn(x, out):
        torch.add(torch.roll(x, 2, 0), x, out=out)
        return out

    same_as_plain(fn, torch.randn(X), torch.empty(X))


def test_detach_and_data():
    def fn(x, y):
        y.detach().copy_(F.pad(x, (1, -1)))
        return y * 2

    same_as_plain(fn, torch.randn(X), torch.randn(X))
