"""The loop IR is what is compiled: a change in `loops/` changes the generated code."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from torch_piecewise.inductor import cpu, given, planning
from torch_piecewise.loops import bounds, fold
from torch_piecewise.loops.split import restrict

from .code import digest, fresh, generated


def padded(x: torch.Tensor) -> torch.Tensor:
    y = F.pad(x, (1, 1))
    return (y[:, 2:] - y[:, :-2]) + torch.where(torch.arange(x.shape[1]) < 8, x, -x)


def rolled(x: torch.Tensor) -> torch.Tensor:
    return x + x.roll(1, 1) * 2


X = torch.randn(64, 96)


@pytest.mark.parametrize("rule", ["where", "masked", "ge"])
def test_without_a_fold_the_code_differs(monkeypatch, rule: str) -> None:
    before = digest(generated(padded, X, split="seams"))
    monkeypatch.delitem(fold.RULES, rule)
    assert digest(generated(padded, X, split="seams")) != before


def test_without_the_wrap_rule_the_wrap_stays_in_the_code(monkeypatch) -> None:
    assert "%" not in _kernel(generated(rolled, X, split="seams"))
    monkeypatch.delitem(bounds._RULES, bounds.ModularIndexing)
    assert "%" in _kernel(generated(rolled, X, split="seams"))


def _kernel(code: str) -> str:
    """The C++ part: the wrapper's comments hold the nest's text."""
    return code.partition("cpp_pybinding")[2]


def test_nests_left_whole_are_the_same_when_compiled_from_the_ir(monkeypatch) -> None:
    """Every nest that passes through the IR can be generated from it, cut or not."""
    seen = []

    def from_ir(nodes, config, along):
        cut = given.cut_nest(nodes, config, along)
        found = planning.look(nodes)
        if not isinstance(found, planning.Found):
            return cut
        box = planning.everything(found.nest)
        seen.append(found.nest.name)
        return planning.Cut(cut.plan, (((box, restrict(found.nest, box)),),))

    monkeypatch.setattr(cpu, "cut_nest", from_ir)

    def mixed(x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.pad(x, (2, 3), value=1.5)
        gathered = x[index].exp()
        picked = torch.zeros_like(x).index_add(0, index, x[: len(index)])
        return y, gathered, picked, x.cumsum(0).amax(1), y.argmax(1), x.flip(0).half().sum(0)

    index = torch.tensor([3, 0, 60, 3])
    compiled = torch.compile(fresh(mixed), backend="piecewise")
    with torch.compiler.config.patch(force_disable_caches=True):
        got = compiled(X, index)
    # as plain Inductor, bit for bit: its half-precision sum differs from eager's by version
    plain = torch.compile(fresh(mixed), backend="inductor")(X, index)
    for a, b in zip(got, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert len(seen) >= 4
