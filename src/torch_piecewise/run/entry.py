"""The entry of a graph that was cut: generated Python that can be read.

def call(args):
    arg0_x, = args
    args.clear()
    # piece_0_0: [0, 256)
    v_mul = pool.empty((1024, 512, ), (512, 1, ), float32, device_cpu)
    piece_0_0([view(arg0_x, (256, 512), (512, 1), 0), view(v_mul, (256, 512), (512, 1), 0)])
    ...
    del arg0_x
    return (v_mul, )
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import SymInt, Tensor
from torch.fx import Node
from torch.utils._sympy.printers import PythonPrinter

from torch_piecewise.graph.parts import Part
from torch_piecewise.graph.pieces import Handed, Input, Into, PartOf, Size, buffer_like


@dataclass(frozen=True)
class Entry:
    """What is needed to write the entry: the graph's inputs and results, and its parts in order.

    `results` are nodes or plain values, as in the graph's output.
    """

    inputs: Sequence[Node]
    results: Sequence[Any]
    parts: Sequence[Part]
    attributes: Mapping[Node, Any] = field(default_factory=dict)  # tensors that the graph holds
    names: dict[Node | PartOf, str] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)  # the part that is the last to read a name
    constants: dict[str, Any] = field(default_factory=dict)

    def source(self) -> str:
        """The text of `call(args)`; the parts, `constants`, `pool` and `view` are its globals."""
        for number, node in enumerate(self.inputs):
            self.names[node] = f"arg{number}_{_clean(node.name)}"
        for node, tensor in self.attributes.items():
            self.constants[self.name(node)] = tensor
        self.note_last()
        return "\n".join(["def call(args):", *(f"    {line}" for line in self.lines()), ""])

    def note_last(self) -> None:
        for number, part in enumerate(self.parts):
            for given in part.inputs:
                if not isinstance(given, Size):
                    self.last[self.name(_key(given))] = number
        for node in self.attributes:
            self.last.pop(self.name(node), None)
        kept = [n for n in self.results if isinstance(n, Node)]
        for node in kept:
            self.last[self.name(node)] = len(self.parts)

    def name(self, key: Node | PartOf) -> str:
        """A name that no other value and nothing of the entry's own has."""
        if key not in self.names:
            if isinstance(key, Node):
                self.names[key] = _clean(f"v_{key.name}")
            else:
                self.names[key] = _clean(f"part{key.number}_{key.value}_of_{key.node.name}")
        return self.names[key]

    def lines(self) -> Iterator[str]:
        names = [self.name(node) for node in self.inputs]
        if names:
            yield f"{', '.join(names)}, = args"
        yield "args.clear()"
        yield from self.symbols()
        yield from self.dropped([n for n in names if n not in self.last])
        begun: set[Node] = set()
        for number, part in enumerate(self.parts):
            if part.range is not None:
                yield f"# {part.name}: {part.range}"
            for into in part.written:
                if into.node not in begun:
                    begun.add(into.node)
                    yield f"{self.name(into.node)} = {self.buffer(into.node)}"
            yield self.call(part)
            made = {self.name(r) for r in part.results}
            ended = [n for n, k in self.last.items() if k == number]
            unread = [n for n in made if n not in self.last]
            yield from self.dropped([*ended, *unread])
        yield f"return ({''.join(self.result(r) + ', ' for r in self.results)})"

    def dropped(self, names: Sequence[str]) -> Iterator[str]:
        if names:
            yield f"del {', '.join(dict.fromkeys(names))}"

    def call(self, part: Part) -> str:
        given = ", ".join(self.handed(each) for each in part.inputs)
        made = "".join(f"{self.name(r)}, " for r in part.results)
        return f"{made}{'= ' if made else ''}{part.name}([{given}])"

    def handed(self, given: Handed) -> str:
        if isinstance(given, Size):
            return given.symbol
        if isinstance(given, Input) and given.dim is None:
            return self.name(given.node)
        if isinstance(given, PartOf):
            return self.name(given)
        assert given.dim is not None and given.range is not None
        whole = buffer_like(given.node) if isinstance(given, Into) else given.node.meta["val"]
        start, size = given.range.start, given.range.size
        name = self.name(given.node)
        if any(isinstance(n, SymInt) for n in (start, size, *whole.shape, *whole.stride())):
            return f"{name}.narrow({given.dim}, {self.size(start)}, {self.size(size)})"
        shape = list(whole.shape)
        shape[given.dim] = size
        offset = start * whole.stride(given.dim)
        return f"view({name}, {tuple(shape)}, {tuple(whole.stride())}, {offset})"

    def buffer(self, node: Node) -> str:
        like = buffer_like(node)
        shape, stride = (self.sizes(numbers) for numbers in (like.shape, like.stride()))
        dtype = str(like.dtype).removeprefix("torch.")
        device = f"device_{_clean(str(like.device))}"
        self.constants.update({dtype: like.dtype, device: like.device})
        return f"pool.empty({shape}, {stride}, {dtype}, {device})"

    def sizes(self, numbers: Sequence[Any]) -> str:
        return f"({''.join(self.size(n) + ', ' for n in numbers)})"

    def size(self, number: Any) -> str:
        """A size in terms of the graph's inputs."""
        if not isinstance(number, SymInt):
            return str(number)
        return f"({PythonPrinter().doprint(number.node.expr)})"

    def symbols(self) -> Iterator[str]:
        """The names of sizes, taken from inputs that are sizes, or have them."""
        bound: dict[str, str] = {}
        for node in self.inputs:
            found = node.meta.get("val")
            if isinstance(found, SymInt):
                _bind(bound, found, self.name(node))
        for node in self.inputs:
            found = node.meta.get("val")
            for k, size in enumerate(found.shape if isinstance(found, Tensor) else ()):
                _bind(bound, size, f"{self.name(node)}.size({k})")
        yield from (f"{symbol} = {text}" for symbol, text in bound.items())

    def result(self, value: Any) -> str:
        if isinstance(value, Node):
            return self.name(value)
        return repr(value)


def _bind(bound: dict[str, str], size: object, text: str) -> None:
    """Also under the name that it had before it was found to be a number, or another size."""
    for expr in (size.node.expr, size.node._expr) if isinstance(size, SymInt) else ():
        if expr.is_Symbol:
            bound.setdefault(str(expr), text)


def _key(given: Input | PartOf | Into) -> Node | PartOf:
    return given if isinstance(given, PartOf) else given.node


def _clean(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def load(source: str, names: Mapping[str, Any]) -> Any:
    """The function `call` of an entry's text, with these global names."""
    scope = {"math": math, "torch": torch, **names}  # sizes are made with them
    exec(compile(source, "<entry of torch_piecewise>", "exec"), scope)
    return scope["call"]
