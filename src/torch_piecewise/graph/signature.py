"""What one node of a graph computes, as text that is equal for nodes that compute the same.

The names of nodes are not in it; all that determines code is: the operator, its constants, and of
every value shape, strides, dtype, device, layout and alignment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import SymInt, Tensor
from torch._ops import OpOverload
from torch.fx import Graph, Node

from .axes import arguments

aten = torch.ops.aten

ALIGNED = 64  # bytes; inputs that begin at a multiple may be read by vectors

# what calls a library, in kernels that nothing is fused into
LIBRARY = {
    aten.mm,
    aten.addmm,
    aten.bmm,
    aten.baddbmm,
    aten._int_mm,
    aten._scaled_mm,
    aten._grouped_mm,
    aten.convolution,
    aten.convolution_backward,
}
ATTENTION = ("_scaled_dot_product_", "_flash_attention_", "_efficient_attention_")


def form(value: Any) -> str:
    """All of a value but its contents; a size that is not known is an expression."""
    if isinstance(value, list | tuple):
        return f"({', '.join(map(form, value))})"
    if not isinstance(value, Tensor):
        return str(value)
    offset = value.storage_offset() * value.itemsize % ALIGNED
    where = f"{value.dtype} {value.device} {offset}"
    bits = f"{value.layout} {value.is_conj()} {value.is_neg()}"
    return f"{tuple(value.shape)} {value.stride()} {where} {bits}"


def is_size(node: Node) -> bool:
    """Whether the value is a number, known or not, and no tensor."""
    return isinstance(node.meta.get("val"), SymInt | int)


def is_call(node: Node) -> bool:
    """Whether it computes tensors of tensors."""
    return node.op == "call_function" and not is_size(node)


@dataclass(frozen=True)
class Call:
    """A node's own text, and the nodes with tensors among its arguments, in order, repeated."""

    node: Node

    @cached_property
    def text(self) -> str:
        said = f"{_argument(self.node.args)} {_argument(self.node.kwargs)}"
        return f"{self.node.target} {said} -> {form(self.node.meta.get('val'))}"

    @cached_property
    def operands(self) -> tuple[Node, ...]:
        return (*_operands(self.node.args), *_operands(self.node.kwargs))


def _argument(arg: Any) -> str:
    if isinstance(arg, Node):
        return f"<{arg.meta['val']}>" if is_size(arg) else "_"
    if isinstance(arg, list | tuple):
        return f"[{', '.join(map(_argument, arg))}]"
    if isinstance(arg, dict):
        return f"{{{', '.join(f'{k}: {_argument(v)}' for k, v in arg.items())}}}"
    return f"<{arg}>" if isinstance(arg, SymInt) else repr(arg)


def _operands(arg: Any) -> Iterator[Node]:
    if isinstance(arg, Node):
        if not is_size(arg):
            yield arg
    elif isinstance(arg, list | tuple):
        for each in arg:
            yield from _operands(each)
    elif isinstance(arg, dict):
        for each in arg.values():
            yield from _operands(each)


def canonical(graph: Graph) -> tuple[str, ...]:
    """A line for each node, with numbers for names: equal for graphs that are the same code."""
    numbers = {node: number for number, node in enumerate(graph.nodes)}
    lines = []
    for node in graph.nodes:
        call = Call(node)
        said = form(node.meta.get("val")) if node.op == "placeholder" else call.text
        lines.append(f"{node.op} {said} of {[numbers[n] for n in call.operands]}")
    return tuple(lines)


def calls_library(node: Node) -> bool:
    """Whether the node is a matrix product, convolution or attention of a library's."""
    target = node.target
    if not isinstance(target, OpOverload):
        return False
    packet = target.overloadpacket
    return packet in LIBRARY or packet.__name__.startswith(ATTENTION)


def random_seed(node: Node) -> bool:
    """Whether it draws or hands out seeds: what draws numbers by such a seed gives the same ones
    wherever it stands.
    """
    return "inductor_seed" in str(node.target) or "inductor_lookup_seed" in str(node.target)


def draws(node: Node) -> bool:
    """Whether it takes numbers from a generator, in the order of such calls.

    Attention takes none where nothing is dropped.
    """
    if not isinstance(node.target, OpOverload) or random_seed(node):
        return False
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    return arguments(node).get("dropout_p") != 0
