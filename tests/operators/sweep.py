"""Compiles many calls of operators as one graph, and compares each with eager mode.

One graph for several operators, dtypes and seams, because starting the C++ compiler and reading
its headers takes most of the time. What fails is compiled again in halves, then alone.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from torch_piecewise.inductor.compile import compile_graph, config_of
from torch_piecewise.plan.plan import Plan

from . import seams
from .compare import difference
from .database import DTYPES, OpInfo, Sample, database, samples, seed
from .known import ALONE
from .seams import SEAMS, Facts, Seam, can_be_cut

# eager's random numbers; a concatenation is always computed by its readers, so that it has seams
INDUCTOR = {"fallback_random": True, "force_pointwise_cat": True}
OPTIONS = {"split": "seams", **INDUCTOR}


@dataclass(frozen=True)
class Call:
    """One operator applied to one sample behind one seam; `leaves` are the sample's, flat."""

    operator: str
    dtype: torch.dtype
    kind: str
    op: OpInfo
    seam: Seam
    facts: tuple[Facts | None, ...]
    leaves: tuple[Any, ...]
    spec: TreeSpec
    meant: Callable[[Any], Any]

    @property
    def label(self) -> str:
        return f"{self.operator} {str(self.dtype).removeprefix('torch.')} {self.kind}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(x for x in self.leaves if isinstance(x, Tensor))

    def run(self, tensors: Sequence[Tensor]) -> Any:
        """What is traced: the seam, then the operator."""
        given = list(tensors)
        leaves = [given.pop(0) if isinstance(x, Tensor) else x for x in self.leaves]
        cut = [x if f is None else self.seam(x, f) for x, f in zip(leaves, self.facts)]
        source, args, kwargs = tree_unflatten(cut, self.spec)
        return self.meant(self.op.op(source, *args, **kwargs))


@dataclass
class Outcome:
    """What became of one call: `problem` says what is wrong, '' if it equals eager."""

    call: Call
    problem: str = ""
    pieces: int = 0  # of its nests that were cut, in the forward
    own_pieces: int = 0  # of those that compute more than the seam
    gradients: int = 0  # compared
    backward_pieces: int = 0  # of all calls of a graph together, noted with its first


def calls_of(operator: str) -> tuple[Call, ...]:
    """Every dtype that an operator takes: float32 with each seam alone, the others with both."""
    op = database()[operator]
    made: list[Call] = []
    for dtype in DTYPES:
        if dtype not in op.dtypes:
            continue
        grad = dtype == torch.float32 and op.supports_autograd
        kinds = ("pad", "cat") if dtype == torch.float32 else ("both",)
        for found in samples(op, dtype, grad):
            calls = [_call(operator, op, dtype, kind, found) for kind in kinds]
            if any(calls):
                made += [call for call in calls if call]
                break
    return tuple(made)


def _call(operator: str, op: OpInfo, dtype: torch.dtype, kind: str, found: Sample) -> Call | None:
    """With the first seam that leaves the operator results as finite as those without a seam."""
    parts = (found.input, found.args, found.kwargs)
    leaves, spec = tree_flatten(tree_map_only(Tensor, _leaf, parts))
    cut = len(tree_leaves(found.input))
    facts = tuple(
        Facts.of(x) if k < cut and isinstance(x, Tensor) and can_be_cut(x) else None
        for k, x in enumerate(leaves)
    )
    rest = {"facts": facts, "leaves": tuple(leaves), "spec": spec, "meant": found.meant}
    make = partial(Call, operator, dtype, kind, op, **rest)
    whole = make(lambda x, _: x)
    try:
        most = _unbounded(run_eagerly(whole))
    except Exception:  # a sample that is meant to raise, or a call with side effects only
        return None
    for seam in SEAMS[kind]:
        call = make(seam)
        try:
            if _unbounded(run_eagerly(call)) <= most:
                return call
        except Exception:  # the seam led out of what the operator takes
            continue
    return None


def _leaf(x: Tensor) -> Tensor:
    return x.detach().clone().requires_grad_(x.requires_grad)


def run_eagerly(call: Call) -> Any:
    seed()
    return call.run(call.tensors)


def _unbounded(results: Any) -> int:
    return sum(int((~t.isfinite()).sum()) for t in _tensors(results))


def _tensors(results: Any) -> list[Tensor]:
    return [t.detach() for t in tree_leaves(results) if isinstance(t, Tensor)]


def _entering(t: Tensor) -> Tensor:
    ramp = torch.arange(t.numel(), dtype=torch.float32).reshape(t.shape)
    return ((ramp % 7 - 3) / 2).to(t.dtype)


@dataclass
class Noted:
    """Pieces of the nests that were cut: of each tensor that goes in, and of all backwards.

    `own` counts the nests that compute something of the operator, not only the seam before it.
    """

    graphs: int = 0
    forward: Counter[int] = field(default_factory=Counter)
    own: Counter[int] = field(default_factory=Counter)
    all_forward: int = 0
    all_own: int = 0
    backward: int = 0

    def add(self, gm: torch.fx.GraphModule, plan: Plan) -> None:
        owners, beyond = _owners(gm), _beyond_seams(gm)
        for nest in plan.nests:
            if not nest.split:
                continue
            pieces = len(nest.pieces)
            if plan.kind == "backward":  # known by source line only, which all calls share
                self.backward += pieces
                continue
            own = [name for name in nest.origins if name in beyond]
            self.all_forward += pieces
            self.all_own += pieces if own else 0
            self.forward.update(dict.fromkeys(_owned(owners, nest.origins), pieces))
            self.own.update(dict.fromkeys(_owned(owners, own), pieces))


def _owned(owners: dict[str, set[int]], names: Iterable[str]) -> set[int]:
    return set().union(*(owners.get(name, set()) for name in names))


def _owners(gm: torch.fx.GraphModule) -> dict[str, set[int]]:
    """For each node the numbers of the tensors that it comes from."""
    owners: dict[torch.fx.Node, set[int]] = {}
    for node in gm.graph.nodes:
        named = re.search(r"tensors_(\d+)_", node.name) if node.op == "placeholder" else None
        inherited = (owners[n] for n in node.all_input_nodes)
        owners[node] = set().union(*inherited, {int(named[1])} if named else set())
    return {node.name: found for node, found in owners.items()}


def _beyond_seams(gm: torch.fx.GraphModule) -> set[str]:
    """The nodes that no function of `seams.py` made."""
    calls = (node for node in gm.graph.nodes if node.op.startswith("call"))
    return {node.name for node in calls if seams.__file__ not in (node.stack_trace or "")}


Compile = Callable[[Callable[..., Any], Noted, bool], Callable[..., Any]]


def piecewise(fn: Callable[..., Any], noted: Noted, whole: bool) -> Callable[..., Any]:
    """The backend under test; what it cuts is noted. `whole` does not allow graph breaks."""

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        noted.graphs += 1
        report = partial(noted.add, gm)
        return compile_graph(gm, inputs, config_of(OPTIONS, None), report)

    return torch.compile(fn, backend=backend, dynamic=False, fullgraph=whole)


def inductor(fn: Callable[..., Any], noted: Noted, whole: bool) -> Callable[..., Any]:
    noted.graphs += 1
    options = {"options": INDUCTOR, "dynamic": False, "fullgraph": whole}
    return torch.compile(fn, backend="inductor", **options)


def compare(calls: Sequence[Call], compiler: Compile = piecewise) -> list[Outcome]:
    """All calls as one graph; where that fails in any way, halves of it, then each alone.

    Only a call that is alone may have graph breaks: around them others would run in eager mode.
    Random numbers too are the same as eager's only if nothing else draws any.
    """
    single = [call for call in calls if call.operator in ALONE]
    if single and len(calls) > 1:
        rest = [call for call in calls if call.operator not in ALONE]
        each = [o for call in single for o in compare([call], compiler)]
        return each + (compare(rest, compiler) if rest else [])
    try:
        outcomes = _together(calls, compiler)
    except Exception as error:
        if len(calls) == 1:
            return [Outcome(calls[0], f"{type(error).__name__}: {_first_lines(error)}")]
    else:
        if len(calls) == 1 or not any(o.problem for o in outcomes):
            return outcomes
        return [_alone(o, compiler) if o.problem else o for o in outcomes]
    middle = len(calls) // 2
    return compare(calls[:middle], compiler) + compare(calls[middle:], compiler)


def _alone(beside: Outcome, compiler: Compile) -> Outcome:
    """A call that is wrong in a graph with others, once more: what it says alone is clearer."""
    (alone,) = compare([beside.call], compiler)
    alone.problem = alone.problem or f"beside others only: {beside.problem}"
    return alone


def _first_lines(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _together(calls: Sequence[Call], compiler: Compile) -> list[Outcome]:
    torch._dynamo.reset()
    counts = [len(call.tensors) for call in calls]

    def together(*tensors: Tensor) -> list[Any]:
        rest, results = list(tensors), []
        for call, count in zip(calls, counts):
            mine, rest = rest[:count], rest[count:]
            results.append(call.run(mine))
        return results

    noted = Noted()
    # past the limit Dynamo would go on in eager mode, and say so in a warning only
    with warnings.catch_warnings(), torch._dynamo.config.patch(recompile_limit=10_000):
        warnings.simplefilter("ignore")
        got = _step(calls, compiler(together, noted, len(calls) > 1))
        want = _step(calls, together)
    outcomes, first = [], 0
    for call, (ours, ours_grad), (theirs, theirs_grad) in zip(calls, got, want, strict=True):
        problem = difference(call, (ours, ours_grad), (theirs, theirs_grad))
        mine = range(first, first + len(call.tensors))
        pieces, own = (max((c[k] for k in mine), default=0) for c in (noted.forward, noted.own))
        if len(calls) == 1:
            # graph breaks may have renamed what goes in
            pieces, own = noted.all_forward, noted.all_own
            problem = problem or ("" if noted.graphs else "nothing was compiled")
        gradients = sum(g is not None for g in theirs_grad)
        outcomes.append(Outcome(call, problem, pieces, own, gradients))
        first += len(call.tensors)
    outcomes[0].backward_pieces = noted.backward
    return outcomes


def _step(calls: Sequence[Call], fn: Callable[..., Any]) -> list[tuple[list[Any], list[Any]]]:
    """For each call its results and its gradients. All run at once, on copies of the tensors."""
    copies = [_leaf(t) for call in calls for t in call.tensors]
    seed()
    flat = [tree_leaves(result) for result in fn(*copies)]
    outputs = [t for leaves in flat for t in leaves if isinstance(t, Tensor) and t.requires_grad]
    outputs = [t for t in outputs if t.grad_fn is not None]
    wanted = [t for t in copies if t.requires_grad]
    gradients: list[Any] = []
    if outputs and wanted:
        entering = [_entering(t) for t in outputs]
        gradients = list(torch.autograd.grad(outputs, wanted, entering, allow_unused=True))
    made = []
    for call, leaves in zip(calls, flat, strict=True):
        mine = sum(t.requires_grad for t in call.tensors)
        found = [t.detach() if isinstance(t, Tensor) else t for t in leaves]
        made.append((found, gradients[:mine]))
        gradients = gradients[mine:]
    return made
