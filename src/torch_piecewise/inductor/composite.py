"""A graph that is cut into pieces by ranges: each compiled by itself, one entry that calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch._guards import TracingContext, detect_fake_mode
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.decomposition import select_decomp_table
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from torch_piecewise.config import Config
from torch_piecewise.graph.axes import is_tensor, shape
from torch_piecewise.graph.cutting import regions_for, returned, target_of
from torch_piecewise.graph.parts import Cutter, Part
from torch_piecewise.graph.pieces import buffer_like
from torch_piecewise.run.buffers import Pool
from torch_piecewise.run.entry import Entry, load

ALIGNED = 64  # bytes; inputs that begin at a multiple may be read by vectors
view = torch._C._dynamo.guards._reinterpret_tensor


def compile_in_ranges(gm: GraphModule, config: Config, **kwargs: Any) -> Callable[..., Any]:
    """The graph cut along the dim of its first output, as `config.ranges` says."""
    assert config.ranges is not None
    results = returned(gm)
    target, dim, ranges = target_of(results, config.ranges, config.dim)
    regions = regions_for(gm.graph, target, dim, ranges, config.ranges)
    nodes = [r for r in results if isinstance(r, Node)]
    cutter = Cutter(gm.graph, regions, ranges, shape(target)[dim], nodes)
    parts = list(cutter.parts())
    inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
    entry = Entry(inputs, results, parts)
    source = entry.source()
    compiled = compile_parts(parts, **kwargs)
    call = load(source, {**compiled, **entry.constants, "pool": Pool(), "view": view})
    call._boxed_call = True
    _tell_strides(results)
    return call


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
    inputs = tuple(
        (tuple(v.shape), v.stride(), v.dtype, v.device, v.storage_offset() * v.itemsize % ALIGNED)
        if isinstance(v, torch.Tensor)
        else v
        for v in values_of(part)
    )
    return part.module.code, inputs


def values_of(part: Part) -> list[Any]:
    """The traced inputs of a part."""
    nodes = part.module.graph.nodes
    return [n.meta["val"] for n in nodes if n.op == "placeholder"]


def compile_part(part: Part, **kwargs: Any) -> Callable[..., Any]:
    """One part, as Inductor compiles a graph."""
    given = values_of(part)
    module = decomposed(part.module, given)
    output = module.graph.output_node()  # the entry relies on their strides
    output.meta["user_visible_output_idxs"] = list(range(len(part.results)))
    own = {**kwargs, "static_input_idxs": (), "cudagraphs": None}
    with _strides_unheard():
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
def _strides_unheard() -> Any:
    """Parts don't tell AOTAutograd what strides their results have."""
    context = TracingContext.try_get()
    if context is None:
        yield
        return
    kept, context.output_strides = context.output_strides, None
    try:
        yield
    finally:
        context.output_strides = kept


def _tell_strides(results: Sequence[Any]) -> None:
    """Tell AOTAutograd what strides the results of the whole have."""
    context = TracingContext.try_get()
    if context is None or context.output_strides is None:
        return
    for result in results:
        tensor = isinstance(result, Node) and is_tensor(result)
        strides: Any = tuple(map(str, buffer_like(result).stride())) if tensor else None
        context.output_strides.append(strides)
