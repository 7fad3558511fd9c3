"""A graph that is cut into pieces by ranges: each compiled by itself, one entry that calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch._guards import TracingContext, detect_fake_mode
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.utils import BoxedBool
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from torch_piecewise.config import Config
from torch_piecewise.errors import RangeError
from torch_piecewise.graph.axes import is_tensor
from torch_piecewise.graph.cutting import parts_for, regions_for, returned, target_of
from torch_piecewise.graph.normal import normalise
from torch_piecewise.graph.parts import Part
from torch_piecewise.graph.pieces import buffer_like
from torch_piecewise.graph.regions import find_from
from torch_piecewise.plan.plan import Plan, Reason, RegionPlan
from torch_piecewise.plan.regions import region_plans
from torch_piecewise.run.buffers import Pool
from torch_piecewise.run.entry import Entry, load

from . import scope

ALIGNED = 64  # bytes; inputs that begin at a multiple may be read by vectors
view: Any = getattr(torch._C._dynamo.guards, "_reinterpret_tensor")  # noqa: B009  (no stub)


def compile_in_ranges(gm: GraphModule, config: Config, **kwargs: Any) -> Callable[..., Any]:
    """The graph cut along the dim of its first output, as `config.ranges` says.

    A backward is cut along the same dim of the gradient of that output as far as that goes.
    """
    assert config.ranges is not None
    normalise(gm.graph)
    if kwargs.get("is_backward"):
        return _backward(gm, config, **kwargs)
    target, dim, ranges = target_of(returned(gm), config.ranges, config.dim)
    if not ranges:
        return whole(gm, f"dim {dim} of its output has no positions", **kwargs)
    regions = regions_for(gm.graph, target, dim, ranges, config.ranges)
    parts = parts_for(gm, regions, ranges, (target, dim), config.ranges)
    return stitched(gm, parts, region_plans(regions, ranges, dim), **kwargs)


def _backward(gm: GraphModule, config: Config, **kwargs: Any) -> Callable[..., Any]:
    assert config.ranges is not None
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    tangent = next((n for n in placeholders if n.name.startswith("tangents")), None)
    why = "it has no gradient of an output"
    if tangent is not None and is_tensor(tangent):
        try:
            target, dim, ranges = target_of([tangent], config.ranges, config.dim)
        except RangeError as error:
            why = str(error)
        else:
            if not ranges:
                return whole(gm, f"dim {dim} of the gradient has no positions", **kwargs)
            regions = find_from(gm.graph, {target: dim})
            why = "; ".join(refused.text for refused in regions.refused) or "nothing reads it"
            try:
                parts = parts_for(gm, regions, ranges, (target, dim), config.ranges)
            except RangeError as error:
                why = str(error)
            else:
                if any(part.range is not None for part in parts):
                    return stitched(gm, parts, region_plans(regions, ranges, dim), **kwargs)
    return whole(gm, why, **kwargs)


def whole(gm: GraphModule, why: str, **kwargs: Any) -> Callable[..., Any]:
    """The graph as Inductor compiles it, and a note that says why."""
    note = Reason("whole", "graph", f"compiled as one graph: {why}")
    with _one_report((), (note,), **kwargs):
        compiled: Callable[..., Any] = compile_fx_inner(gm, inputs_of(gm), **kwargs)
    return compiled


def stitched(
    gm: GraphModule, parts: Sequence[Part], plans: tuple[RegionPlan, ...], **kwargs: Any
) -> Callable[..., Any]:
    """The parts of a graph compiled, and the entry that calls them."""
    results = returned(gm)
    inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
    held = {n: getattr(gm, n.target) for n in gm.graph.nodes if n.op == "get_attr"}
    entry = Entry(inputs, results, parts, held)
    source = entry.source()
    with _one_report(plans, **kwargs):
        compiled = compile_parts(parts, **kwargs)
    call: Any = load(source, {**compiled, **entry.constants, "pool": Pool(), "view": view})
    call._boxed_call = True
    _tell_strides(results)
    entry_of: Callable[..., Any] = call
    return entry_of


def inputs_of(gm: GraphModule) -> list[Any]:
    """The traced inputs of a graph."""
    return [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"]


def compile_parts(parts: Sequence[Part], **kwargs: Any) -> dict[str, Callable[..., Any]]:
    """The parts by name, each compiled by itself; equal ones once."""
    done: dict[object, Callable[..., Any]] = {}
    compiled = {}
    for part in parts:
        key = same_code(part)
        if key not in done:
            done[key] = compile_part(part, **kwargs)
        compiled[part.name] = done[key]
    return compiled


def same_code(part: Part) -> object:
    """Equal for parts that are the same graph, with inputs of the same form and alignment."""
    return part.module.code, tuple(map(_form, inputs_of(part.module)))


def _form(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return str(value)
    offset = value.storage_offset() * value.itemsize % ALIGNED
    return f"{tuple(value.shape)} {value.stride()} {value.dtype} {value.device} {offset}"


def compile_part(part: Part, **kwargs: Any) -> Callable[..., Any]:
    """One part, as Inductor compiles a graph."""
    given = inputs_of(part.module)
    module = decomposed(part.module, given)
    output = module.graph.output_node()  # the entry relies on their strides
    output.meta["user_visible_output_idxs"] = list(range(len(part.results)))
    own = {**kwargs, "static_input_idxs": (), "cudagraphs": BoxedBool(False)}
    with _apart():
        compiled: Callable[..., Any] = compile_fx_inner(module, given, **own)
    return compiled


def decomposed(module: GraphModule, given: Sequence[Any]) -> GraphModule:
    """The operators that rules wrote, as Inductor expects them after AOTAutograd."""
    table = select_decomp_table()
    if not any(node.target in table for node in module.graph.nodes):
        return module
    mode = detect_fake_mode(given)
    with mode if mode is not None else nullcontext():
        return make_fx(module, decomposition_table=table)(*given)


@contextmanager
def _one_report(
    regions: tuple[RegionPlan, ...], more: tuple[Reason, ...] = (), **kwargs: Any
) -> Iterator[None]:
    """The plans of the parts, heard as one of the whole graph."""
    mine = scope.current()
    assert mine is not None
    report, heard = mine.report, list[Plan]()
    mine.report = heard.append
    try:
        yield
    finally:
        mine.report = report
    kinds = {(True, False): "backward", (False, True): "inference"}
    kind = kinds.get((bool(kwargs.get("is_backward")), bool(kwargs.get("is_inference"))), "forward")
    if report is not None:
        nests = tuple(nest for plan in heard for nest in plan.nests)
        notes = tuple(dict.fromkeys(note for plan in heard for note in plan.notes))
        report(Plan(kind, nests, (*more, *notes), regions))


@contextmanager
def _apart() -> Iterator[None]:
    """What AOTAutograd and Inductor tell each other about the whole graph isn't of its parts.

    That is what strides the results have, and which inputs of a backward may be overwritten.
    """
    context = TracingContext.try_get()
    if context is None:
        yield
        return
    metadata: Any = context.fw_metadata
    strides, context.output_strides = context.output_strides, None
    donated = getattr(metadata, "bw_donated_idxs", None)
    if donated:
        metadata.bw_donated_idxs = []
    try:
        yield
    finally:
        context.output_strides = strides
        if donated:
            metadata.bw_donated_idxs = donated


def _tell_strides(results: Sequence[Any]) -> None:
    """Tell AOTAutograd what strides the results of the whole have."""
    context = TracingContext.try_get()
    if context is None or context.output_strides is None:
        return
    for result in results:
        tensor = isinstance(result, Node) and is_tensor(result)
        strides: Any = tuple(buffer_like(result).stride()) if tensor else None
        context.output_strides.append(strides)
