"""The specification of the loop IR's operations, and the check that a nest follows it.

`OPS` names every operation with its parameters, the dtype of its value and how torch computes it.
The names and meanings are those of torch Inductor's `OpsHandler` (read `ops_handler.py` there);
the table is this project's own, so that `loops/` runs without Inductor. `unsupported` says why
the few operations that are left out are.

A parameter is written `kind:name`, or `name` alone for a value. The kinds:

    value    a `Ref` or a Python number         buffer   a buffer's name
    expr     a sympy expression or an int       dtype    a torch dtype
    block    a nested block                     symbol   the sympy symbol that the op defines
    values   a value or a tuple of values       any      anything (flags, modes, text)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from . import arithmetic as arith
from .dtypes import (
    Bound,
    DtypeRule,
    Scope,
    always,
    given,
    of_block,
    of_buffer,
    of_operand,
    promoted,
)
from .ir import Arg, Dtype, LoopNest, Op, Ref


@dataclass(frozen=True)
class Param:
    """One parameter of an operation; `default` counts only where `optional`."""

    name: str
    kind: str = "value"
    optional: bool = False
    default: Arg = None


@dataclass(frozen=True)
class OpSpec:
    """What one operation takes, gives and does.

    `evaluate` computes it on torch tensors; None where it is not a function of its operands alone
    (loads, reductions, masked blocks: the interpreter's own work) or has no evaluator (random
    numbers). `side_effect` marks operations that must stay although nothing uses their value.
    """

    name: str
    params: tuple[Param, ...]
    dtype: DtypeRule
    evaluate: Callable[..., Any] | None = None
    side_effect: bool = False

    @property
    def arity(self) -> tuple[int, int]:
        return sum(not p.optional for p in self.params), len(self.params)

    def bind(self, args: tuple[Arg, ...], kwargs: Mapping[str, Arg]) -> Bound:
        """The arguments by parameter name, defaults filled in; TypeError where they don't fit."""
        names = [p.name for p in self.params]
        if len(args) > len(names):
            raise TypeError(f"{self.name} takes at most {len(names)} arguments, got {len(args)}")
        bound = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names:
                raise TypeError(f"{self.name} has no parameter {name!r}")
            if name in bound:
                raise TypeError(f"{self.name} got {name!r} twice")
            bound[name] = value
        for p in self.params:
            if p.name not in bound and not p.optional:
                raise TypeError(f"{self.name} needs {p.name!r}")
            bound.setdefault(p.name, p.default)
        return bound


OPS: dict[str, OpSpec] = {}

# Reduction types and how many values each gives.
REDUCTIONS = {
    "sum": 1, "prod": 1, "max": 1, "min": 1, "fmax": 1, "any": 1, "xor_sum": 1,
    "argmax": 1, "argmin": 1, "welford_reduce": 3, "welford_combine": 3,
    "online_softmax_reduce": 2,
}  # fmt: skip
STORE_MODES = (None, "atomic_add")

_UNSUPPORTED = {
    "scan": "its combine function is a closure of Inductor's, which a nest cannot hold as data",
    "sort": "it orders a whole axis at once, so no range of that axis can run alone",
    "halide_clamp": "only Inductor's Halide backend emits it",
    "inline_asm_elementwise": "it holds GPU assembly, which cannot be checked or evaluated here",
    "partial_accumulate": "it is part of Inductor's mix-order reductions on the GPU",
    "dot": "it is a matrix product on Triton's tensor cores, not a scalar operation",
    "output": "it only marks the end of a block in Inductor's analyses",
    "placeholder": "it only marks an input of a block in Inductor's analyses",
}


def unsupported(name: str) -> str:
    """Why the operation `name` cannot be expressed in the loop IR; "" if it can."""
    if name in OPS:
        return ""
    return _UNSUPPORTED.get(name, f"{name!r} is no operation that this version knows")


_DEFAULTS: dict[str, Arg] = {"None": None, "True": True, "False": False}


def _parse_params(text: str) -> tuple[Param, ...]:
    params = []
    for word in text.split():
        word, _, default = word.partition("=")
        kind, _, name = word.rpartition(":")
        params.append(Param(name, kind or "value", bool(default), _DEFAULTS.get(default)))
    return tuple(params)


def _op(
    name: str,
    params: str,
    dtype: DtypeRule,
    evaluate: Callable[..., Any] | None = None,
    side_effect: bool = False,
) -> None:
    OPS[name] = OpSpec(name, _parse_params(params), dtype, evaluate, side_effect)


def _ops(params: str, dtype: DtypeRule, **evaluate: Callable[..., Any]) -> None:
    for name, function in evaluate.items():
        _op(name, params, dtype, function)


def _memory() -> None:
    _op("load", "buffer:name expr:index", of_buffer)
    _op("store", "buffer:name expr:index value any:mode=None", always(None), side_effect=True)
    _op("store_reduction", "buffer:name expr:index value", always(None), side_effect=True)
    _op("load_seed", "buffer:name expr:offset", of_buffer)
    _op("masked", "mask block:body other", of_block)
    _op("reduction", "dtype:dtype dtype:src_dtype any:reduction_type values:value", given("dtype"))
    _op("getitem", "values:value any:index", of_operand)
    index = "symbol:symbol value expr:size any:check=True any:wrap_neg=True"
    _op("indirect_indexing", index, always(torch.int64), side_effect=True)
    check = "expr:expr expr:size any:lower any:upper"
    _op("check_bounds", check, always(None), side_effect=True)
    _op("device_assert_async", "cond any:msg", always(None), side_effect=True)
    bucketize = "values any:boundaries boundary_indices dtype:indexing_dtype any:right"
    bucketize += " any:sorter=None any:sorter_indices=None"
    _op("bucketize", bucketize, given("indexing_dtype"))


def _constants_and_casts() -> None:
    _op("constant", "any:value dtype:dtype", given("dtype"))
    _op("index_expr", "expr:expr dtype:dtype", given("dtype"))
    _op("value_expr", "expr:expr dtype:dtype", given("dtype"))
    cast = "x dtype:dtype any:src_dtype=None any:use_compute_types=True"
    _op("to_dtype", cast, given("dtype"), arith.to_dtype)
    _op("to_dtype_bitcast", "x dtype:dtype dtype:src_dtype", given("dtype"), arith.bitcast)
    rounding = {"trunc": torch.trunc, "floor": torch.floor, "ceil": torch.ceil}
    rounding["round"] = torch.round
    for name, function in rounding.items():
        to_int = functools.partial(arith.round_to, function)
        params = cast if name == "round" else "x dtype:dtype"
        _op(f"{name}_to_int", params, given("dtype"), to_int)


def _random() -> None:
    for name in ("rand", "randn"):
        _op(name, "seed offset", always(torch.float32))
    _op("rand_eager", "seed base_offset threads_per_round tid vec", always(torch.float32))
    _op("randint64", "seed offset low high", always(torch.int64))


def _arithmetic() -> None:
    _ops("x", promoted("x"), abs=torch.abs, neg=torch.neg, square=torch.square, relu=arith.relu,
         sign=torch.sign, identity=arith.identity, ceil=torch.ceil, trunc=torch.trunc,
         bitwise_not=torch.bitwise_not)  # fmt: skip
    _ops("x y", promoted("x", "y"), add=torch.add, sub=arith.sub, mul=torch.mul,
         mul_rn=torch.mul, truediv=torch.true_divide, div_rn=torch.true_divide,
         maximum=arith.maximum, minimum=arith.minimum, fmaximum=torch.fmax, pow=torch.pow,
         mod=arith.fmod, fmod=arith.fmod, remainder=arith.remainder, floordiv=arith.floordiv,
         truncdiv=arith.truncdiv, bitwise_and=torch.bitwise_and, bitwise_or=torch.bitwise_or,
         bitwise_xor=torch.bitwise_xor, bitwise_left_shift=torch.bitwise_left_shift,
         bitwise_right_shift=torch.bitwise_right_shift)  # fmt: skip
    _ops("x y", promoted("x"), lshift=torch.bitwise_left_shift, rshift=torch.bitwise_right_shift)
    _op("where", "condition input other", promoted("input", "other"), arith.where)


def _comparisons() -> None:
    bool_ = always(torch.bool)
    _ops("x y", bool_, eq=torch.eq, ne=torch.ne, lt=torch.lt, le=torch.le, gt=torch.gt,
         ge=torch.ge, logical_and=torch.logical_and, logical_or=torch.logical_or,
         logical_xor=torch.logical_xor, and_=arith.as_bool(torch.bitwise_and),
         or_=arith.as_bool(torch.bitwise_or), xor=arith.as_bool(torch.bitwise_xor))  # fmt: skip
    _ops("x", bool_, logical_not=torch.logical_not, isnan=torch.isnan, isinf=torch.isinf,
         signbit=torch.signbit)  # fmt: skip


def _functions() -> None:
    one, two = promoted("x", to_float=True), promoted("x", "y", to_float=True)
    for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin",
                 "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh",
                 "atanh", "sigmoid", "erf", "erfc", "erfinv", "lgamma", "digamma", "floor",
                 "round", "reciprocal"):  # fmt: skip
        _op(name, "x", one, arith.in_float(getattr(torch, name)))
    _op("frexp", "x", always(None), arith.in_float(torch.frexp))
    for name in ("atan2", "hypot", "copysign", "nextafter", "ldexp", "igamma", "igammac"):
        _op(name, "x y", two, arith.in_float(getattr(torch, name)))
    _op("int_truediv", "x y", two, torch.true_divide)
    _op("fma", "x y z", promoted("x", "y", "z", to_float=True), arith.fma)


def _special_functions() -> None:
    one, two = promoted("x", to_float=True), promoted("x", "y", to_float=True)
    for name in ("airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "erfcx", "i0",
                 "i0e", "i1", "i1e", "log_ndtr", "ndtr", "ndtri", "modified_bessel_i0",
                 "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1",
                 "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
                 "spherical_bessel_j0"):  # fmt: skip
        _op(name, "x", one, arith.in_float(getattr(torch.special, name)))
    polynomials = ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l",
                   "legendre_polynomial_p"]  # fmt: skip
    polynomials += [f"{s}chebyshev_polynomial_{k}" for s in ("", "shifted_") for k in "tuvw"]
    for name in (*polynomials, "gammainc", "gammaincc", "zeta"):
        _op(name, "x y", two, arith.in_float(getattr(torch.special, name)))
    _op("polygamma", "x y", two, arith.polygamma)


for _fill in (_memory, _constants_and_casts, _random, _arithmetic, _comparisons, _functions,
              _special_functions):  # fmt: skip
    _fill()


def result_dtype(
    name: str,
    args: tuple[Arg, ...],
    kwargs: Mapping[str, Arg] | Iterable[tuple[str, Arg]],
    dtype_of: Callable[[Ref], Dtype],
    buffer_dtype: Callable[[str], Dtype],
) -> Dtype:
    """The dtype of an operation's value; None where it gives none, several, or it's not known."""
    spec = OPS[name]
    return spec.dtype(spec.bind(args, dict(kwargs)), Scope(dtype_of, buffer_dtype))


def bind(op: Op) -> Bound:
    """The arguments of an operation by parameter name, defaults filled in."""
    return OPS[op.name].bind(op.args, dict(op.kwargs))


class MalformedNest(ValueError):
    """A nest that does not follow the specification; the text says which body and operation."""


def check(nest: LoopNest) -> None:
    """Raises `MalformedNest` unless `nest` follows the specification."""
    from .wellformed import Checker  # it needs this module whole

    Checker(nest).run()
