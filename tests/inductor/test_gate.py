"""Nothing outside a compile of ours changes: in this thread, in others, after failures."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch._inductor.compile_fx import compile_fx
from torch._inductor.graph import GraphLowering

import torch_piecewise.inductor.cpu as cpu
import torch_piecewise.inductor.limited as limited
from torch_piecewise.inductor import gate, scope

from .code import digest, fresh, generated


def stencil(x: torch.Tensor) -> torch.Tensor:
    return x.roll(1, 0) + torch.where(torch.arange(x.shape[1]) < 5, x.sin(), x)


X = torch.randn(64, 96)


def plain() -> str:
    return generated(stencil, X, backend="inductor")


def test_plain_code_is_the_same_before_and_after_a_compile_of_ours() -> None:
    before = plain()
    ours = generated(stencil, X, split="seams")
    assert "// piece 1 of 4" in ours
    assert "piece" not in before
    assert digest(plain()) == digest(before)


def test_plain_code_is_the_same_after_a_compile_that_failed_half_way(monkeypatch) -> None:
    before = digest(plain())
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise ValueError("half-way")

        patch.setattr(limited, "to_body", fail)
        with pytest.raises(Exception, match="half-way"):
            generated(stencil, X, split="seams")
    assert scope.current() is None
    assert digest(plain()) == before
    assert "// piece 1 of 4" in generated(stencil, X, split="seams")


def test_another_thread_in_the_middle_of_a_compile_of_ours_sees_inductor(monkeypatch) -> None:
    """The other thread calls compile_fx directly: torch.compile would wait for Dynamo's lock."""
    graphs = []
    torch.compile(fresh(stencil), backend=lambda gm, _: graphs.append(gm) or gm)(X)
    sources: dict[str, str] = {}

    def compile_directly(name: str) -> None:
        def keep(source: str) -> None:
            if threading.current_thread() is thread:
                sources[name] = source

        monkeypatch.setattr(GraphLowering, "save_output_code", keep)
        thread = threading.current_thread()
        with torch.compiler.config.patch(force_disable_caches=True), torch.no_grad():
            compile_fx(copy.deepcopy(graphs[0]), [X])

    compile_directly("before")
    original, began = cpu.cut_nest, []

    def during(*args: object):
        if not began:
            began.append(True)
            thread = threading.Thread(target=compile_directly, args=("during",))
            thread.start()
            thread.join()
        return original(*args)

    monkeypatch.setattr(cpu, "cut_nest", during)
    generated(stencil, X, split="seams")
    assert began, "the compile of ours never came to its nest"
    compile_directly("after")
    assert set(sources) == {"before", "during", "after"}
    assert digest(sources["during"]) == digest(sources["before"])
    assert digest(sources["after"]) == digest(sources["before"])


def test_the_backward_is_cut_when_it_compiles_later_in_another_thread() -> None:
    x = X.clone().requires_grad_()
    plans = []
    from torch_piecewise.inductor.compile import compile_graph, config_of

    config = config_of({"split": "seams"}, None)

    def backend(gm, inputs):
        return compile_graph(gm, inputs, config, plans.append)

    # with its cache off AOTAutograd leaves the backward until it is needed
    with torch.compiler.config.patch(force_disable_caches=True):
        out = torch.compile(fresh(stencil), backend=backend)(x)
    assert [p.kind for p in plans] == ["forward"]
    thread = threading.Thread(target=lambda: out.sum().backward())
    thread.start()
    thread.join()
    assert [p.kind for p in plans] == ["forward", "backward"]
    assert any(n.split for n in plans[1].nests)
    y = X.clone().requires_grad_()
    stencil(y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_the_gate_is_installed_once_and_keeps_a_pass_that_was_there() -> None:
    from torch._inductor.codegen import common

    gate.install()
    gate.install()
    scheduling = common.device_codegens["cpu"].scheduling
    assert isinstance(scheduling, gate.Gate) and not isinstance(scheduling.theirs, gate.Gate)
    assert common.custom_backend_passes["cpu"].uuid() is None


def test_the_key_pass_runs_and_keys_the_pass_that_it_replaced() -> None:
    from torch._inductor.custom_graph_pass import CustomGraphModulePass

    class Theirs(CustomGraphModulePass):
        ran = 0

        def __call__(self, gm: torch.fx.GraphModule) -> None:
            self.ran += 1

        def uuid(self) -> str:
            return "theirs"

    theirs = Theirs()
    ours = gate.KeyPass(theirs)
    ours(torch.fx.symbolic_trace(torch.nn.Identity()))
    assert theirs.ran == 1
    assert ours.uuid() == "theirs"
    from torch_piecewise.config import Config

    with scope.entered(scope.Scope(Config())):
        assert ours.uuid()[0] == "theirs" and ours.uuid() != "theirs"
