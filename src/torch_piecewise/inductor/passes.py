"""A reduction on a GPU whose passes run part by part: see `plan.passes`.

    _tmp5 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)    # one set of accumulators
    for r0_offset in tl.range(0, 16, R0_BLOCK): ...        # part 1, with its masks
    for r0_offset in tl.range(16, 4096, R0_BLOCK): ...     # part 2, folded
    tmp5 = tl.sum(_tmp5, 1)[:, None]

Inductor prints the bodies, accumulators and what follows a pass; only the loops are written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import sympy
from torch._inductor.codegen.simd_kernel_features import (
    DisableReduction,
    EnableReduction,
    SIMDKernelFeatures,
)
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.optimize_indexing import indexing_dtype_strength_reduction
from torch._inductor.scheduler import SchedulerNode
from torch._inductor.utils import IndentedBuffer

from torch_piecewise.loops.idle import adds_nothing
from torch_piecewise.loops.ir import LoopNest
from torch_piecewise.loops.same import same_reductions
from torch_piecewise.loops.seams import Slant
from torch_piecewise.plan.passes import Edge, Part

from .adapter import to_body
from .limited import bodies_of


class PassesKernel(TritonKernel):
    """`TritonKernel` for a looped reduction that is written part by part."""

    part = 0  # the one that is generated
    whole_steps = False  # whether its columns need no mask
    alike: Sequence[int] = ()  # for each reduction of this pass, the first that is the same

    def __init__(self, tiling: Any, features: SIMDKernelFeatures, scores: Any):
        self.results: list[Any] = []  # of the reductions of this pass, in the first part
        self.reached = 0  # how many of them this part has come to
        super().__init__(tiling, features=features, tiling_scores=scores)

    @property
    def in_loops(self) -> bool:
        """Whether there is a loop to take apart: one over one reduction axis, in one program."""
        trees: list[Any] = self.range_trees
        loops = [tree for tree in trees if tree.is_loop]
        return len(loops) == 1 and len(trees) == 2 and not self.cooperative_reduction

    def _has_constant_mask(self, tree: Any) -> bool:
        if tree.is_reduction:
            return self.whole_steps
        return bool(super()._has_constant_mask(tree))

    def reduction(self, dtype: Any, src_dtype: Any, reduction_type: Any, value: Any) -> Any:
        """In later parts the same accumulators go on; what follows the loop is there already.

        Which reductions are the same is what it is in the whole nest: folded for one part, others
        may be, which are not in the next.
        """
        number, self.reached = self.reached, self.reached + 1
        if self.alike[number] != number:
            result = self.results[self.alike[number]]
            if self.part == 0:
                self.results.append(result)
            return result
        self.cse.reduction_cache.clear()
        if self.part == 0:
            self.results.append(super().reduction(dtype, src_dtype, reduction_type, value))
            return self.results[-1]
        first = self.results[number]
        start = len(self.compute._lines)
        kept = self.body, self.post_loop_combine, self.post_loop_store
        self.body, self.post_loop_combine = IndentedBuffer(), IndentedBuffer()
        self.post_loop_store = IndentedBuffer()
        try:
            result = super().reduction(dtype, src_dtype, reduction_type, value)
        finally:
            self.body, self.post_loop_combine, self.post_loop_store = kept
        _rename(self.compute, start, _base(result), _base(first))
        return first

    def store_reduction(self, name: str, index: Any, value: Any) -> None:
        if self.part == 0:
            super().store_reduction(name, index, value)

    def write_part(self, start: str, stop: str, ends: bool) -> None:
        """The loop of the part whose body was generated, from one column to another.

        `ends`: from the first column to `stop`, and from `start` to the last.
        """
        (tree,) = [tree for tree in self.range_trees if tree.is_loop]
        prefix, block = tree.prefix, f"{tree.prefix.upper()}BLOCK"
        last = self.kexpr(self.rename_indexing(tree.numel))
        self.body.writeline(f"{prefix}numel = {last if ends else stop}")
        if ends:
            self.body.writeline(f"between = {start} - {stop}")
            steps = f"tl.range(0, {prefix}numel - between, {block})"
            self.body.writeline(f"for {prefix}step in {steps}:")
        else:
            steps = f"tl.range({start}, {prefix}numel, {block})"
            self.body.writeline(f"for {prefix}offset in {steps}:")
        with self.body.indent():
            if ends:
                place = f"{prefix}step + tl.where({prefix}step < {stop}, 0, between)"
                self.body.writeline(f"{prefix}offset = {place}")
            self.iteration_ranges_codegen_header(tree, self.body)
            self.codegen_reduction_indices(self.body)
            for code in (self.indexing_code, self.loads, self.compute, self.stores):
                self.body.splice(code)
        self.drop_part()
        tree.cache_clear()

    def drop_part(self) -> None:
        """Forget the body that was generated, and the values that were computed in it."""
        for code in (self.indexing_code, self.loads, self.compute, self.stores):
            code.clear()
        self.cse.invalidate(self.outside_loop_vars)
        self.cse.reduction_cache.clear()
        self.reached = 0

    def end_pass(self) -> None:
        """What follows the loops of a pass."""
        for code in (self.post_loop_combine, self.post_loop_store):
            self.body.splice(code)
            code.clear()
        self.results.clear()


def _base(result: Any) -> str:
    """The name that the accumulators of a reduction are named after."""
    return str(result[0] if isinstance(result, (tuple, list)) else result)


def _rename(code: IndentedBuffer, start: int, old: str, new: str) -> None:
    """Have the lines from `start` on work on the accumulators of another reduction."""
    name = re.compile(rf"\b(_?){re.escape(old)}(?![0-9])")
    for number in range(start, len(code._lines)):
        line = code._lines[number]
        if isinstance(line, str):
            code._lines[number] = name.sub(rf"\g<1>{new}", line)


def scores(scheduling: Any, nodes: Sequence[SchedulerNode], coalescing: Any) -> Any:
    """How much memory is read in order along rows and along columns, None where it isn't known.

    By that Inductor chooses the shape of blocks, instead of timing several.
    """
    numel, rnumel = _sizes(nodes)
    schedule = scheduling.generate_node_schedule(nodes, numel, rnumel)
    tiling, found = scheduling.get_tiling_and_scores(schedule, numel, rnumel, coalescing)
    return found if len(tiling) == 2 else None


def has_loop(
    scheduling: Any, nodes: Sequence[SchedulerNode], nest: LoopNest, scores: Any = None
) -> bool:
    """Whether Inductor runs the passes of a nest in a loop, which can be taken apart."""
    with bodies_of(nodes, _bodies(nest), scheduling.group_fn):
        kernel, _ = _kernel(scheduling, nodes, scores)
    return kernel.in_loops


def generate(
    scheduling: Any,
    nodes: Sequence[SchedulerNode],
    nest: LoopNest,
    parts: Sequence[Part],
    scores: Any = None,
) -> PassesKernel:
    """The kernel of a nest by parts; it has a loop."""
    with bodies_of(nodes, _bodies(nest), scheduling.group_fn):
        kernel, schedule = _kernel(scheduling, nodes, scores)
        assert kernel.in_loops
        _generate(scheduling, kernel, schedule, nodes, nest, parts)
    return kernel


def _sizes(nodes: Sequence[SchedulerNode]) -> Any:
    return max(nodes, key=lambda n: int(n.is_reduction())).group[1]


def _kernel(
    scheduling: Any, nodes: Sequence[SchedulerNode], scores: Any
) -> tuple[PassesKernel, Sequence[Any]]:
    numel, rnumel = _sizes(nodes)
    schedule = scheduling.generate_node_schedule(nodes, numel, rnumel)
    features = SIMDKernelFeatures(schedule, numel, rnumel, None)
    return PassesKernel(scheduling.create_tiling([numel], [rnumel]), features, scores), schedule


def _generate(
    scheduling: Any,
    kernel: PassesKernel,
    schedule: Sequence[Any],
    nodes: Sequence[SchedulerNode],
    nest: LoopNest,
    parts: Sequence[Part],
) -> None:
    """As Inductor generates a schedule (`codegen_node_schedule_with_kernel`), but pass by pass."""
    with kernel:
        _decide(kernel, schedule)
        ends = _Ends(nest, kernel, parts)
        ends.write()
        stack = ExitStack()
        inside: list[SchedulerNode] = []
        for node in (*schedule, DisableReduction):
            if node is DisableReduction:
                _write_pass(scheduling, kernel, inside, nodes, nest, parts, ends)
                inside = []
                stack.enter_context(kernel.disable_reduction())
            elif node is EnableReduction:
                stack.close()
            elif kernel.inside_reduction:
                inside.append(node)
            else:
                _codegen(kernel, node)
        stack.close()


def _decide(kernel: PassesKernel, schedule: Sequence[Any]) -> None:
    """What is written in place, and which indices there are."""
    stack = ExitStack()
    indices: dict[sympy.Expr, None] = {}
    for node in schedule:
        if node is DisableReduction:
            stack.enter_context(kernel.disable_reduction())
        elif node is EnableReduction:
            stack.close()
        else:
            node.decide_inplace_update()
            ranges = kernel.split_and_set_ranges(node.get_ranges())
            indices.update(dict.fromkeys(node._body.indexing_from_args(ranges).values()))
    stack.close()
    kernel.finalize_indexing(list(indices))


def _codegen(kernel: PassesKernel, node: SchedulerNode) -> None:
    indexing_dtype_strength_reduction(node._body)
    node.codegen(kernel.split_and_set_ranges(node.get_ranges()))


def _write_pass(
    scheduling: Any,
    kernel: PassesKernel,
    inside: Sequence[SchedulerNode],
    nodes: Sequence[SchedulerNode],
    nest: LoopNest,
    parts: Sequence[Part],
    ends: _Ends,
) -> None:
    if not inside:
        return
    names = [node.get_name() for node in inside]
    kernel.alike = same_reductions(nest, names)
    for number, part in enumerate(parts):
        kernel.part, kernel.whole_steps = number, part.whole_steps
        with bodies_of(nodes, _bodies(part.nest), scheduling.group_fn):
            for node in inside:
                _codegen(kernel, node)
        here = replace(part.nest, bodies=tuple(b for b in part.nest.bodies if b.name in names))
        if adds_nothing(here):
            kernel.drop_part()
        else:
            kernel.write_part(ends.text(part.start), ends.text(part.stop), part.ends)
    kernel.part, kernel.whole_steps = 0, False
    kernel.end_pass()


def _bodies(nest: LoopNest) -> list[Any]:
    return [to_body(nest, body) for body in nest.bodies]


class _Ends:
    """Where parts end, in Triton. Ends that depend on rows are written before the first pass."""

    def __init__(self, nest: LoopNest, kernel: PassesKernel, parts: Sequence[Part]):
        self.kernel = kernel
        self.rows = [axis for axis in nest.axes if not axis.reduce]
        (self.first, *rest) = [axis.size for axis in nest.axes if axis.reduce]
        self.step = sympy.prod(rest)  # columns that one step of the first reduction axis goes on
        self.columns = self.shown(self.first * self.step)
        self.edges = [edge for part in parts for edge in (part.stop, part.start)]

    def shown(self, expr: Any) -> str:
        """An index expression, with the names that sizes have in the kernel."""
        text = self.kernel.kexpr(self.kernel.rename_indexing(sympy.sympify(expr)))
        return text if text.isalnum() else f"({text})"

    def text(self, edge: Edge) -> str:
        """Every column is in one part, also where a rounded end is beyond a cut inside."""
        if edge.slants:
            return "settled_after" if edge.after else "settled_before"
        if edge.rounded:
            return "head_end" if edge.rounded > 0 else "tail_start"
        column = self.shown(edge.column * self.step)
        rounded = {edge.rounded for edge in self.edges}
        if rounded == {0}:
            return column
        least = "head_end" if 1 in rounded else "0"
        return f"min(max({column}, {least}), {'tail_start' if -1 in rounded else self.columns})"

    def write(self) -> None:
        self._round()
        slants = next((edge.slants for edge in self.edges if edge.slants), ())
        if slants:
            self._settle(slants)

    def _round(self) -> None:
        least, line = "0", self.kernel.body.writeline
        for edge in dict.fromkeys(self.edges):
            column = self.shown(edge.column * self.step)
            if edge.rounded > 0:
                whole = f"({column} + R0_BLOCK - 1) // R0_BLOCK * R0_BLOCK"
                line(f"head_end = min({whole}, {self.columns})")
                least = "head_end"
            elif edge.rounded < 0:
                line(f"tail_start = max({column} // R0_BLOCK * R0_BLOCK, {least})")

    def _settle(self, slants: Sequence[Slant]) -> None:
        number = [axis.symbol for axis in self.rows].index(slants[0].outer)
        inner = sympy.prod([axis.size for axis in self.rows[number + 1 :]])
        size, line = self.rows[number].size, self.kernel.body.writeline
        behind, together = self.shown(inner), self.shown(inner * size)
        line(f"first_row = xoffset // {behind} % {self.shown(size)}")
        line(f"last_row = (xoffset + XBLOCK - 1) // {behind} % {self.shown(size)}")
        # rows of a block that start over have nothing in common
        line(f"in_order = xoffset // {together} == (xoffset + XBLOCK - 1) // {together}")
        rows = ("first_row", "last_row")
        places = [place.format(row) for row in rows for place in self._places(slants)]
        first, step = self.shown(self.first), self.shown(self.step)
        low = f"min(max({_nested('min', places)}, 0), {first}) * {step}"
        high = f"min(max({_nested('max', places)}, 0), {first}) * {step}"
        line(f"before = tl.where(in_order, {low}, 0)")
        line(f"after = tl.where(in_order, {high}, {self.columns})")
        line("settled_before = before // R0_BLOCK * R0_BLOCK")
        rounded = "(after + R0_BLOCK - 1) // R0_BLOCK * R0_BLOCK"
        line(f"settled_after = min({rounded}, {self.columns})")

    def _places(self, slants: Sequence[Slant]) -> Iterator[str]:
        """Where on the first reduction axis each sign is the other one, for a row put in."""
        for slant in slants:
            row = slant.expr.coeff(slant.outer, 1)
            rest = slant.expr.coeff(slant.outer, 0).coeff(slant.inner, 0)
            if slant.expr.coeff(slant.inner, 1) > 0:  # column + row * r + rest < 0
                yield f"{-row} * {{}} + {self.shown(-rest)}"
            else:  # -column + row * r + rest < 0
                yield f"{row} * {{}} + {self.shown(rest + 1)}"


def _nested(function: str, values: Sequence[str]) -> str:
    text = f"({values[0]})"
    for value in values[1:]:
        text = f"{function}({text}, {value})"
    return text
