"""A graph in ranges as an output of Inductor's: the entry, with the pieces inside.

It is a `CompiledFxGraph` whose code is the entry, so all that Inductor and AOTAutograd do with one
they do with the whole: keep it under a key with guards on its sizes, load it, and capture it as a
CUDA graph. The pieces are saved as part of it and hold no guards of their own then: those that
their compiles made are among the whole's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from types import SimpleNamespace
from typing import Any

import torch
from torch._guards import TracingContext
from torch._inductor import config as inductor_config
from torch._inductor import metrics
from torch._inductor.codecache import FxGraphCache, output_code_log
from torch._inductor.output_code import CompiledFxGraph, CompiledFxGraphConstants
from torch._inductor.utils import BoxedBool
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import SymExprPrinter, free_unbacked_symbols

from torch_piecewise.graph.axes import is_tensor
from torch_piecewise.graph.cutting import returned
from torch_piecewise.graph.parts import Part
from torch_piecewise.graph.pieces import Input, buffer_like, held_graph
from torch_piecewise.plan.plan import Plan
from torch_piecewise.run.buffers import Pool
from torch_piecewise.run.entry import Entry, load

from . import capture, scope
from .versions import accepted

view: Any = getattr(torch._C._dynamo.guards, "_reinterpret_tensor")  # noqa: B009  (no stub)


class Stitched(CompiledFxGraph):
    """The compiled parts of a graph, by name, and the entry that calls them.

    `names` are what else the entry's text refers to: dtypes and devices. Equal parts share one
    piece. Tensors that the graph holds are its `constants`, which Inductor knows how to keep.
    """

    pieces: Mapping[str, Any]
    names: Mapping[str, Any]
    plan: Plan

    def __init__(
        self,
        gm: GraphModule,
        parts: Sequence[Part],
        pieces: Mapping[str, Any],
        kwargs: Mapping[str, Any],
    ):
        results = returned(gm.graph)
        inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
        attributes = [n for n in gm.graph.nodes if n.op == "get_attr" and held_graph(n) is None]
        held = {n: getattr(gm, n.target) for n in attributes}
        entry = Entry(inputs, results, parts, held)
        source = entry.source()
        given = {
            "current_callable": None,
            "graph": _as_lowered(inputs, entry, pieces),
            "gm": gm,
            "output_strides": [_stride(result) for result in results],
            "disabled_cudagraphs_reason": capture.refusal(gm, by_inductor(pieces.values()), kwargs),
            "metrics_deltas": metrics.CachedMetricsHelper().get_deltas(),
            "counter_deltas": Counter(),
            "cudagraphs": kwargs["cudagraphs"],
            "example_inputs": [n.meta["val"] for n in inputs],
            "static_input_idxs": kwargs["static_input_idxs"],
            "compile_region_name": kwargs.get("compile_region_name"),
            "fx_kwargs": dict(kwargs),
            "inputs_to_check": (),  # each piece looks at what it is handed
            "runnable_graph_str": "",
            "inductor_post_grad_graph_str": "",
        }
        super().__init__(**accepted(CompiledFxGraph, given))
        self.source_code = source
        self.pieces = pieces
        held_names = {entry.name(node) for node in held}
        self.names = {k: v for k, v in entry.constants.items() if k not in held_names}
        self.link({name: entry.constants[name] for name in held_names})

    def link(self, constants: Mapping[str, Any]) -> None:
        """Make the entry of its text, with memory of its own."""
        for piece in by_inductor(self.pieces.values()):
            piece.compiled_fn_runner = None  # a piece takes it apart when it goes; others share it
        names = {**self.pieces, **self.names, **constants, "pool": Pool(), "view": view}
        output_code_log.debug("Output code of the entry:\n%s", self.source_code)
        self.current_callable = load(self.source_code, names)

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        with inductor_config.patch(graph_partition=False):  # a CUDA graph is one of the whole
            super().post_compile(example_inputs, constants, graph_kwargs)

    def prepare_for_serialization(self) -> None:
        super().prepare_for_serialization()
        copies = {id(piece): copy(piece) for piece in self.pieces.values()}
        for piece in copies.values():
            piece.prepare_for_serialization()
        self.pieces = {name: copies[id(piece)] for name, piece in self.pieces.items()}

    def after_deserialization(self, constants: CompiledFxGraphConstants) -> str:
        """Load the pieces and the entry, and report the plan; OSError where a file is missing."""
        with scope.unheard(), apart():
            for piece in {id(piece): piece for piece in self.pieces.values()}.values():
                self._load(piece)
        self.link(constants.unwrap(self))
        scope.report(self.plan)
        return "<entry of torch_piecewise>"

    def _load(self, piece: CompiledFxGraph) -> None:
        own = CompiledFxGraphConstants()
        found, _ = FxGraphCache.cache_hit_post_compile(piece, {}, own)
        if found is None:
            raise OSError("the code of a piece can't be loaded")
        kwargs: Any = {**self.fx_kwargs, **APART}
        found.post_compile((), own, kwargs)


def by_inductor(pieces: Iterable[Any]) -> list[CompiledFxGraph]:
    """The pieces without those that need no code: Inductor returns a function for these."""
    return [piece for piece in pieces if isinstance(piece, CompiledFxGraph)]


# what a piece is told in place of what its graph as a whole is
APART: Mapping[str, Any] = {"static_input_idxs": (), "cudagraphs": BoxedBool(False)}


@contextmanager
def apart() -> Iterator[None]:
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


def _as_lowered(inputs: Sequence[Node], entry: Entry, pieces: Mapping[str, Any]) -> Any:
    """What Inductor asks a lowered graph, of the parts together."""
    mutated = sorted(set(_mutated(inputs, entry.parts, pieces)))
    compiled = by_inductor(pieces.values())
    held = {entry.name(node): node for node in entry.attributes}
    return SimpleNamespace(
        cache_key="",
        cache_path=None,
        cache_linemap=None,
        device_types=sorted({t for p in compiled for t in p.device_types}),
        device_idxs=sorted({k for p in compiled for k in p.device_idxs}),
        mutated_inputs=[inputs[k].name for k in mutated],
        mutated_input_idxs=mutated,
        constants={name: entry.attributes[node] for name, node in held.items()},
        allocated_constant_name={name: node.target for name, node in held.items()},
        torchbind_constants={},
        opaque_value_type_classes={},
        partition_maps=None,
        kernel_free_cudagraph=False,
    )


def _mutated(
    inputs: Sequence[Node], parts: Sequence[Part], pieces: Mapping[str, Any]
) -> Iterator[int]:
    """The inputs of the graph that a part writes to."""
    places = {node: k for k, node in enumerate(inputs)}
    for part in parts:
        for k in getattr(pieces[part.name], "mutated_input_idxs", ()):
            given = part.inputs[k]
            if isinstance(given, Input) and given.node in places:
                yield places[given.node]


def _stride(result: Any) -> tuple[str, ...] | None:
    """The strides of a result, as text to evaluate for the sizes of another process."""
    if not (isinstance(result, Node) and is_tensor(result)):
        return None
    stride: Any = buffer_like(result).stride()
    if any(free_unbacked_symbols(each) for each in stride):
        return None
    numbers = (each.node.expr if isinstance(each, torch.SymInt) else each for each in stride)
    return tuple(SymExprPrinter().doprint(number) for number in numbers)
