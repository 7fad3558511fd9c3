"""Each piece as a C++ function of its own, so that debuggers and profilers can name it.

The functions stand before their kernel in its source and take the kernel's arguments; the kernel
calls them in turn. Each opens a parallel region of its own, which costs a little: it is done on
request only (the option `piece_functions`, and `stitch="loops"` for the ranges that a user gives).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch._inductor.codegen.common import BracesBuffer
from torch._inductor.codegen.cpp import KernelGroup, WorkSharing

_ARGUMENTS = "/* arguments of the kernel */"


class FunctionKernelGroup(KernelGroup):
    """A kernel group whose pieces become functions; everything else is inline as ever."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.functions: list[tuple[str, str, BracesBuffer]] = []

    @contextmanager
    def function(self, name: str, comment: str) -> Iterator[None]:
        """What is written in this context is a function, which the kernel calls."""
        body = BracesBuffer()
        around = self.loops_code, self.ws
        with WorkSharing(body) as sharing:
            self.loops_code, self.ws = body, sharing
            try:
                yield
            finally:
                self.loops_code, self.ws = around
        self.functions.append((name, comment, body))
        self.ws.close()  # a call between two loops must not run once in every thread
        self.loops_code.writeline(f"{name}({_ARGUMENTS});")

    def codegen_group(self, name: str | None = None) -> str:
        code = super().codegen_group(name)
        if not self.functions:
            return code
        definitions, _, _ = self.args.cpp_argdefs()
        names = ", ".join(definition.split()[-1].lstrip("*") for definition in definitions)
        code = code.replace(_ARGUMENTS, names)
        head, kernel, rest = code.partition('extern "C"')
        return head + self._definitions(definitions) + kernel + rest

    def _definitions(self, arguments: list[str]) -> str:
        text = BracesBuffer()
        for name, comment, body in self.functions:
            text.writeline(comment)
            text.writeline(
                f'extern "C" __attribute__((noinline)) void {name}({", ".join(arguments)})'
            )
            with text.indent():
                for old, new in self.args.aliases():
                    text.writeline(f"auto {old} = {new};")
                text.splice(body)
        return text.getvalue()
