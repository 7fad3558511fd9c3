"""One range of a launch, as Inductor's Triton generator prints it.

A range is a nest with its own tile shape. Its blocks are numbered by the launch that it is part of,
which hands the numbers over as arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
from torch._inductor.codegen.common import KernelArgs, RemovedArg
from torch._inductor.codegen.simd_kernel_features import SIMDKernelFeatures
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.utils import IndentedBuffer
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from torch_piecewise.loops.ir import LoopNest, operands, walk


class RangeKernel(TritonKernel):
    """`TritonKernel` whose block numbers are given; `largest` are its tiles' largest sizes."""

    def __init__(
        self,
        tiling: Any,
        features: SIMDKernelFeatures,
        largest: Mapping[str, int],
        args: KernelArgs,
    ):
        self.largest = largest
        super().__init__(
            tiling, features=features, optimize_mask=True, override_cooperative_reduction=False
        )
        self.args = args

    def iteration_ranges_get_pid(self, entry: Any) -> str:
        number = f"{entry.prefix}_pid"
        return number if self.index_dtype == "tl.int32" else f"{number}.to({self.index_dtype})"

    def needs_yz_grid_overflow(self, entry: Any) -> bool:
        return False  # blocks are numbered along one axis of the grid

    def max_block(self, prefix: str) -> int:
        return self.largest[prefix]

    def _has_constant_mask(self, tree: Any) -> bool:
        if tree.is_reduction:
            return bool(super()._has_constant_mask(tree))
        whole = V.graph.sizevars.statically_known_multiple_of(tree.numel, self.largest[tree.prefix])
        return bool(whole)

    def is_broadcasted(self, index: sympy.Expr) -> bool:
        """Whether an index leaves out an axis, so that what it loads is worth keeping in a cache.

        Inductor compares the axes in two different orders, and finds every access of a tile so.
        """
        if self.is_indirect_indexing(index):
            return False
        iterated = self._iterated()
        covered = {tree.prefix: sympy.S.One for tree in self.range_trees}
        for symbol in index.free_symbols & self.range_tree_nodes.keys():
            entry = self.range_tree_nodes[symbol]
            covered[entry.parent.prefix] = covered[entry.parent.prefix] * entry.length
        return any(
            V.graph.sizevars.simplify(covered[tree.prefix] - tree.numel) != 0 for tree in iterated
        )

    def _iterated(self) -> list[Any]:
        trees: list[Any] = self.range_trees
        return [tree for tree in trees if not tree.is_reduction]

    def printed(self, name: str) -> str:
        """The helper function with this kernel's code, under `name`."""
        gone = {k for k, arg in self.args.output_buffers.items() if isinstance(arg, RemovedArg)}
        self.mutations -= gone  # written in place by the first range, and then not at all
        with V.set_kernel_handler(self):
            self.codegen_kernel(name=name)  # fills the body and what describes it
            body = IndentedBuffer()
            self.codegen_static_numels(body)
            for tree in self._iterated():
                if not isinstance(tree.numel, sympy.Integer):
                    size = self.kexpr(self.rename_indexing(tree.numel))
                    body.writeline(f"{tree.prefix}numel = {size}")
            for old, new in self.args.aliases():
                body.writeline(f"{old} = {new}")
            body.splice(self.body)
            text = body.getvalue()  # lines that depend on the kernel are settled here
        names = [arg.name for arg in self.args.python_argdefs()[0]]
        axes = [tree.prefix for tree in self._iterated()]
        numbers = [f"{axis}_pid" for axis in axes]
        sizes = [f"{axis.upper()}BLOCK: tl.constexpr" for axis in axes]
        code = IndentedBuffer()
        code.writeline("@triton.jit")
        code.writeline(f"def {name}({', '.join([*names, *numbers, *sizes])}):")
        with code.indent():
            code.splice(text)
        return code.getvalue()

    def mutated(self) -> set[str]:
        """The arguments that are written, and whose memory held something before.

        The autotuner copies them for each run. What is made here and then written anew in place
        need not be.
        """
        found = set()
        nodes = self.features.scheduler_nodes()
        made = {name for node in nodes for name in node.get_buffer_names()}
        for name in self.mutations:
            if name in self.args.input_buffers:
                found.add(self.args.input_buffers[name])
            gone = name in V.graph.removed_buffers or name in self.removed_buffers
            if name in self.args.inplace_buffers and not gone:
                shared: Any = self.args.inplace_buffers[name]
                if shared.other_names[0] not in made:
                    found.add(shared.inner_name)
            if name in self.args.output_buffers:  # an atomic addition, for one
                found.add(str(self.args.output_buffers[name]))
        return found


def shape(nest: LoopNest) -> tuple[sympy.Expr, sympy.Expr]:
    """Rows and columns of a nest: the columns are as many inner axes as go through memory as one.

    That is so where no index tells them apart.
    """
    axes = nest.axes
    first = len(axes) - 1
    indices = _indices(nest)
    while first > 0 and isinstance(axes[first - 1].size, sympy.Integer):
        outer, inner = axes[first - 1], axes[first]
        if not all(_as_one(index, outer.symbol, inner.symbol, inner.size) for index in indices):
            break
        first -= 1
    sizes = [a.size for a in axes]
    return sympy.prod(sizes[:first]), sympy.prod(sizes[first:])


def _indices(nest: LoopNest) -> set[sympy.Expr]:
    return {
        arg
        for body in nest.bodies
        for op in walk(body.block)
        for arg in operands(op)
        if isinstance(arg, sympy.Expr)
    }


def _as_one(index: sympy.Expr, outer: sympy.Symbol, inner: sympy.Symbol, size: sympy.Expr) -> bool:
    """Whether an index goes on from the last inner point to the first of the next outer one."""
    steps = index.atoms(ModularIndexing, FloorDiv)
    if any({outer, inner} & step.free_symbols for step in steps):
        return False
    index = sympy.expand(index)
    rest = index - outer * index.coeff(outer, 1) - inner * index.coeff(inner, 1)
    if {outer, inner} & sympy.expand(rest).free_symbols:
        return False
    return bool(sympy.expand(index.coeff(outer, 1) - size * index.coeff(inner, 1)) == 0)
