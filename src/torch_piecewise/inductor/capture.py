"""Whether a graph in ranges can be captured as one CUDA graph: what Inductor asks of a graph.

Inductor would part a graph where it can't be captured. The entry is Python and is captured as a
whole or not at all, so its questions are those for graphs that aren't parted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._inductor import config as inductor_config
from torch._inductor.cudagraph_utils import check_lowering_disable_cudagraph
from torch._inductor.output_code import CompiledFxGraph
from torch._inductor.utils import any_is_symbolic, get_first_incompatible_cudagraph_node
from torch.fx import GraphModule

from torch_piecewise.graph.axes import is_tensor
from torch_piecewise.plan.plan import Reason


def policy() -> Any:
    """The user's own way to wrap what was compiled as CUDA graphs, if any; 2.11 has none."""
    return getattr(inductor_config, "cudagraph_policy", None)


@contextmanager
def together() -> Iterator[None]:
    """Compile pieces of what may be captured: none is parted, or wrapped by itself."""
    settings: dict[str, Any] = {}
    if inductor_config.triton.cudagraphs:
        settings["graph_partition"] = False
    if policy() is not None:
        settings["cudagraph_policy"] = None
    with inductor_config.patch(settings):
        yield


def refusal(
    gm: GraphModule, pieces: Sequence[CompiledFxGraph], kwargs: Mapping[str, Any]
) -> str | None:
    """Why the parts of a graph can't be captured together; None where they can, or need not."""
    if not kwargs["cudagraphs"]:
        return None
    inputs = [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"]
    if inductor_config.triton.cudagraph_skip_dynamic_graphs and any_is_symbolic(*inputs):
        return "sizes that are not known, with triton.cudagraph_skip_dynamic_graphs"
    node = get_first_incompatible_cudagraph_node(gm)
    if node is not None:
        return f"incompatible op {node.target}"
    said = (piece.disabled_cudagraphs_reason for piece in pieces)
    types = {each for piece in pieces for each in piece.device_types}
    return next(filter(None, said), None) or check_lowering_disable_cudagraph(_devices(gm, types))


def _devices(gm: GraphModule, types: set[str]) -> dict[torch.device, Any]:
    """The devices of these types, each with the first node whose value is there."""
    found: dict[torch.device, Any] = {}
    for node in gm.graph.nodes:
        if is_tensor(node) and node.meta["val"].device.type in types:
            found.setdefault(node.meta["val"].device, node)
    return found


def notes(compiled: CompiledFxGraph) -> tuple[Reason, ...]:
    """What `explain` says about CUDA graphs, where the user asked for them."""
    if not inductor_config.triton.cudagraphs:
        return ()
    info = compiled.cudagraph_info
    failed = list(info.cudagraph_fail_reasons) if info is not None else []
    why = compiled.disabled_cudagraphs_reason or ", ".join(failed)
    if why:
        return (Reason("cudagraphs", "graph", f"not captured as a CUDA graph: {why.strip()}"),)
    if info is None:
        return (Reason("cudagraphs", "graph", "not captured as a CUDA graph: its forward isn't"),)
    return (Reason("cudagraphs", "graph", "all pieces are captured as one CUDA graph"),)
