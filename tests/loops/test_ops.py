"""The specification of the operations against Inductor's own lists and rules."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch._inductor.ops_handler import OP_NAMES

from torch_piecewise.loops import ops, text
from torch_piecewise.loops.ir import Block, Op, Ref

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.bool)
POINTWISE = [
    spec
    for spec in ops.OPS.values()
    if spec.evaluate and all(p.kind == "value" for p in spec.params)
]


def no_buffer(name: str) -> torch.dtype:
    raise AssertionError(f"buffer {name} asked for")


def test_every_operation_of_inductor_is_specified_or_refused_with_a_reason() -> None:
    missing = [n for n in OP_NAMES if n not in ops.OPS and "knows" in ops.unsupported(n)]
    assert not missing
    for name in OP_NAMES:
        assert bool(ops.unsupported(name)) == (name not in ops.OPS)
    assert "closure" in ops.unsupported("scan")
    assert "no operation" in ops.unsupported("frobnicate")


class Typed:
    """What Inductor's dtype rules take for a value."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype


@pytest.mark.parametrize("spec", POINTWISE, ids=lambda spec: spec.name)
def test_dtype_rules_are_those_of_inductor(spec: ops.OpSpec) -> None:
    from torch._inductor import lowering  # noqa: F401 (it registers the rules)
    from torch._inductor.dtype_propagation import DtypePropagationOpsHandler

    rule = getattr(DtypePropagationOpsHandler(), spec.name, None)
    if rule is None or spec.name == "frexp":
        pytest.skip("Inductor has no rule of one dtype for it")
    for dtypes in itertools.product(DTYPES, repeat=len(spec.params)):
        refs = tuple(Ref(k) for k in range(len(dtypes)))
        got = ops.result_dtype(spec.name, refs, (), lambda r, d=dtypes: d[r.id], no_buffer)
        assert got == rule(*map(Typed, dtypes)), dtypes


@pytest.mark.parametrize("number", [True, 2, 0.5])
@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_promote_as_in_torch(dtype: torch.dtype, number: float) -> None:
    got = ops.result_dtype("add", (Ref(0), number), (), lambda r: dtype, no_buffer)
    assert got == torch.result_type(torch.empty(1, dtype=dtype), number)


@pytest.mark.parametrize("spec", POINTWISE, ids=lambda spec: spec.name)
def test_evaluators_give_the_dtype_that_the_rule_says(spec: ops.OpSpec) -> None:
    if spec.name == "frexp":
        pytest.skip("it gives two values")
    bits = any(word in spec.name for word in ("bitwise", "shift", "and_", "or_", "xor"))
    for dtype in (
        (torch.int64, torch.int32) if bits else (torch.float32, torch.float64, torch.int64)
    ):
        operands = [torch.ones(2, dtype=dtype) for _ in spec.params]
        assert spec.evaluate is not None
        value = spec.evaluate(*operands)
        refs = tuple(Ref(k) for k in range(len(operands)))
        expected = ops.result_dtype(spec.name, refs, (), lambda _, d=dtype: d, no_buffer)
        # dividing integers is not valid there, but torch does it in float
        divides = spec.name in ("truediv", "div_rn") and not dtype.is_floating_point
        assert value.dtype == expected or divides, dtype


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("mod", (-7, 3), -1),
        ("fmod", (-7, 3), -1),
        ("remainder", (-7, 3), 2),
        ("floordiv", (-7, 3), -3),
        ("truncdiv", (-7, 3), -2),
        ("floordiv", (7, 0), 0),  # undefined, but it may stand at a point that is masked off
        ("int_truediv", (7, 2), 3.5),
        ("maximum", (math.nan, 1.0), math.nan),
        ("maximum", (1.0, math.nan), math.nan),
        ("fmaximum", (1.0, math.nan), 1.0),
        ("relu", (-2.0,), 0.0),
        ("relu", (math.nan,), math.nan),
        ("fma", (2.0, 3.0, 4.0), 10.0),
        ("rsqrt", (4.0,), 0.5),
        ("sigmoid", (0.0,), 0.5),
        ("bitwise_left_shift", (1, 70), 0),
        ("signbit", (-0.0,), True),
        ("and_", (True, False), False),
        ("logical_xor", (2, 3), False),
        ("sub", (True, True), False),
        ("polygamma", (1, 1.0), math.pi**2 / 6),
        ("ldexp", (1.5, 3), 12.0),
    ],
)
def test_evaluators(name: str, operands: tuple[float, ...], expected: float) -> None:
    evaluate = ops.OPS[name].evaluate
    assert evaluate is not None
    (value,) = evaluate(*(torch.tensor([x]) for x in operands)).tolist()
    assert value == pytest.approx(expected, nan_ok=True)


def test_fma_rounds_once() -> None:
    x = torch.tensor([1 + 2**-12], dtype=torch.float32)
    fma = ops.OPS["fma"].evaluate
    assert fma is not None
    assert fma(x, x, -x * x) != 0


def test_casts() -> None:
    evaluate = {name: ops.OPS[name].evaluate for name in ops.OPS if "to_" in name}
    value = torch.tensor([2.5, -2.5], dtype=torch.float32)
    assert evaluate["round_to_int"](value, torch.int64).tolist() == [2, -2]  # type: ignore[misc]
    assert evaluate["floor_to_int"](value, torch.int32).tolist() == [2, -3]  # type: ignore[misc]
    bits = evaluate["to_dtype_bitcast"](value, torch.int32, torch.float32)  # type: ignore[misc]
    assert bits.tolist() == [0x40200000, 0xC0200000 - 2**32]


def test_arguments_by_name() -> None:
    bound = ops.bind(Op(0, "store", ("x", 3, Ref(1)), (("mode", "atomic_add"),)))
    assert bound == {"name": "x", "index": 3, "value": Ref(1), "mode": "atomic_add"}
    assert ops.bind(Op(0, "to_dtype", (Ref(1), torch.int64)))["use_compute_types"] is True
    assert ops.OPS["to_dtype"].arity == (2, 4)
    for op in (
        Op(0, "neg", ()),
        Op(0, "neg", (1, 2)),
        Op(0, "neg", (1,), (("x", 1),)),
        Op(0, "neg", (1,), (("y", 1),)),
    ):
        with pytest.raises(TypeError, match="neg"):
            ops.bind(op)


def test_a_masked_value_has_the_dtype_of_its_block() -> None:
    block = Block((), Ref(1))
    dtypes = {0: torch.bool, 1: torch.float32, 2: None}
    args = (Ref(0), block, 0)
    look = lambda r: dtypes[r.id]  # noqa: E731
    assert ops.result_dtype("masked", args, (), look, no_buffer) == torch.float32
    args = (Ref(0), Block((), Ref(2)), 0.5)
    assert ops.result_dtype("masked", args, (), look, no_buffer) == torch.float32
    assert ops.result_dtype("getitem", (Ref(2), 0), (), look, no_buffer) is None


HEAD = """
nest n (i0: 4; r0: 3)
buffers x: f32, y: f32
body b for i0, reduce r0:
"""
MALFORMED = {
    "  %0: f32 = load(z, [i0])": "buffer 'z' is not declared",
    "  %0: f32 = load(x, %1)": "must be an expression",
    "  %0: f32 = neg(%1)": "%1 is not defined here",
    "  %0: f32 = neg('x')": "must be a value or a number",
    "  %0: f32 = neg(1, 2)": "takes at most 1",
    "  %0: f64 = load(x, [i0])": "gives torch.float32, but torch.float64 is written",
    "  %0: f32 = load(x, [t0])": "uses t0, not defined here",
    "  %0: f32 = scan(1)": "cannot be expressed: its combine function",
    "  store(x, [i0], 1.0, 'tma')": "store mode 'tma' is not supported",
    "  store_reduction(x, [r0], 1.0)": "its index uses the reduction axes",
    "  %0: f32 = reduction(f32, f32, 'median', 1.0)": "reduction 'median' is not supported",
    "  %0: f32 = reduction(f32, f32, 'welford_reduce', 1.0)\n  %1: f32 = neg(%0)": "use getitem",
    "  %0: f32 = load(x, [i0])\n  %1: f32 = getitem(%0, 0)": "several values",
    "  %0: f32 = load(x, [i0])\n  %0: f32 = neg(%0)": "id 0 is used twice",
    "  indirect_indexing([i0], 1, [4], True, True)": "has a meaning already",
    "  store(x, [i0], 1.0)\n  %1: f32 = neg(%0)": "%0 gives no value",
    "  %1: f32 = masked(True, {\n    %0: f32 = load(x, [i0])\n  }, 0.0)": "the block's result",
    "  %1: f32 = masked(True, {\n    %0: f32 = load(x, [i0])\n    yield %0\n  }, 0.0)\n"
    "  %2: f32 = neg(%0)": "%0 is not defined here",
    "  %1: f32 = masked(True, {\n    %0: f32 = reduction(f32, f32, 'sum', 1.0)\n    yield %0\n"
    "  }, 0.0)": "cannot be in a masked block",
    "  %0: f32 = constant(1.0, f32)\n  yield %0": "outermost block gives no value",
}


@pytest.mark.parametrize("lines", MALFORMED)
def test_a_malformed_nest_is_refused(lines: str) -> None:
    with pytest.raises(ops.MalformedNest) as caught:
        ops.check(text.parse(HEAD + lines))
    assert MALFORMED[lines] in str(caught.value)
    assert "nest n, body b" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nest n (i0: s0)", "the size of axis i0"),
        ("nest n (i0: 4, i0: 5)", "two axes"),
        ("nest n (i0: 4)\nbuffers x: f32, x: f32", "declared twice"),
        ("nest n (i0: 4)\nbody b for reduce i0:", "no reduction axis"),
        ("nest n (i0: 4)\nbody b for i0, i0:", "listed twice"),
    ],
)
def test_a_malformed_frame_is_refused(source: str, message: str) -> None:
    source = source.replace("i0: s0", "i0: symbol('s0', integer=True)")
    with pytest.raises(ops.MalformedNest, match=message):
        ops.check(text.parse(source))


def test_indirect_symbols_reach_into_nested_blocks_and_not_out() -> None:
    inside = """
nest n (i0: 4)
buffers x: f32
body b for i0:
  indirect_indexing([t0], 1, [4], True, True)
  %2: f32 = masked(True, {
    indirect_indexing([t1], 1, [4], True, True)
    %1: f32 = load(x, [t0 + t1])
    yield %1
  }, 0.0)
"""
    inside = inside.replace("    indirect", "    %5 = indirect")
    ops.check(text.parse(inside))
    with pytest.raises(ops.MalformedNest, match="uses t1"):
        ops.check(text.parse(inside + "  %7: f32 = load(x, [t1])\n"))
