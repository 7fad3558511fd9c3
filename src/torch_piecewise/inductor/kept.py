"""Where Inductor's cache keeps a graph in ranges, and why it may not.

The key is Inductor's for the graph as a whole, which holds what determines our code (`gate.py`). An
entry has the guards and the bounds of sizes that aren't known, as any of Inductor's has.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config
from torch._inductor.codecache import FxGraphCache
from torch._inductor.compile_fx import get_input_idxs_to_check
from torch._inductor.output_code import CompiledFxGraph, CompiledFxGraphConstantsWithGm
from torch._inductor.utils import should_use_remote_fx_graph_cache
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from torch_piecewise.plan.plan import Reason

from .stitched import Stitched


@dataclass(frozen=True)
class Place:
    """Where a graph in ranges is kept: `key` is None where it isn't, `why` the reason if any."""

    gm: GraphModule
    inputs: Sequence[Any]
    kwargs: Mapping[str, Any]
    key: str | None = None
    lines: list[str] = field(default_factory=list)  # the parts of the key, for Inductor's logs
    why: str | None = None
    begun: int = field(default_factory=time.time_ns)

    @staticmethod
    def of(gm: GraphModule, kwargs: Mapping[str, Any]) -> Place:
        """The place for a graph that is compiled with these arguments of `compile_fx_inner`."""
        inputs = [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"]
        if not _caches():
            return Place(gm, inputs, kwargs)
        checked = get_input_idxs_to_check(inputs, kwargs["static_input_idxs"])
        remote = should_use_remote_fx_graph_cache()
        given: Any = {k: v for k, v in kwargs.items() if k != "compile_region_name"}
        with _disable_current_modes():
            found, told = FxGraphCache.prepare_key(gm, inputs, given, checked, remote)
        if found is None:
            return Place(gm, inputs, kwargs, why=str(told.get("cache_bypass_reason")))
        return Place(gm, inputs, kwargs, f"{found[0]}-in-ranges", found[1])

    def load(self) -> Stitched | None:
        """What was saved there, ready but for its `post_compile`."""
        if self.key is None:
            return None
        with _disable_current_modes():
            found, _ = FxGraphCache.load_with_key(
                self.key,
                self.lines,
                self.inputs,
                inductor_config.fx_graph_cache,
                _remote(),
                is_backward=self.kwargs["is_backward"],
                constants=self.constants,
            )
        if found is None:
            return None
        assert isinstance(found, Stitched)
        self.name(found)
        return found

    def save(self, made: Stitched) -> None:
        """Keep it, or let AOTAutograd know that it isn't kept."""
        made._time_taken_ns = time.time_ns() - self.begun
        if self.key is None or uncached(made.pieces.values()):
            return
        self.name(made)
        with _disable_current_modes():
            FxGraphCache._save_graph(
                self.key, made, self.inputs, inductor_config.fx_graph_cache, _remote()
            )

    def name(self, made: Stitched) -> None:
        made._fx_graph_cache_key = self.key
        made._fx_graph_cache_debug_lines = self.lines

    def notes(self, pieces: Iterable[Any]) -> tuple[Reason, ...]:
        """What `explain` says where caches are on, and this graph stays out of them."""
        why = self.why if self.key is None else uncached(pieces)
        return (Reason("uncached", "graph", f"not kept in Inductor's cache: {why}"),) if why else ()

    @property
    def constants(self) -> CompiledFxGraphConstantsWithGm:
        return CompiledFxGraphConstantsWithGm(self.gm)


def uncached(pieces: Iterable[Any]) -> str | None:
    """Why pieces can't be kept: Inductor doesn't keep one of them itself."""
    for piece in pieces:
        if not isinstance(piece, CompiledFxGraph) or piece._fx_graph_cache_key is None:
            return "it does not keep one of the pieces"
    return None


def _caches() -> bool:
    """Whether Inductor has a cache for graphs now; a bundled one is AOTAutograd's alone."""
    return (
        not inductor_config.force_disable_caches
        and (inductor_config.fx_graph_cache or should_use_remote_fx_graph_cache())
        and not functorch_config.bundled_autograd_cache
    )


def _remote() -> Any:
    return FxGraphCache.get_remote_cache() if should_use_remote_fx_graph_cache() else None
