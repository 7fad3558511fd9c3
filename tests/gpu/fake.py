"""A GPU that isn't there: Inductor generates code for it, and nothing runs.

A graph is traced on the CPU and moved to the GPU when it is lowered, so that any build of
torch will do. Triton has to be installed, since Inductor asks for it; it compiles for a GPU without
having one.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import tempfile
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch._inductor.config as inductor_config
from torch._dynamo import device_interface
from torch._inductor import compile_fx
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime.hints import DeviceProperties
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _triton

import torch_piecewise.inductor.compile as ours
import torch_piecewise.inductor.inside as inside

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)
GPU = torch.device("cuda:0")
H200 = types.SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=141 * 10**9,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    warp_size=32,
    L2_cache_size=60 * 2**20,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    gcnArchName="",
    is_integrated=False,
)


@contextmanager
def _fake_gpu() -> Iterator[None]:
    """torch.cuda as if there were one H200."""
    functions: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "is_initialized": lambda: False,
        "is_bf16_supported": lambda *_, **__: True,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_name": lambda *_: H200.name,
        "get_device_properties": lambda *_: H200,
        "get_device_capability": lambda *_: (9, 0),
        "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda *_: None,
        "synchronize": lambda *_: None,
        "_lazy_init": lambda: None,
        "_exchange_device": lambda _: 0,
        "_maybe_exchange_device": lambda _: 0,
    }
    interface = device_interface.CudaInterface
    asked = ("current_device", "device_count", "get_device_properties", "is_bf16_supported")
    with ExitStack() as stack:
        put = functools.partial(_put, stack)
        for name, function in functions.items():
            put(torch.cuda, name, function)
        for name in asked:
            put(interface, name, staticmethod(functions[name]))
        put(interface.Worker, "get_device_properties", staticmethod(lambda *_: H200))
        put(interface.Worker, "current_device", staticmethod(lambda: 0))
        put(_triton, "triton_hash_with_backend", lambda: "fake")
        put(torch.version, "cuda", "13.0")
        put(torch._subclasses.fake_tensor, "init_gpu_context", lambda *_: None)
        put(FakeTensorMode, "avoid_device_init", True)
        _forget()
        try:
            yield
        finally:
            _forget()


def _put(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    stack.enter_context(mock.patch.object(owner, name, value, create=True))


def _forget() -> None:
    for cached in (DeviceProperties.create, _triton.has_triton):
        getattr(cached, "cache_clear", lambda: None)()


def _moved(value: Any) -> Any:
    """A device, or a fake tensor, on the GPU."""
    if isinstance(value, torch.device):
        return GPU if value.type == "cpu" else value
    if isinstance(value, FakeTensor) and value.device.type == "cpu":
        like = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
        return FakeTensor(value.fake_mode, like, GPU)
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return type(value)(map(_moved, value))
    return value


def _on_gpu(inner: Callable[..., Any]) -> Callable[..., Any]:
    """`compile_fx_inner` while there is a GPU."""

    @functools.wraps(inner)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _fake_gpu():
            return inner(*args, **kwargs)

    return run


def _lowered_on_gpu(init: Callable[..., None]) -> Callable[..., None]:
    """`GraphLowering.__init__` for a graph on the CPU, which is moved.

    The passes before it slice fake tensors, which a build without CUDA can't do on a GPU.
    """

    def moved(self: Any, gm: torch.fx.GraphModule, example_inputs: Any, **kwargs: Any) -> None:
        def device(value: Any) -> Any:
            return _moved(value) if isinstance(value, torch.device) else value

        for node in gm.graph.nodes:
            node.args = torch.fx.node.map_aggregate(node.args, device)
            node.kwargs = torch.fx.node.map_aggregate(node.kwargs, device)
            if "val" in node.meta:
                node.meta["val"] = _moved(node.meta["val"])
        init(self, gm, example_inputs=[_moved(each) for each in example_inputs], **kwargs)

    return moved


def _run_on_gpu(run: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *inputs: run(self, *[_moved(each) for each in inputs])


def code_of(
    fn: Callable[..., Any],
    args: Sequence[torch.Tensor],
    backend: str = "piecewise",
    train: bool = False,
    dynamic: bool = False,
    **options: Any,
) -> list[str]:
    """The wrapper's source of every graph, the backward's last."""
    sources: list[str] = []
    folder = tempfile.TemporaryDirectory()

    def compile_to_module(self: Any) -> Any:
        wrapper, *_ = self.codegen()
        sources.append(wrapper.value)
        written = Path(folder.name, "wrapper.py")  # nothing runs it
        written.write_text(wrapper.value)
        self.cache_path, self.cache_key, self.cache_linemap = str(written), "key", []
        outputs = [_like(output) for output in self.graph_outputs]

        def call(_: Any) -> list[Any]:
            return [make() for make in outputs]

        return types.SimpleNamespace(call=call, __file__=str(written), runner=None)

    inner = _on_gpu(compile_fx.compile_fx_inner)
    chosen: Any = backend
    if backend == "inductor":
        chosen = lambda gm, ins: compile_fx.compile_fx(gm, ins, inner_compile=inner)  # noqa: E731
    torch._dynamo.reset()
    with (
        folder,
        FakeTensorMode(allow_non_fake_inputs=True),
        inductor_config.patch(force_disable_caches=True, compile_threads=1),
        mock.patch.object(GraphLowering, "compile_to_module", compile_to_module),
        mock.patch.object(GraphLowering, "__init__", _lowered_on_gpu(GraphLowering.__init__)),
        mock.patch.object(GraphLowering, "run", _run_on_gpu(GraphLowering.run)),
        mock.patch.object(ours, "compile_fx_inner", inner),
        mock.patch.object(inside, "compile_fx_inner", inner),
    ):
        given = [torch.empty_strided(a.shape, a.stride(), dtype=a.dtype) for a in args]
        given = [g.requires_grad_(a.requires_grad) for g, a in zip(given, args, strict=True)]
        kwargs: dict[str, Any] = {"options": options} if options else {}
        compiled = torch.compile(fn, backend=chosen, dynamic=dynamic, **kwargs)
        # where sizes are not known there are no results to give back
        with suppress(AttributeError) if dynamic else nullcontext():
            results = compiled(*given)
        if train:
            _backward(results, given)
    return sources


def _backward(results: Any, given: Sequence[torch.Tensor]) -> None:
    every = list(results) if isinstance(results, (tuple, list)) else [results]
    outputs = [o for o in every if o.requires_grad]
    leaves = [g for g in given if g.requires_grad]
    torch.autograd.grad(outputs, leaves, [torch.empty_like(o) for o in outputs])


def _like(output: Any) -> Callable[[], torch.Tensor | None]:
    try:
        size, stride = list(map(int, output.get_size())), list(map(int, output.get_stride()))
        dtype = output.get_dtype()
    except (NotImplementedError, AttributeError, TypeError):  # or a size that is not known
        return lambda: None
    return lambda: torch.empty_strided(size, stride, dtype=dtype)


def kernels(source: str) -> list[str]:
    """The source of every Triton kernel of a wrapper."""
    return re.findall(r"async_compile\.triton\('\w+', '''(.*?)''', device_str", source, re.S)


def functions(kernel: str) -> dict[str, str]:
    """The functions of a kernel's source, by name."""
    parts = re.split(r"@triton\.jit\n", kernel)[1:]
    return {re.match(r"def (\w+)", part)[1]: part for part in parts}  # type: ignore[index]


def compile_for_h200(kernel: str, folder: Path) -> list[tuple[Any, Any]]:
    """A launch's configurations, each with what Triton makes of it."""
    import triton
    from torch._inductor.runtime import triton_helpers, triton_heuristics
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    found: dict[str, Any] = {}

    def cached_autotune(_: Any, configs: Any, **kwargs: Any) -> Callable[[Any], Any]:
        def heard(fn: Any) -> Any:
            found.update(fn=fn, configs=configs, meta=kwargs["triton_meta"])
            return fn

        return heard

    file = folder / "kernel.py"
    file.write_text(kernel)
    spec = importlib.util.spec_from_file_location("kernel", file)
    assert spec is not None and spec.loader is not None
    with (
        mock.patch.object(triton_heuristics, "cached_autotune", cached_autotune),
        mock.patch.object(triton_helpers, "set_driver_to_gpu", lambda: None),
    ):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    results: list[tuple[Any, Any]] = []
    for config in found["configs"]:
        meta = found["meta"]
        constants = {**meta["constants"], **config.kwargs}
        signature = {k: "constexpr" if k in constants else v for k, v in meta["signature"].items()}
        attributes = meta["configs"][0]
        source = ASTSource(found["fn"], signature, constants, attributes)
        options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
        made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        results.append((config, made))
    return results
