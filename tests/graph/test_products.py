"""Matrix products, cut along rows, columns and batch."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torch_piecewise.graph.axes import CannotCut, Range, cut_along
from torch_piecewise.graph.pieces import build

from .rules import all_values, calls, check, run, traced

aten = torch.ops.aten
A, B = torch.randn(7, 5), torch.randn(5, 8)
BA, BB = torch.randn(7, 4, 5), torch.randn(7, 5, 6)


@pytest.mark.parametrize("fn", [lambda a, b: a @ b, lambda a, b: aten.mv(a, b[:, 0])])
def test_products(fn):
    check(fn, A, B)


def test_batched():
    check(aten.bmm, BA, BB)


@pytest.mark.parametrize("added", [(8,), (1,), (), (7, 8), (1, 8), (7, 1), (1, 1)])
def test_what_is_added_spreads(added):
    check(lambda s, a, b: aten.addmm(s, a, b, beta=0.5, alpha=2), torch.randn(added), A, B)


@pytest.mark.parametrize("added", [(6,), (4, 6), (7, 4, 6), (7, 1, 6), (1, 4, 1), ()])
def test_what_is_added_to_a_batch_spreads(added):
    check(lambda s, a, b: aten.baddbmm(s, a, b, alpha=3), torch.randn(added), BA, BB)


def test_other_sums():
    check(aten.addbmm, torch.randn(4, 6), BA, BB)
    check(aten.addbmm, torch.randn(6), BA, BB)
    check(lambda s, a, v: aten.addmv(s, a, v, beta=2), torch.randn(7), A, torch.randn(5))
    check(aten.addmv, torch.randn(1), A, torch.randn(5))
    check(aten.addr, torch.randn(7, 8), torch.randn(7), torch.randn(8))
    check(aten.addr, torch.randn(8), torch.randn(7), torch.randn(8))


def test_dot_has_no_dim_to_cut():
    check(aten.dot, A[:, 0], A[:, 1])


def test_one_node_as_both_operands():
    x = torch.randn(7, 7)
    check(lambda x: x @ x, x)
    check(lambda x: aten.bmm(x, x), torch.randn(3, 7, 7))
    check(lambda x: aten.addmm(x, x, x), x)
    (node,) = calls(traced(lambda x: x @ x, [x]))
    (source,) = node.all_input_nodes
    assert cut_along(node, 0).inputs == ((source, 0), (source, None))
    assert cut_along(node, 1).inputs == ((source, None), (source, 1))


def test_what_a_range_reads():
    (node,) = calls(traced(aten.addmm, [torch.randn(8), A, B]))
    rows = {need.node.name: need.range for need in cut_along(node, 0).needs(Range(2, 5))}
    assert list(rows.values()) == [None, Range(2, 5), None]
    columns = {need.node.name: need.range for need in cut_along(node, 1).needs(Range(2, 5))}
    assert list(columns.values()) == [Range(2, 5), None, Range(2, 5)]


def test_whole_numbers():
    a, b = torch.randint(-9, 9, (7, 8)).to(torch.int8), torch.randint(-9, 9, (8, 8)).to(torch.int8)
    check(lambda a, b: torch._int_mm(a, b), a, b)


def test_whole_numbers_are_not_cut_where_kernels_want_sizes():
    with FakeTensorMode():
        a, b = (torch.empty(32, 32, dtype=torch.int8, device="cuda") for _ in range(2))
    gm = make_fx(lambda a, b: torch._int_mm(a, b))(a, b)
    with pytest.raises(CannotCut) as error:
        cut_along(calls(gm)[-1], 0)
    assert error.value.code == "kernel"


def test_results_in_another_type():
    with FakeTensorMode():
        a, b = (torch.empty(32, 16, dtype=torch.half, device="cuda") for _ in range(2))
    gm = make_fx(lambda a, b: aten.mm.dtype(a, b.t(), torch.float32))(a, b)
    node = calls(gm)[-1]
    for dim in range(2):
        piece, found = build({node: (cut_along(node, dim), dim)}, {node: Range(3, 8)})
        assert found[node].meta["val"].dtype == torch.float32
        assert found[node].meta["val"].shape[dim] == 5


def test_two_products_in_a_row_in_one_piece():
    gm = traced(lambda a, b, c: torch.relu(a @ b) @ c, (A, B, torch.randn(8, 3)))
    values = all_values(gm, (A, B, torch.randn(8, 3)))
    cuts = {node: (cut_along(node, 0), 0) for node in calls(gm)}
    last = calls(gm)[-1]
    piece, found = build(cuts, {last: Range(2, 5)})
    torch.testing.assert_close(run(piece, found[last], values), values[last][2:5])
    assert [i.range for i in piece.inputs] == [Range(2, 5), None, None]
