"""Results on a GPU. Needs an NVIDIA GPU with Triton; elsewhere everything here is skipped."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch._inductor import config as inductor_config

from torch_piecewise.bench import programs
from torch_piecewise.bench.workloads import WORKLOADS, bind, disagreement, find
from torch_piecewise.inductor import gpu
from torch_piecewise.loops.split import boxes, movable, restrict
from torch_piecewise.plan.plan import Reason

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: torch.cuda.is_available() is False"
)


def check(workload, args, dynamic=False, **how):
    """As eager mode, or where plain Inductor differs from that, as plain Inductor."""
    torch._dynamo.reset()
    want = bind(workload, workload.fn, args)()
    step = bind(
        workload, torch.compile(workload.fn, backend="piecewise", dynamic=dynamic, **how), args
    )
    for _ in range(3):  # CUDA graphs are recorded in the second call
        got = tuple(each.clone() for each in step())
    said = disagreement(got, want)
    if said:
        torch._dynamo.reset()
        plain = bind(workload, torch.compile(workload.fn, dynamic=dynamic), args)()
        said = said if not disagreement(plain, want) else disagreement(got, plain)
    assert not said


SEAMS = {"split": "seams"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_cut_at_every_seam(workload, dtype):
    check(workload, workload.inputs("cuda", dtype, "tiny"), options=SEAMS)


@pytest.mark.parametrize("workload", WORKLOADS[::3], ids=lambda w: w.name)
def test_sizes_that_are_not_known(workload):
    check(workload, workload.inputs("cuda", torch.float32, "tiny"), dynamic=True, options=SEAMS)


@pytest.mark.parametrize("name", ["cat_dense_block", "slice_swiglu", "roll_gray_scott"])
def test_cuda_graphs(name):
    workload = find(name)
    check(workload, workload.inputs("cuda", torch.float32, "tiny"), mode="reduce-overhead")


@pytest.mark.parametrize("name", ["cat_dense_block", "mask_causal_softmax", "roll_gray_scott"])
def test_from_a_wrapper_in_cpp(name):
    workload = find(name)
    options = {**SEAMS, "cpp_wrapper": True}
    check(workload, workload.inputs("cuda", torch.float32, "tiny"), options=options)


def _cut_anywhere(rng: random.Random):
    """In place of the choice of ranges: one or two cuts of two axes, wherever they may be."""

    def choose(found, config, inside):
        nest = found.nest
        known = [axis for axis in nest.axes if axis.size.is_Integer and axis.size > 3]
        cuts = {
            axis.symbol: sorted(rng.sample(range(1, int(axis.size)), rng.randint(1, 2)))
            for axis in rng.sample(known, min(2, len(known)))
        }
        pieces = boxes(nest, cuts)
        if not all(movable(nest, piece) for piece in pieces):
            pieces = boxes(nest, {})
        cut = tuple((piece, restrict(nest, piece)) for piece in pieces)
        return gpu.Choice(found.plan(pieces, Reason("test", "", "cut anywhere")), cut)

    return choose


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("number", range(12))
def test_ranges_anywhere(number, dtype, monkeypatch):
    monkeypatch.setattr(gpu, "_in_ranges", _cut_anywhere(random.Random(number)))
    workload = programs.workload(programs.name_of(number), 711, "tiny")
    with inductor_config.patch(force_disable_caches=True):
        check(workload, workload.inputs("cuda", dtype, "tiny"), options=SEAMS)


PACKAGE = """
import sys, torch
from torch_piecewise.config import Config
from torch_piecewise.inductor import gate, scope

class Joined(torch.nn.Module):
    def forward(self, x, y):
        joined = torch.cat([x * 2, torch.exp(y), torch.sin(x) + y], 1)
        return torch.nn.functional.gelu(joined)

ours, path = sys.argv[1] == "ours", sys.argv[2]
args = tuple(torch.randn(512, 640, device="cuda") for _ in range(2))
exported = torch.export.export(Joined(), args)
gate.install()
mine = scope.Scope(Config(split="seams" if ours else "off"))
with scope.entered(mine):
    torch._inductor.aoti_compile_and_package(exported, package_path=path)
assert any(len(nest.pieces) > 1 for nest in mine.nests) == ours
print("packed", flush=True)
loaded = torch._inductor.aoti_load_package(path)
torch.testing.assert_close(loaded(*args), Joined()(*args))
print("right", flush=True)
"""


def test_in_a_package_of_aot_inductor(tmp_path):
    """In processes of their own, since loading a package can end one by a signal."""

    def said(whose):
        command = [sys.executable, "-c", PACKAGE, whose, str(tmp_path / f"{whose}.pt2")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    plain = said("plain")
    if plain.stdout.split()[-1:] != ["right"]:
        pytest.skip(f"AOTInductor's own package fails here: exit status {plain.returncode}")
    ours = said("ours")
    assert ours.stdout.split() == ["packed", "right"], ours.stderr


@pytest.mark.parametrize("number", range(12))
def test_drawn_programs(number):
    workload = programs.workload(programs.name_of(number), 2411, "tiny")
    check(workload, workload.inputs("cuda", torch.float32, "tiny"), options=SEAMS)


def test_by_default_the_first_call_times_both_ways():
    def fn(x, y):
        return F.gelu(torch.cat([x * 2, torch.exp(y), torch.sin(x) + y], 1))

    args = [torch.randn(8192, 2048, device="cuda") for _ in range(2)]
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(fn, backend="piecewise")(*args), fn(*args))


REDUCTIONS = {
    "sum": lambda x: x.sum(1),
    "amax": lambda x: x.amax(1),
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(1),
    "prod": lambda x: (1 + x * 1e-4).prod(1),
    "any": lambda x: (x > 3).any(1),
    "mean_and_variance": lambda x: torch.var_mean(x, 1),
    "softmax": lambda x: torch.softmax(x, 1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "two_passes": lambda x: (x - x.amax(1, keepdim=True)).exp().sum(1),
}
COLUMNS = 5000
SOURCES = {
    "roll_at_both_ends": lambda x: x + x.roll(5, 1) * x.roll(-7, 1),
    "roll_at_the_first_columns": lambda x: x * x.roll(3, 1),
    "roll_at_the_last_columns": lambda x: x * x.roll(-3, 1),
    "pad": lambda x: F.pad(x, (9, 4)),
    "joined": lambda x: torch.cat([x[:, :2100] * 2, x[:, 2100:].exp()], 1),
    "causal": lambda x: x.masked_fill(
        torch.arange(COLUMNS, device=x.device) > torch.arange(len(x), device=x.device)[:, None],
        float("-inf"),
    ),
    "anticausal": lambda x: torch.where(
        torch.arange(COLUMNS, device=x.device)
        < 40 * torch.arange(len(x), device=x.device)[:, None],
        0.5,
        x,
    ),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reductions_by_parts(reduction, source):
    def fn(x):
        return REDUCTIONS[reduction](SOURCES[source](x))

    x = torch.randn(131, COLUMNS, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    torch._dynamo.reset()
    got, want = torch.compile(fn, backend="piecewise", options=SEAMS)(x), fn(x)
    atol = 2e-5 * x.abs().max().item()
    torch.testing.assert_close(got, want, rtol=2e-4, atol=atol, equal_nan=True)


def test_an_input_that_is_written_to():
    def fn(x, y):
        x.copy_(torch.cat([x[:100] * 2, y.exp()], 0))
        return x + 1

    torch._dynamo.reset()
    x, y = torch.randn(300, 500, device="cuda"), torch.randn(200, 500, device="cuda")
    mine, theirs = x.clone(), x.clone()
    got = torch.compile(fn, backend="piecewise", options=SEAMS)(mine, y)
    torch.testing.assert_close(got, fn(theirs, y))
    torch.testing.assert_close(mine, theirs)
