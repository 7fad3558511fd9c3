"""Runs what is generated for a GPU on the CPU, by Triton's interpreter, and compares with eager.

The text of a kernel doesn't show that every element is reached once, and most machines have no
GPU. Run it in a process of its own, from the root of the repository, since whether Triton
interprets is settled when it is imported:

    TRITON_INTERPRET=1 python -m tests.gpu.interpreted NAME...
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import sys
import tempfile
import types
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch._inductor.config as inductor_config
import torch.nn.functional as F
from torch._inductor import async_compile
from torch._inductor.runtime import triton_heuristics

import torch_piecewise.inductor.gpu as gpu
import torch_piecewise.plan.launch as launch

from .fake import code_of, kernels

Tensors = list[torch.Tensor]
WAYS = [{"WAY": 0}, {"WAY": 1}, {"WAY": 2}]  # a launch is generated in ranges, in turns and whole
STEPS = [{"R0_BLOCK": 256}, {"R0_BLOCK": 1024}]  # of a reduction's loops


@dataclasses.dataclass(frozen=True)
class Case:
    """A function, the shapes of its inputs, and the sizes of blocks it is run with."""

    fn: Callable[..., Any]
    shapes: Sequence[tuple[int, ...]]
    sizes: Sequence[dict[str, int]] = tuple(STEPS)
    cut: bool = True  # by every version of torch
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def inputs(self) -> Tensors:
        torch.manual_seed(0)
        return [torch.randn(shape) for shape in self.shapes]


def _before(x: torch.Tensor, step: int, start: int = 0, behind: int = 0) -> torch.Tensor:
    """Which columns, the last axis, are before `step` times the row, `behind` axes before it."""
    rows = torch.arange(x.shape[-2 - behind]).view(-1, *[1] * (behind + 1))
    return torch.arange(x.shape[-1]) < rows * step + start


def _doubled(x: torch.Tensor, end: int) -> torch.Tensor:
    return torch.cat([x[:, :end] * 2, x[:, end:]], 1)


def _added(places: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Rows meet in memory: what is added must not be added twice beside a seam."""
    at = (places.abs() * 2).long().clamp(0, 5)
    return torch.zeros(6, 300).index_add(0, at, x.roll(3, 1) * x)


def _copied(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.copy_(torch.cat([x[:2] * 2, y[2:].exp()], 0))
    return x + 1


def _pair(reduce: Any, x: torch.Tensor, *where: Any) -> Any:
    return reduce(torch.where(*where), 1), reduce(x, 1)


def _hidden_planes(x: torch.Tensor) -> torch.Tensor:
    later = torch.arange(x.shape[1])[:, None] > torch.arange(x.shape[0])[:, None, None]
    return x.masked_fill(later, 0.0).sum((1, 2))


ROWS = [(13, 4000)]
FEW = [(7, 4000)]  # of what Triton interprets element by element
RANGES = {
    "cat": Case(lambda x, y: F.gelu(torch.cat([x * 2, y.exp(), x + y], 1)), [(5, 300)] * 2, WAYS),
    "pad": Case(lambda x: F.pad(x * 2, (3, 4, 1, 2)).sin(), [(6, 300)], WAYS),
    "roll": Case(lambda x: x.roll(1, 0) + x.roll(-1, 0) + x.roll(3, 1) - x, [(6, 300)], WAYS),
    "index_add": Case(_added, [(9,), (9, 300)], WAYS),
    "copy_": Case(_copied, [(6, 300)] * 2, WAYS),
}
HEADS = {
    "head": Case(lambda x: (x * x.roll(3, 1)).sum(1), ROWS),
    "tail": Case(lambda x: (x * x.roll(-3, 1)).amax(1), ROWS),
    "head and tail": Case(lambda x: (x * x.roll(5, 1) + x.roll(-7, 1)).sum(1), ROWS),
    "head and inside": Case(lambda x: (x * x.roll(3, 1) * _doubled(x, 600)).sum(1), ROWS),
    "tail and inside": Case(lambda x: (x * x.roll(-3, 1) * _doubled(x, 3400)).sum(1), ROWS),
    "layer_norm": Case(lambda x: F.layer_norm(x * x.roll(3, 1), (4000,)), FEW, STEPS[:1]),
    "var": Case(lambda x: torch.var_mean(x * x.roll(3, 1), 1), FEW, STEPS[:1]),
    "argmax": Case(lambda x: (x * x.roll(3, 1)).argmax(1), FEW, STEPS[:1], cut=False),
}
SLANTS = {
    "causal sum": Case(lambda x: torch.where(_before(x, 300, 1), x, 0.0).sum(1), ROWS),
    "causal softmax": Case(lambda x: torch.where(_before(x, 300, 1), x, -9e9).softmax(1), ROWS),
    "anticausal amax": Case(lambda x: torch.where(_before(x, 300, 1), 0.5, x).amax(1), ROWS),
    "two reduced axes": Case(_hidden_planes, [(40, 100, 25)], [{"XBLOCK": 4, "R0_BLOCK": 64}]),
    "axis of 3 behind rows": Case(
        lambda x: torch.where(_before(x, 1000, behind=1), x, 0.0).sum(-1), [(9, 3, 3, 2500)]
    ),
    "axis of 5 behind rows": Case(
        lambda x: torch.where(_before(x, 1800, 300, behind=1), x, 0.0).sum(-1), [(8, 2, 5, 2500)]
    ),
}
SHARED = {  # two reductions of the same values in one part, and of different ones in the other
    "equal before": Case(lambda x: _pair(torch.sum, x, _before(x, 300), x, x * 2), ROWS),
    "equal after": Case(lambda x: _pair(torch.sum, x, _before(x, 300, 1), x * 2, x), ROWS),
    "equal amax": Case(lambda x: _pair(torch.amax, x, _before(x, 300, 1), x, 0.5), ROWS),
}
LOOPS = {"ranges": [0, 1, 4, None], "stitch": "loops"}
ROWS_GIVEN = {**LOOPS, "dim": 0}
GIVEN = {  # the ranges of the user
    "rows": Case(lambda x: x.exp() * 2, [(6, 300)], WAYS, options=ROWS_GIVEN),
    "columns": Case(lambda x: x.exp() * 2, [(6, 300)], WAYS, options={**LOOPS, "dim": 1}),
    "padded rows": Case(
        lambda x: F.pad(x * 2, (3, 4, 1, 2)).sin(), [(6, 300)], WAYS, options=ROWS_GIVEN
    ),
    "planes": Case(lambda x: x.exp() * 2, [(2, 6, 30)], WAYS, options={**LOOPS, "dim": 1}),
}
GROUPS = {"ranges": RANGES, "given": GIVEN, "heads": HEADS, "slants": SLANTS, "shared": SHARED}
CASES = {name: case for group in GROUPS.values() for name, case in group.items()}


class Kernel:
    """A kernel of a wrapper, and how to launch it where there is no GPU."""

    def __init__(self, folder: Path, sizes: dict[str, int], name: str, source: str) -> None:
        self.sizes = sizes
        file = folder / f"{name}.py"  # Triton reads the source of a function from its file
        file.write_text(source)
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with ExitStack() as stack:
            for kind in ("cached_autotune", "pointwise", "reduction", "persistent_reduction"):
                stack.enter_context(mock.patch.object(triton_heuristics, kind, self._heuristic))
            spec.loader.exec_module(module)

    def _heuristic(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        def heard(fn: Any) -> Any:
            self.fn, self.configs = fn, args[1:2]
            self.signature = kwargs["triton_meta"]["signature"]
            self.meta = kwargs["inductor_meta"]
            return fn

        return heard

    def run(self, *args: Any, stream: Any) -> None:
        blocks = chosen = {k: size for k, size in self.sizes.items() if k in self.signature}
        for configs in self.configs:  # a launch of ours, which has one for each way
            config = configs[min(self.sizes["WAY"], len(configs) - 1)]
            blocks, chosen = config.kwargs, triton_heuristics.config_to_dict(config)
        given = dict(zip([name for name in self.signature if name not in blocks], args))
        grid = triton_heuristics.GridExpr.from_meta(self.meta, chosen).eval_slow(
            {**given, **blocks}
        )
        with np.errstate(all="ignore"):  # masked lanes hold anything
            self.fn[grid](**given, **blocks)


def _spoilt(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """What isn't written must not look right."""
    made = torch.empty_strided(size, stride, dtype=dtype)
    return made.fill_(float("nan") if dtype.is_floating_point else 77)


def _interpretable() -> None:
    """Replaces what needs a GPU or a later Triton, or would run element by element."""
    import triton.language as tl
    from torch._inductor.runtime import triton_helpers
    from triton.runtime import interpreter

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())  # as in 3.7

    patch, interpreter._patch_lang_tensor = interpreter._patch_lang_tensor, patched
    helpers: Any = triton_helpers
    helpers.set_driver_to_gpu = lambda: None
    helpers.libdevice = tl.math
    helpers.max2 = lambda values, dim: tl.max(values, dim)


def _execute(source: str, inputs: Tensors, sizes: dict[str, int]) -> Any:
    """Calls a wrapper, whose memory is the CPU's and whose kernels are ours."""
    wrapper: dict[str, Any] = {"__name__": "wrapper"}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kernel = lambda name, text, **_: Kernel(folder, sizes, name, text)  # noqa: E731
        compiler = types.SimpleNamespace(triton=kernel, wait=lambda _: None)
        for owner, name, value in (
            (async_compile, "AsyncCompile", lambda: compiler),
            (torch._C._dynamo.guards, "_empty_strided_cuda", _spoilt),
            (torch._C, "_cuda_getCurrentRawStream", lambda _: 0),
            (torch.cuda, "_DeviceGuard", contextlib.nullcontext),
            (torch.cuda, "set_device", lambda _: None),
        ):
            stack.enter_context(mock.patch.object(owner, name, value, create=True))
        exec(compile(source, "wrapper", "exec"), wrapper)
        return wrapper["call"](list(inputs))


def _source(case: Case) -> str:
    """Cut at every seam, and where a launch chooses its way, whole too."""

    def both(scheduling: Any, nodes: Any, choice: Any, config: Any) -> Any:
        return make(scheduling, nodes, choice, dataclasses.replace(config, split="auto"))

    make = gpu.make
    whole_rows = inductor_config.patch(split_reductions=False)  # as if there were enough rows
    turns = mock.patch.object(launch, "AT_ONCE", 0.0)  # where it promises nothing too
    with mock.patch.object(gpu, "make", both), whole_rows, turns:
        (source,) = code_of(case.fn, case.inputs(), split="seams", **case.options)
    return source


def check(case: Case) -> str:
    """What is wrong, in a line, or nothing."""
    wanted = case.inputs()
    results = case.fn(*wanted)
    want = [*(results if isinstance(results, tuple) else [results]), *wanted]  # some are written
    source = _source(case)
    cut = any("range_1" in k or "r0_step" in k or "settled" in k for k in kernels(source))
    if case.cut and not cut:  # what is whole would be right for nothing
        return "not cut"
    for chosen in case.sizes:
        sizes = {"WAY": 0, "XBLOCK": 8, "YBLOCK": 8, **chosen}
        given = case.inputs()
        outputs = _execute(source, given, sizes)
        returned = outputs[len(given) - len(want) :]  # an input that is written may come before
        try:
            torch.testing.assert_close([*returned, *given], want, rtol=1e-4, atol=1e-4)
        except AssertionError as error:
            return f"{sizes}: {' '.join(str(error).split())}"
    return ""


def main(names: Sequence[str]) -> int:
    _interpretable()
    wrong = False
    for name in names:
        said = check(CASES[name])
        wrong |= bool(said)
        print(f"{name}: {said or 'right'}", flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(CASES)))
