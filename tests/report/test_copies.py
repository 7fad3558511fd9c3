"""Copies of arguments are laid out as their originals, and share memory where those do."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from torch_piecewise import explain
from torch_piecewise.report.copies import copied


def layout(t):
    return t.dtype, t.shape, t.stride(), t.storage_offset(), t.requires_grad, t.is_leaf


def overlaps(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


BIG = torch.randn(12, 10)
LEAF = torch.randn(12, 10, requires_grad=True)
COMPLEX = torch.randn(4, 4, dtype=torch.complex64)

TENSORS = {
    "plain": torch.randn(3, 4),
    "strided": BIG[1::2, 3:].t(),
    "expanded": torch.randn(3, 1).expand(3, 5),
    "set": torch.empty(0).set_(BIG.untyped_storage(), 5, (3, 4), (1, 7)),
    "leaf": LEAF,
    "view_of_leaf": LEAF[2:, 1:],
    "result": LEAF * 2,
    "view_of_result": (LEAF * 2)[2:],
    "detached": LEAF.detach()[1:],
    "leaf_view": BIG.clone()[1:].requires_grad_(),
    "conj": COMPLEX.conj(),
    "conj_view": COMPLEX.conj()[1:],
    "imag_of_conj": COMPLEX.conj().imag,
    "real": torch.view_as_real(COMPLEX)[1],
    "other_dtype": torch.arange(8).view(torch.int32)[1:],
    "bool": torch.ones(3, dtype=torch.bool),
    "empty": torch.empty(0, 3),
    "scalar": torch.tensor(3),
}


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("name", TENSORS)
def test_a_copy_is_laid_out_as_its_original(name, grad):
    tensor = TENSORS[name]
    with torch.set_grad_enabled(grad):
        copy = copied(tensor)
    assert layout(copy) == layout(tensor)
    assert copy.is_conj() == tensor.is_conj() and copy.is_neg() == tensor.is_neg()
    assert torch.equal(copy, tensor)
    assert not overlaps(copy, tensor) or not tensor.numel()
    assert (copy._base is None) == (tensor._base is None) or name in ("real", "other_dtype", "set")


def test_what_is_shared_stays_shared():
    x = torch.randn(10)
    a, b, c, d, e = copied((x, x, {"view": x[1:6]}, x[4:], x.view(torch.int32)))
    assert a is b and a is not x
    assert c["view"]._base is a and d._base is a
    a.fill_(3)
    assert c["view"].eq(3).all() and d.eq(3).all() and e.view(torch.float32).eq(3).all()
    assert not x.eq(3).any()
    apart, other = copied((torch.ones(3), torch.ones(3)))
    assert not overlaps(apart, other)


def test_views_whose_base_is_no_argument():
    x = torch.randn(10)
    a, b = copied([x[:6], x[4:]])
    a.fill_(3)
    assert b[:2].eq(3).all() and a._base is b._base


def test_parameters_are_used_as_they_are_and_their_views_are_copied():
    p = torch.nn.Parameter(torch.ones(4))
    same, view = copied((p, p.detach()))
    assert same is p and not overlaps(view, p)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_other_tensors():
    sparse, meta = torch.eye(3).to_sparse(), torch.randn(3, 2, device="meta")
    quantized = torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.qint8)
    two = TwoTensor(torch.ones(3), torch.zeros(3))
    copies = copied((sparse, sparse, meta, quantized, two, 3, "text", None))
    assert copies[0] is copies[1] is not sparse and copies[0].is_sparse
    assert copies[2].is_meta and copies[2].shape == (3, 2)
    assert copies[3].is_quantized and copies[3] is not quantized
    assert type(copies[4]) is TwoTensor and not overlaps(copies[4].a, two.a)
    assert copies[5:] == (3, "text", None)


def test_attributes_go_along():
    x = torch.ones(3)
    x.mine = "yes"
    assert copied(x).mine == "yes"


def test_a_result_may_be_written_to_as_its_original():
    def fn(x, y):
        x.mul_(2)
        return x + y.roll(1, 0)

    leaf = torch.randn(64, 8, requires_grad=True)
    x = leaf * 1
    assert len(explain(fn, (x, x[1:33].repeat(2, 1))).plans) == 2
    base = leaf * 1  # a written tensor and its view: autograd has to know that they are one
    assert explain(lambda a, b: (a.mul_(2), b.roll(1, 0) * 2), (base[:32], base[16:])).nests
    assert leaf.grad is None and torch.equal(base, leaf)


def test_what_is_written_through_one_argument_is_seen_through_the_other():
    seen = []

    @torch.compiler.disable
    def look(y):
        seen.append(y.clone())

    def fn(x, y):
        x.fill_(7)
        look(y)
        return y.roll(1, 0) * 2

    x = torch.zeros(9)
    explain(fn, (x, x[3:]))
    assert seen[0].eq(7).all() and x.eq(0).all()
