"""Nests that share outer loops (softmax, layer norm): cut at the seams of all of them together."""

import re

import pytest
import torch
import torch.nn.functional as F
from tests.inductor.code import generated
from torch import arange, where

from torch_piecewise.report.explain import explain

from .harness import same_as_plain

D = 96  # and its half: whole vectors of any machine, so that sums are added in the same order


def rows(x):
    return arange(x.shape[-2])[:, None]


def columns(x):
    return arange(x.shape[-1])


def padded_rows(x):
    return (F.pad(x, (0, 0, 8, 8), value=1.0) * 0.5).softmax(-1)


def masked_rows(x):
    return where(rows(x) < 7, x.sin(), x * 2).softmax(-1)


def rolled_rows(x):
    return (x.roll(3, 0) * x).softmax(-1)


def columns_after(x):
    y = x.softmax(-1)
    return where(columns(x) < 48, y * torch.exp(x), y)


def rows_and_columns(x):
    y = where(rows(x) < 9, x.sin(), x).softmax(-1)
    return where(columns(x) < 48, y * torch.exp(x), y)


def columns_of_some_rows(x):
    """Only in the first rows are there two kinds of columns."""
    y = where((rows(x) < 9) & (columns(x) < 48), x.sin(), x)
    return y.softmax(-1) * y


def two_shared_axes(x):
    x = x.view(4, -1, x.shape[-1])
    first = arange(x.shape[0])[:, None, None] < 2
    return where(first & (rows(x) < 7), x.sin(), x * 2).softmax(-1)


def one_row_first(x):
    return torch.cat([x[:1] * 2, x.abs()]).softmax(-1)


def norm_of_masked_rows(x):
    x = where(rows(x) < 60, x * 2, x.sin())
    return F.layer_norm(x, (D,), x[0], x[1])


def variance_of_rows(x):
    y = x.roll(2, 0) * x
    return ((y - y.mean(-1, keepdim=True)) ** 2).sum(-1, keepdim=True).sqrt() * y


def written_in_place(x):
    y = F.pad(x.sin().cumsum(0), (0, 0, 1, 1))
    return y.softmax(-1).add_(y)


# the function, the pieces of each nest
CASES = {
    padded_rows: [3, 3, 3],
    masked_rows: [2, 2, 2],
    rolled_rows: [2, 2, 2],
    columns_after: [1, 1, 2],
    rows_and_columns: [2, 2, 4],
    columns_of_some_rows: [3, 3, 3],
    two_shared_axes: [4, 4, 1, 1],
    one_row_first: [2, 2, 2],
    norm_of_masked_rows: [2, 1, 2, 2],
    variance_of_rows: [2, 2, 2],
    written_in_place: [1, 3, 3, 3],
}
NAMES = [fn.__name__ for fn in CASES]


def pieces(fn, *args, split="seams"):
    return [len(n.pieces) for n in explain(fn, args, options={"split": split}).nests]


@pytest.mark.parametrize("fn", CASES, ids=NAMES)
def test_nests_are_cut_and_equal_plain(fn):
    x = torch.randn(100, D)
    assert pieces(fn, x) == CASES[fn]
    same_as_plain(fn, x)


@pytest.mark.parametrize(
    "fn, dtype",
    [
        (padded_rows, torch.bfloat16),
        (rows_and_columns, torch.bfloat16),
        (rows_and_columns, torch.float16),
        (norm_of_masked_rows, torch.bfloat16),
    ],
)
def test_low_precision(fn, dtype):
    same_as_plain(fn, torch.randn(100, D).to(dtype), eager=False)


@pytest.mark.parametrize(
    "fn", [rows_and_columns, norm_of_masked_rows], ids=["shared", "one_by_one"]
)
def test_several_threads(fn):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        same_as_plain(fn, torch.randn(4096, D))
    finally:
        torch.set_num_threads(before)


def test_each_box_is_written_once_with_the_shared_loop():
    code = generated(rows_and_columns, torch.randn(100, D), split="seams")
    outer = re.findall(r"// box (\d) of (\d), all nests in it: (.*)", code)
    assert outer == [("1", "2", "i0 in [0, 9)"), ("2", "2", "i0 in [9, 100)")]
    inner = re.findall(r"// piece (\d) of (\d): (.*)", code)
    nests = 2 * [("1", "2", "i0 in [0, 9), i1 in [0, 96)")]
    assert [i for i in inner if i[1] == "4"] == [
        ("1", "4", "i0 in [0, 9), i1 in [0, 48)"),
        ("2", "4", "i0 in [0, 9), i1 in [48, 96)"),
        ("3", "4", "i0 in [9, 100), i1 in [0, 48)"),
        ("4", "4", "i0 in [9, 100), i1 in [48, 96)"),
    ]
    assert len(inner) == 4 + 2 * len(nests)
    # the exponentials live in a buffer of one row, in each box as in the whole
    assert len(re.findall(r"make_unique<float \[\]>\(96L\)", code)) == 2
    assert len(re.findall(r"#pragma omp for", code)) <= 2


def test_a_box_is_cut_at_its_own_seams_only():
    code = generated(columns_of_some_rows, torch.randn(100, D), split="seams")
    first, second = code[code.index("// box 1") :].split("// box 2")
    assert "i1 in [48, 96)" in first and "i1 in [48, 96)" not in second


def test_nests_that_inductor_takes_apart_are_cut_one_by_one():
    code = generated(norm_of_masked_rows, torch.randn(100, D), split="seams")
    assert re.findall(r"// piece (\d of \d): i0", code) == ["1 of 2", "2 of 2"] * 3


def test_a_short_box_is_shared_where_the_whole_is():
    # Inductor takes loops apart where the shared ones are 300 times shorter than those inside
    assert pieces(one_row_first, torch.randn(20, 400)) == [2, 2, 2]


@pytest.mark.parametrize("fn", [rows_and_columns, masked_rows, written_in_place])
def test_what_lives_in_one_iteration_is_indexed_inside_its_row(fn):
    # a buffer that begins elsewhere in a later box would hold the same values, beyond its end
    code = generated(fn, torch.randn(100, D), split="seams")
    indices = re.findall(r"local_buffer_data_\d+ \+ static_cast<int64_t>\((.*?)\)[,)]", code)
    offsets = [int(n) for index in indices for n in re.findall(r"(\d+)L", index)]
    assert indices and all(n < D for n in offsets), indices


def test_what_has_no_seam_is_inductors_own_code():
    def code(backend):
        text = generated(lambda x: x.softmax(-1), torch.randn(100, D), backend=backend)
        return text[text.index('extern "C"') :]

    assert code("piecewise") == code("inductor")


def test_auto_leaves_what_gains_nothing():
    x = torch.randn(2048, 512)
    assert pieces(masked_rows, x, split="auto") == [2, 2, 2]
    small = explain(one_row_first, (x[:20, :D],)).nests
    assert {len(n.pieces) for n in small} == {1}
    assert {n.reason.code for n in small} <= {"small", "no-gain"}


def without_words_for_the_last(monkeypatch):
    """Nests without a reduction can't be read."""
    from torch_piecewise.inductor import adapter, planning

    def read(nodes):
        nest = adapter.to_nest(nodes)
        if not any(axis.reduce for axis in nest.axes):
            raise adapter.NotInIR("scan", "no words for this")
        return nest

    monkeypatch.setattr(planning, "to_nest", read)
    return torch.compiler.config.patch(force_disable_caches=True)


def test_beside_a_nest_that_is_not_in_the_ir_own_axes_are_cut(monkeypatch):
    x = torch.randn(100, D)
    with without_words_for_the_last(monkeypatch):
        found = explain(columns_of_some_rows, (x,), options={"split": "seams"}).nests
        assert [len(n.pieces) for n in found] == [2, 2, 1]
        assert "outer-fused" in {note.code for note in found[0].notes}
        same_as_plain(columns_of_some_rows, x)


def test_beside_a_nest_that_is_not_in_the_ir_there_are_no_blocks(monkeypatch):
    def causal(x):
        return where(columns(x) <= rows(x), x * 2, -torch.inf).softmax(-1)

    x = torch.randn(131, 150)
    assert min(pieces(causal, x)) > 1, "it has no blocks: the test is idle"
    with without_words_for_the_last(monkeypatch):
        found = explain(causal, (x,), options={"split": "seams"}).nests
        assert [len(n.pieces) for n in found] == [1, 1, 1]
        same_as_plain(causal, x, exact=False)


def test_pieces_as_functions():
    x = torch.randn(100, D)
    code = generated(rows_and_columns, x, split="seams", piece_functions=True)
    names = re.findall(r"noinline\)\) void (piecewise_\w+)\(", code)
    assert names == ["piecewise_op0_outer_0", "piecewise_op0_outer_1"]
    same_as_plain(rows_and_columns, x, options={"piece_functions": True})


def test_dynamic_rows():
    torch._dynamo.reset()
    compiled = torch.compile(
        rows_and_columns, backend="piecewise", options={"split": "seams"}, dynamic=True
    )
    for length in (100, 37, 9, 3):  # the seam at row 9 inside, at the end, behind it
        x = torch.randn(length, D)
        torch.testing.assert_close(compiled(x), rows_and_columns(x))


def test_training():
    def loss(x):
        return (masked_rows(x) * columns(x)).sum() + norm_of_masked_rows(x).square().sum()

    results = []
    for backend in ("piecewise", "inductor"):
        x = torch.linspace(-3, 3, 100 * D).reshape(100, D).requires_grad_()
        options = {"split": "seams"} if backend == "piecewise" else None
        torch._dynamo.reset()
        torch.compile(loss, backend=backend, options=options)(x).backward()
        results.append(x.grad)
    torch.testing.assert_close(*results)


def test_splitting_may_be_off():
    x = torch.randn(100, D)
    for fn in (rows_and_columns, norm_of_masked_rows):
        found = explain(fn, (x,), options={"split": "off"})
        assert [len(n.pieces) for n in found.nests] == [1] * len(found.nests)
        assert "off" in {n.reason.code for n in found.nests}
