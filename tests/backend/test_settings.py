"""Modes, Inductor's own options, graph breaks, user errors, forms of calling torch.compile."""

import pytest
import torch
import torch.nn.functional as F

import torch_piecewise

from .harness import BACKEND, compiled, raises_as_plain, same_as_plain

X = (64, 96)


def fn(x, y):
    z = torch.roll(x, 3, 1) * 2 + F.pad(y, (1, -1))
    return torch.cat([z, y], 1) + 1, torch.where(torch.arange(96) < 40, z, x)


def args():
    return torch.randn(X), torch.randn(X)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune-no-cudagraphs"])
def test_modes(mode):
    torch._dynamo.reset()
    x, y = args()
    expected = torch.compile(fn, backend="inductor", mode=mode)(x, y)
    got = torch.compile(fn, backend=BACKEND, mode=mode)(x, y)
    for a, b in zip(got, expected, strict=True):
        assert torch.equal(a, b) and a.stride() == b.stride()


OPTIONS = [
    {"cpp_wrapper": True},
    {"cpp.simdlen": 1},
    {"force_pointwise_cat": True},
    {"max_autotune": True, "epilogue_fusion": False, "freezing": True},
    {"max_autotune": True},
    {"epilogue_fusion": False},
    {"cpp.simdlen": 256},
    {"freezing": True},
    {"cpp.threads": 1},
    {"cpp.dynamic_threads": True},
    {"inplace_buffers": False},
    {"size_asserts": False, "nan_asserts": True},
    {"cpp.enable_kernel_profile": True},
    {"realize_opcount_threshold": 2, "max_fusion_size": 1},
    {"cpp.enable_tiling_heuristics": False},
    {"cpp.enable_loop_tail_vec": False},
    {"cpp.fallback_scatter_reduce_sum": False},
    {"emulate_precision_casts": True},
    {"fx_graph_cache": False},
    {"compile_threads": 1},
    {"cpp.max_horizontal_fusion_size": 1},
]


def name(options):
    return ",".join(f"{k}={v}" for k, v in options.items())


@pytest.mark.parametrize("options", OPTIONS[:4], ids=name)
def test_options(options):
    with torch.no_grad():  # freezing is for inference
        same_as_plain(fn, *args(), options=options)


@pytest.mark.long
@pytest.mark.parametrize("options", OPTIONS[4:], ids=name)
def test_more_options(options):
    same_as_plain(fn, *args(), options=options)


def test_one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        same_as_plain(fn, *args())
    finally:
        torch.set_num_threads(threads)


def test_fullgraph_and_decorator_forms():
    x, y = args()
    expected = fn(x, y)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(fn, backend=BACKEND, fullgraph=True)(x, y), expected)
    decorated = torch.compile(backend=BACKEND)(lambda x, y: fn(x, y))
    torch.testing.assert_close(decorated(x, y=y), expected)
    module = torch.nn.Sequential(torch.nn.CircularPad1d(3), torch.nn.ReLU())
    before = module(x)
    module.compile(backend=BACKEND)
    torch.testing.assert_close(module(x), before)


def test_graph_breaks():
    def broken(x, flag):
        y = torch.roll(x, 3, 1) + x
        torch._dynamo.graph_break()
        if flag and y.sum() > -1e9:
            y = F.pad(y, (1, 2)) * 2
        return y, len(str(y.dtype))

    same_as_plain(broken, torch.randn(X), True)


def test_structures_in_and_out():
    def nested(items, *, scale, **rest):
        first, (second, third) = items["a"], items["b"]
        return {"x": torch.roll(first, 1, 0) * scale, "y": [second, None], **rest}, third

    a, b = args()
    same_as_plain(lambda i: nested(i, scale=2.0, more=3), {"a": a, "b": (b, "text")})


@pytest.mark.parametrize("split", ["seams"])
def test_errors_in_user_code_come_through(split):
    class Oops(Exception):
        pass

    def raising(x):
        y = torch.roll(x, 1, 0) + 1
        if x.shape[0] == 64:
            raise Oops("mine")
        return y

    with pytest.raises(Oops, match="mine"):
        compiled(raising, split)(torch.randn(X))
    with pytest.raises(RuntimeError):
        compiled(lambda x: torch.roll(x, 1, 0) @ x, split)(torch.randn(X))
    x = torch.randn(65, 96)
    torch.testing.assert_close(compiled(raising, split)(x), torch.roll(x, 1, 0) + 1)


OUT_OF_BOUNDS = """
import torch.nn.functional as F
x, good, bad = torch.randn(64, 96), torch.tensor([0, 63, -1]), torch.tensor([0, 64])
indexed = lambda x, at: F.pad(x, (1, 1))[at] * 2
call = compiled(indexed)
torch.testing.assert_close(call(x, good), indexed(x, good))
print("so far fine", flush=True)
call(x, bad)
print("out of bounds went unseen")
"""


def test_index_out_of_bounds_still_raises():
    """The checks of indirect loads are kept."""
    raises_as_plain(OUT_OF_BOUNDS, "out of bounds")


def test_control_flow_operators():
    def chosen(flag, x):
        return torch.cond(flag.any(), lambda t: torch.roll(t, 1, 0) + t, lambda t: t * 2, (x,))

    for flag in (torch.ones(1), torch.zeros(1)):
        same_as_plain(chosen, flag, torch.randn(X))


@pytest.mark.parametrize(
    ("options", "error", "parts"),
    [
        ({"splitt": "off"}, "OptionError", "nearest valid: 'split'"),
        ({"split": "of"}, "OptionError", "did you mean 'off'"),
        ({"max_autotune": "yes"}, "OptionError", "a bool"),
        ({"memory_budget": "512MiB"}, "NotYetAvailable", "is planned"),
        ({"cpu_backend": "halide"}, "UnsupportedSetting", 'set it to "cpp"'),
        ({"cpp.cxx": ("no-such-compiler",)}, "CompilerMissing", "no-such-compiler"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input_is_named(options, error, parts):
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=error) as caught:
        compiled(fn, options={"fx_graph_cache": False, **options})(*args())
    assert parts in str(caught.value)
    assert isinstance(caught.value.inner_exception, torch_piecewise.PiecewiseError)
