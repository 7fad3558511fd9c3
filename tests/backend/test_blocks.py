"""Conditions over two axes (row against column): blocks of rows, each cut along its columns."""

import pytest
import torch
from tests.inductor.code import generated
from torch import where

from torch_piecewise.report.explain import explain

from .harness import same_as_plain
from .table import columns, rows, tensor

SHAPE = (131, 150)  # rows that fill no number of blocks, more columns than rows


def causal(x):
    return columns(x) <= rows(x)


def causal_sum(x):
    return where(causal(x), x.exp(), 0).sum(-1)


def causal_choice(x):
    return where(causal(x), x * 2, x + 1)


def banded_sum(x):
    return where((rows(x) - columns(x) < 20) & (columns(x) - rows(x) < 20), x.exp(), 0).sum(-1)


def banded_by_distance(x):
    return where((rows(x) - columns(x)).abs() < 20, x.exp(), 0).sum(-1)


def far_off_the_diagonal(x):
    return where((rows(x) - columns(x)).abs() >= 30, x * 2, x + 1)


def causal_behind_rows(x):
    return where(rows(x) < 37, x.exp(), where(causal(x), x * 2, 0)).sum(-1)


def anti_diagonal(x):
    return where(3 * rows(x) + 2 * columns(x) > 250, x + 1, x * 2)


def causal_largest(x):
    return where(causal(x), x * 2, -torch.inf).amax(-1)


def causal_position(x):
    return where(causal(x), x, -1.0).argmax(-1)


def causal_softmax(x):
    return where(causal(x), x * 2, -torch.inf).softmax(-1)


def causal_norm(x):
    y = where(causal(x), x.exp(), 0)
    return y / (y.sum(-1, keepdim=True) + 1)


def identity(x):
    return x * 2 + torch.eye(x.shape[0], x.shape[1])


ALL = (
    causal_sum,
    causal_choice,
    banded_sum,
    banded_by_distance,
    far_off_the_diagonal,
    causal_behind_rows,
    anti_diagonal,
    causal_largest,
    causal_position,
    causal_softmax,
    causal_norm,
    identity,
)
EXACT = {
    far_off_the_diagonal,
    causal_choice,
    anti_diagonal,
    causal_largest,
    causal_position,
    identity,
}
BLOCKED = set(ALL) - {causal_position, causal_norm, identity}


def nests(fn, x, split="seams", **options):
    return explain(fn, (x,), options={"split": split, **options}).nests


@pytest.mark.parametrize("fn", ALL)
def test_blocks_give_what_the_whole_gives(fn):
    x = tensor(SHAPE)
    exact = fn in EXACT
    same_as_plain(fn, x, exact=exact)
    if fn in BLOCKED:
        assert all(len(n.starts("i0")) > 1 for n in nests(fn, x)), "no blocks: the test is idle"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int64], ids=str)
def test_other_dtypes(dtype):
    def fn(x):
        y = where(causal(x), x * 2 + 1, 0)
        return y.sum(-1), y.amax(-1), where(causal(x), x, -x)

    same_as_plain(fn, tensor(SHAPE, dtype), exact=False)


def test_each_block_has_columns_of_its_own():
    (nest,) = nests(causal_sum, tensor((128, 128)))
    firsts = {p.box[0][1:]: p.box[1][2] for p in reversed(nest.pieces)}
    blocks = sorted(firsts, key=lambda rows: int(rows[0]))
    assert len(blocks) >= 4
    # a block's first range of columns ends where its first row does
    assert [firsts[b] for b in blocks[1:]] == [start for start, _ in blocks[1:]]
    assert not any(note.code == "two-axes" for note in nest.notes)


def test_a_distance_is_cut_where_it_is_compared():
    """|i - j| < 20 changes 20 columns off the diagonal, and not on it."""
    (nest,) = nests(banded_by_distance, tensor((256, 256)))
    begins = nest.starts("i0")
    last = [p for p in nest.pieces if p.box[0][1] == begins[-1]]
    first_row = int(begins[-1])
    inner = [int(p.box[1][1]) for p in last]
    assert inner[0] == 0 and 0 < first_row - 20 - inner[1] < 32  # at a whole vector before it
    assert len(last) == 3  # nothing to add, the band up to the corner, and what is on its edge


def test_blocks_begin_at_the_seams_of_rows_too():
    (nest,) = nests(causal_behind_rows, tensor((256, 256)))
    begins = nest.starts("i0")
    assert "37" in begins and len(begins) > 4
    assert not {"32", "48"} & set(begins), "a block that is a few rows long"


@pytest.mark.parametrize("split, blocks", [("seams", True), ("auto", False)])
def test_blocks_that_cost_more_than_they_save(split, blocks):
    def fn(x):
        return torch.tril(x)

    (nest,) = nests(fn, tensor((64, 96)), split=split)
    assert nest.split == blocks


def test_columns_that_no_row_of_a_block_sees_are_not_read():
    code = generated(causal_sum, torch.randn(128, 128), split="seams")
    code = code[code.index("#include") :]
    unseen = code.split("// piece ")[2]  # of the first block: what lies right of it
    assert unseen.startswith("2 of ") and "i0 in [0, 32), r0 in [32, 128)" in unseen
    assert "for(" not in unseen.split("// piece ")[0].split("out_ptr")[0]


def test_the_cap_on_pieces_holds():
    (nest,) = nests(causal_choice, tensor((256, 256)), max_pieces=12)
    assert 1 < len(nest.pieces) <= 12
    (nest,) = nests(causal_choice, tensor((256, 256)), max_pieces=2)
    assert len(nest.pieces) == 1 and "two-axes" in {note.code for note in nest.notes}


def test_the_reason_for_no_blocks_is_told():
    """In words for a condition over two axes: what was estimated, or what the options forbid."""
    for fn in (causal_sum, causal_softmax):
        for x, options, code in (
            (tensor((20, 20)), {"split": "auto"}, "no-gain"),
            (tensor((8, 8)), {"split": "seams"}, "small"),
            (tensor((256, 256)), {"split": "seams", "max_pieces": 2}, "too-many-pieces"),
            (tensor((256, 256)), {"split": "off"}, "off"),
        ):
            nest = nests(fn, x, **options)[0]
            assert len(nest.pieces) == 1
            assert (nest.reason.code, options) == (code, options)
        assert "estimated" in nests(fn, tensor((20, 20)), split="auto")[0].reason.text


def test_rows_of_unknown_number_stay_whole():
    torch._dynamo.reset()
    compiled = torch.compile(
        causal_sum, backend="piecewise", options={"split": "seams"}, dynamic=True
    )
    for shape in ((131, 150), (40, 40), (3, 9)):
        x = tensor(shape)
        torch.testing.assert_close(compiled(x), causal_sum(x))


def test_training():
    def loss(x):
        return (causal_softmax(x) * columns(x)).sum() + causal_sum(x).square().sum()

    results = []
    for backend in ("piecewise", "inductor"):
        x = torch.linspace(-3, 3, 131 * 150).reshape(131, 150).requires_grad_()
        options = {"split": "seams"} if backend == "piecewise" else None
        torch._dynamo.reset()
        torch.compile(loss, backend=backend, options=options)(x).backward()
        results.append(x.grad)
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


def test_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        same_as_plain(causal_softmax, tensor((512, 300)), exact=False)
        same_as_plain(causal_sum, tensor((512, 300)), exact=False)
    finally:
        torch.set_num_threads(before)
