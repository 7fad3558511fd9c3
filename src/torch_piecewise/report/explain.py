"""`explain`: what was cut in a function or model, where, and why the rest was left."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from torch_piecewise.errors import ArgumentError, PiecewiseError
from torch_piecewise.plan.plan import NestPlan, Plan

from .copies import buffers_kept, copied
from .explanation import Explanation, SourceLine

# a frame of a stack trace; its code is missing where the file can't be read
LINE = re.compile(
    r'File "(?P<file>.+)", line (?P<line>\d+), in .+(?:\n\s+(?!\s|File ")(?P<code>.+))?'
)


def explain(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    options: Mapping[str, object] | None = None,
) -> Explanation:
    """Compile `fn(*args, **kwargs)` with the piecewise backend and say what was cut and why.

    `fn` may be a function, a method, a module, or one of these compiled already. Then the options
    and the mode are those of that `torch.compile`, unless `options` are given, and so is `dynamic`.

    `fn` is compiled as if for the first time, and run once on copies of `args` and `kwargs` that
    share memory where those do; parameters among them are used as they are. Where the result needs
    gradients the backward is run too, into nothing: no `.grad` changes. A module's buffers, the
    random state, and what Dynamo has compiled and remembers of sizes are left as they were; on
    torch 2.11 each call counts towards the limit of recompiles of `fn`.

    Raises ArgumentError where `fn`, `args` or `kwargs` are of a wrong type, what the compile
    raises, as OptionError for a wrong option and RangeError for ranges that don't fit, and what
    `fn` raises.
    """
    from torch_piecewise.inductor.compile import compile_graph, config_of
    from torch_piecewise.inductor.versions import compile_apart, original, settings

    _check(fn, args, kwargs)
    known = settings(fn)
    own = known.options if options is None else options
    config = config_of(own, known.mode if options is None else None)
    fn = original(fn)
    heard: list[tuple[Plan, Mapping[str, SourceLine]]] = []  # with the lines of its graph

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        lines = _source_lines(gm)
        return compile_graph(gm, inputs, config, lambda plan: heard.append((plan, lines)))

    run = compile_apart(fn, backend, known.dynamic)
    with torch.random.fork_rng(devices=[]), buffers_kept(fn), _errors_of_ours():
        own_args, own_kwargs = copied((tuple(args), dict(kwargs or {})))
        _run_backward(run(*own_args, **own_kwargs))
    heard.sort(key=lambda each: each[0].kind == "backward")
    return Explanation(
        tuple(plan for plan, _ in heard),
        tuple(tuple(_lines_of(n, lines) for n in plan.nests) for plan, lines in heard),
    )


@contextmanager
def _errors_of_ours() -> Iterator[None]:
    """What this package raises as it is, and not as the failure of a backend."""
    try:
        yield
    except Exception as error:
        inner = getattr(error, "inner_exception", None)
        if isinstance(inner, PiecewiseError):
            raise inner from None
        raise


def _check(fn: object, args: object, kwargs: object) -> None:
    call = "explain(fn, args=(), kwargs=None)"
    if not callable(fn):
        raise ArgumentError.of(call, "fn", fn, "a function or module", "explain(fn, (x,))")
    if isinstance(args, Mapping):
        write = "explain(fn, (), {'x': x})"
        raise ArgumentError.of(call, "args", args, "a tuple of the arguments by position", write)
    if not isinstance(args, tuple | list):
        write = "explain(fn, (x,)), also for a single argument"
        raise ArgumentError.of(call, "args", args, "a tuple of the arguments", write)
    names: Iterable[object] = kwargs if isinstance(kwargs, Mapping) else ()
    if kwargs is not None and not isinstance(kwargs, Mapping):
        write = "explain(fn, (x,), {'y': y}), options as options={...}"
        raise ArgumentError.of(call, "kwargs", kwargs, "a dict from names to values", write)
    for name in names:
        if not isinstance(name, str):
            raise ArgumentError.of(call, "a name in kwargs", name, "a str", "{'y': y}")


def _run_backward(result: Any) -> None:
    """Run the backward of every output that has one, without touching any `.grad`."""
    outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    leaves = _leaves([t.grad_fn for t in outputs if t.grad_fn is not None])
    if outputs and leaves:
        ones = [torch.ones_like(t) for t in outputs]
        torch.autograd.grad(outputs, leaves, ones, allow_unused=True)


def _leaves(roots: list[Any]) -> list[torch.Tensor]:
    """The tensors at which the autograd graph would accumulate gradients."""
    found: list[torch.Tensor] = []
    seen: set[Any] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        stack.extend(parent for parent, _ in node.next_functions)
    return found


def _source_lines(gm: torch.fx.GraphModule) -> dict[str, SourceLine]:
    """For each node of Dynamo's graph the innermost line of the user's code that made it."""
    found = {}
    for node in gm.graph.nodes:
        frames = list(LINE.finditer(node.stack_trace or ""))
        own = [f for f in frames if "/torch/" not in f["file"].replace("\\", "/")] or frames
        if own:
            last = own[-1]
            found[node.name] = SourceLine(
                last["file"], int(last["line"]), (last["code"] or "").strip()
            )
    return found


def _lines_of(nest: NestPlan, lines: Mapping[str, SourceLine]) -> tuple[SourceLine, ...]:
    wanted = {lines[name] for name in nest.origins if name in lines}
    return tuple(sorted(wanted, key=lambda s: (s.file, s.line)))
