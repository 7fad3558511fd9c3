"""A graph that is cut into pieces by ranges: each compiled by itself, one entry that calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from torch._guards import detect_fake_mode
from torch._inductor import config as inductor_config
from torch._inductor.codecache import output_code_log
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.utils import BoxedBool
from torch.fx import GraphModule, Interpreter
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta

from torch_piecewise.config import Config
from torch_piecewise.errors import RangeError
from torch_piecewise.graph.cutting import gradients, parts_for, regions_for, returned, target_of
from torch_piecewise.graph.normal import normalise
from torch_piecewise.graph.parts import Part
from torch_piecewise.graph.ranges import undivided
from torch_piecewise.graph.regions import find_from
from torch_piecewise.graph.signature import canonical
from torch_piecewise.plan.plan import Plan, Reason, RegionPlan
from torch_piecewise.plan.regions import region_plans

from . import capture, progress, scope
from .kept import Place
from .stitched import APART, Stitched, apart

UNTOLD: Mapping[str, Any] = {  # what `compile_fx_inner` takes for granted, of what we look at
    "static_input_idxs": (),
    "is_backward": False,
    "is_inference": False,
    "boxed_forward_device_index": None,
}


Cut = tuple[Sequence[Part], tuple[RegionPlan, ...]]


def compile_in_ranges(gm: GraphModule, config: Config, **kwargs: Any) -> Callable[..., Any]:
    """The graph cut along the dim of its first output, as `config.ranges` says.

    A backward is cut along the same dim of the gradient of that output as far as that goes.
    """
    normalise(gm.graph)
    cut = _cut_backward(gm, config) if kwargs.get("is_backward") else _cut(gm, config)
    if isinstance(cut, str):
        return whole(gm, cut, **kwargs)
    return stitched(gm, *cut, **kwargs)


def _cut(gm: GraphModule, config: Config) -> Cut | str:
    """The parts, or why there are none."""
    assert config.ranges is not None
    target, dim, ranges = target_of(returned(gm.graph), config.ranges, config.dim)
    why = undivided(ranges, dim)
    if why is not None:
        return why
    regions = regions_for(gm.graph, target, dim, ranges, config.ranges)
    parts = parts_for(gm, regions, ranges, (target, dim), config.ranges)
    return parts, region_plans(regions, ranges, dim)


def _cut_backward(gm: GraphModule, config: Config) -> Cut | str:
    assert config.ranges is not None
    entering = gradients(gm)
    if not entering:
        return "it has no gradient of an output"
    try:
        target, dim, ranges = target_of(entering, config.ranges, config.dim)
        why = undivided(ranges, dim)
        if why is not None:
            return why
        regions = find_from(gm.graph, {target: dim})
        parts = parts_for(gm, regions, ranges, (target, dim), config.ranges)
    except RangeError as error:
        return str(error)
    if any(part.range is not None for part in parts):
        return parts, region_plans(regions, ranges, dim)
    return "; ".join(refused.text for refused in regions.refused) or "nothing reads it"


def whole(gm: GraphModule, why: str, **kwargs: Any) -> Callable[..., Any]:
    """The graph as Inductor compiles it, and a note that says why."""
    note = Reason("whole", "graph", f"compiled as one graph: {why}")
    scope.note(note)  # for whoever gets this graph from a cache
    with scope.unheard() as heard:
        compiled: Callable[..., Any] = compile_fx_inner(gm, inputs_of(gm), **kwargs)
    scope.report(_one_plan(heard, (), (note,), **kwargs))
    return compiled


def stitched(
    gm: GraphModule,
    parts: Sequence[Part],
    regions: tuple[RegionPlan, ...],
    notes: tuple[Reason, ...] = (),
    **kwargs: Any,
) -> Callable[..., Any]:
    """The parts of a graph compiled and the entry that calls them, or both from a cache.

    `notes` are what `explain` says of the graph, besides its regions.
    """
    kwargs = {**UNTOLD, "cudagraphs": BoxedBool(inductor_config.triton.cudagraphs), **kwargs}
    place = Place.of(gm, kwargs)
    made = place.load()
    if made is None:
        made = _made(gm, parts, regions, notes, place, **kwargs)
    made.post_compile(place.inputs, place.constants, kwargs)
    policy = capture.policy()
    return made if policy is None else policy.wrap_output(made)


def _made(
    gm: GraphModule,
    parts: Sequence[Part],
    regions: tuple[RegionPlan, ...],
    notes: tuple[Reason, ...],
    place: Place,
    **kwargs: Any,
) -> Stitched:
    with capture.together():
        with scope.unheard() as heard:
            compiled = compile_parts(parts, **kwargs)
        made = Stitched(gm, parts, compiled, kwargs)
    notes = (*notes, *capture.notes(made), *place.notes(compiled.values()))
    made.plan = _one_plan(heard, regions, notes, **kwargs)
    place.save(made)
    scope.report(made.plan)
    return made


def inputs_of(gm: GraphModule) -> list[Any]:
    """The traced inputs of a graph."""
    return [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"]


def compile_parts(parts: Sequence[Part], **kwargs: Any) -> dict[str, Callable[..., Any]]:
    """The parts by name, each compiled by itself; equal ones once, but with `reuse` off."""
    mine = scope.current()
    reuse = mine is None or mine.config.reuse is not False
    equal: dict[object, list[Part]] = {}
    for part in parts:
        equal.setdefault(same_code(part) if reuse else part.name, []).append(part)
    compiled = {}
    with progress.over(len(equal)) as advance:
        for group in equal.values():
            made = _compile_group(group, **kwargs)
            compiled.update(dict.fromkeys((part.name for part in group), made))
            advance()
    return compiled


def _compile_group(group: Sequence[Part], **kwargs: Any) -> Callable[..., Any]:
    """Equal parts; the plan of their nests says which they are of."""
    names = tuple(p.name if p.range is None else f"{p.name} {p.range}" for p in group)
    output_code_log.debug("Output code of %s:", ", ".join(names))
    with scope.unheard() as heard:
        made = compile_part(group[0], **kwargs)
    for plan in heard:
        scope.report(replace(plan, nests=tuple(replace(n, parts=names) for n in plan.nests)))
    return made


def same_code(part: Part) -> object:
    """Equal for parts that are the same graph, with inputs of the same form and alignment."""
    return canonical(part.module.graph)


def compile_part(part: Part, **kwargs: Any) -> Callable[..., Any]:
    """One part, as Inductor compiles a graph."""
    given = inputs_of(part.module)
    module = part.module if part.as_traced else decomposed(part.module, given)
    output = module.graph.output_node()  # the entry relies on their strides
    output.meta["user_visible_output_idxs"] = list(range(len(part.results)))
    with apart():
        compiled: Callable[..., Any] = compile_fx_inner(module, given, **{**kwargs, **APART})
    return compiled


def decomposed(module: GraphModule, given: Sequence[Any]) -> GraphModule:
    """The operators that rules wrote, as Inductor expects them after AOTAutograd."""
    table = select_decomp_table()
    if not any(node.target in table for node in module.graph.nodes):
        return module
    mode = detect_fake_mode(given)
    with mode if mode is not None else nullcontext(), preserve_node_meta():
        return make_fx(Interpreter(module).run, decomposition_table=table)(*given)


def _one_plan(
    heard: Sequence[Plan],
    regions: tuple[RegionPlan, ...] = (),
    more: tuple[Reason, ...] = (),
    **kwargs: Any,
) -> Plan:
    """The plans of the parts as one of the whole graph."""
    kinds = {(True, False): "backward", (False, True): "inference"}
    kind = kinds.get((bool(kwargs.get("is_backward")), bool(kwargs.get("is_inference"))), "forward")
    nests = tuple(nest for plan in heard for nest in plan.nests)
    notes = (*more, *(note for plan in heard for note in plan.notes))
    return Plan(kind, nests, tuple(dict.fromkeys(notes)), regions)
