"""One launch with many ranges: the kernel whose blocks choose a range and a tile of it.

    def kernel(in_ptr0, out_ptr0, WAY, X0, Y0, X1, Y1):
        block = tl.program_id(0)
        if WAY == 0:                    # by ranges, one after another
            if block < end0:
                range_0(..., x_pid=block % columns0, y_pid=block // columns0, XBLOCK=X0, YBLOCK=Y0)
            else:
                range_1(...)
        else:                           # the nest as a whole
            whole(..., x_pid=block, XBLOCK=X2)

The ways and their tile sizes are configurations of Inductor's autotuner, which times them at the
first call where there are several; so the launch keeps Inductor's launcher, caches and wrapper.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import sympy
from torch._inductor.codegen.common import ArgName, ConstexprArg, KernelArgs, RemovedArg
from torch._inductor.codegen.simd_kernel_features import SIMDKernelFeatures
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.codegen.triton_utils import config_of, equal_1_arg_indices, signature_to_meta
from torch._inductor.scheduler import SchedulerNode
from torch._inductor.utils import (
    IndentedBuffer,
    Placeholder,
    triton_version_uses_attrs_dict,
)
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from torch_piecewise.loops.ir import LoopNest
from torch_piecewise.plan.launch import Tiles, Way

from .adapter import to_body
from .limited import bodies_of, settled
from .ranges import RangeKernel

AT_ONCE = """
    if TURNS > 1:  # ranges that compute run beside ranges that wait for memory
        blocks, turn = tl.num_programs(0), block % TURNS
        block = turn * (blocks // TURNS) + min(turn, blocks % TURNS) + block // TURNS
"""


@dataclass
class Range:
    """A nest of a launch, with its rows and columns, and its kernel."""

    name: str
    rows: sympy.Expr
    columns: sympy.Expr
    nest: LoopNest | None  # None: what the nodes have
    kernel: Any = None

    @property
    def flat(self) -> bool:
        return bool(self.rows == 1)


@dataclass
class Launch:
    """The code of one launch. `ways` are what the autotuner chooses from.

    `ranges` are all that any way uses, a way names its own by number.
    """

    scheduling: Any
    nodes: Sequence[SchedulerNode]
    ranges: Sequence[Range]
    ways: Sequence[Way]
    args: KernelArgs = field(default_factory=KernelArgs)
    removed_buffers: OrderedSet[str] = field(default_factory=OrderedSet)
    inplaced_to_remove: OrderedSet[str] = field(default_factory=OrderedSet)
    triton_meta: dict[str, Any] = field(default_factory=dict)
    inductor_meta: dict[str, Any] = field(default_factory=dict)

    def generate(self) -> str:
        """Have Inductor print every range, and write the kernel that chooses among them."""
        for number, one in enumerate(self.ranges):
            one.kernel = self._kernel(one, number)
            self._forget_removed()
        code = IndentedBuffer()
        code.splice(TritonKernel.gen_common_triton_imports())
        mutated: set[str] = set()
        printed = []
        for one in self.ranges:
            printed.append(one.kernel.printed(one.name))
            mutated |= one.kernel.mutated()
            self.removed_buffers |= one.kernel.removed_buffers
            self.inplaced_to_remove |= one.kernel.inplaced_to_remove
        for helper in dict.fromkeys(h for one in self.ranges for h in one.kernel.helper_functions):
            code.writeline("")
            code.splice(helper)
        for text in printed:
            code.writeline("")
            code.splice(text)
        self._describe(sorted(mutated))
        self._write_choice(code)
        return code.getvalue()

    def _kernel(self, one: Range, number: int) -> RangeKernel:
        """The kernel of one range. The first decides which buffers are written in place."""
        tiles = [way.tiles[number] for way in self.ways if number in way.tiles]
        largest = {"x": max(t.columns for t in tiles), "y": max(t.rows for t in tiles)}
        bodies = [node._body for node in self.nodes]
        if one.nest is not None:
            bodies = [to_body(one.nest, body) for body in one.nest.bodies]
        decided = settled(self.nodes) if number else nullcontext()
        with bodies_of(self.nodes, bodies, self.scheduling.group_fn), decided:
            numel, rnumel = self.nodes[0].group[1]
            schedule = self.scheduling.generate_node_schedule(self.nodes, numel, rnumel)
            features = SIMDKernelFeatures(schedule, numel, rnumel, None)
            sizes = [one.columns] if one.flat else [one.rows, one.columns]
            tiling = self.scheduling.create_tiling(sizes, [rnumel])
            kernel = RangeKernel(tiling, features, largest, self.args)
            self.scheduling.codegen_node_schedule_with_kernel(schedule, kernel)
        return kernel

    def _forget_removed(self) -> None:
        """Let the next range name a buffer anew that lives inside the kernel and was in place."""
        shared = self.args.inplace_buffers
        for name in [name for name, buffer in shared.items() if isinstance(buffer, RemovedArg)]:
            del shared[name]

    def _describe(self, mutated: list[str]) -> None:
        """What Inductor's autotuner and launcher are told."""
        first = self.ranges[0].kernel
        argdefs, _, given, _ = self.args.python_argdefs()
        signature: list[Any] = list(given)
        for name in self._constants():
            argdefs.append(ArgName(name, is_constexpr=True))
            if triton_version_uses_attrs_dict():
                signature.append(ConstexprArg(name))
        wide = any(one.kernel.index_dtype != "tl.int32" for one in self.ranges)
        size_dtype = "tl.int64" if wide else "tl.int32"
        self.argdefs = argdefs
        self.triton_meta = {
            **first.triton_meta,
            "signature": signature_to_meta(signature, size_dtype=size_dtype, argdefs=argdefs),
            "constants": {signature[n].name: 1 for n in equal_1_arg_indices(signature)},
            "configs": [config_of(signature)],
        }
        self.inductor_meta = {
            "grid_type": "PrecomputedGrid",
            "precomputed_grids": [self._grid(number) for number in range(len(self.ways))],
            "kernel_name": str(Placeholder.DESCRIPTIVE_NAME),
            "mutated_arg_names": mutated,
            "optimize_mem": V.graph.is_inference or V.graph.is_backward,
            **TritonKernel.inductor_meta_common(),
        }

    def _constants(self) -> list[str]:
        names = ["WAY", "TURNS"]
        for number, one in enumerate(self.ranges):
            names += [f"X{number}"] if one.flat else [f"X{number}", f"Y{number}"]
        return names

    def _values(self, number: int) -> dict[str, int]:
        """The constants of one way; ranges that it does not use have no tiles."""
        way = self.ways[number]
        values = {"WAY": number, "TURNS": way.turns}
        for k, one in enumerate(self.ranges):
            tiles = way.tiles.get(k, Tiles(1, 1))
            values[f"X{k}"] = tiles.columns
            if not one.flat:
                values[f"Y{k}"] = tiles.rows
        return values

    def _grid(self, number: int) -> dict[str, Any]:
        way = self.ways[number]
        python = " + ".join(self._blocks(k, t, "//") for k, t in way.tiles.items())
        cpp = " + ".join(self._blocks(k, t, "/") for k, t in way.tiles.items())
        config = {**self._values(number), "num_warps": way.warps}
        return {"config": config, "python": [python, "1", "1"], "cpp": [cpp, "1", "1"]}

    def _blocks(self, number: int, tiles: Tiles, divide: str) -> str:
        """How many tiles a range has, as the launcher computes it."""
        one = self.ranges[number]

        def ceil(size: sympy.Expr, step: int) -> str:
            if isinstance(size, sympy.Integer):
                return str(-(-int(size) // step))
            kernel = one.kernel
            return f"(({kernel.kexpr(kernel.rename_indexing(size))} + {step - 1}) {divide} {step})"

        return f"{ceil(one.columns, tiles.columns)} * {ceil(one.rows, tiles.rows)}"

    def _write_choice(self, code: IndentedBuffer) -> None:
        configs = ", ".join(
            f"triton_heuristics.Config({self._values(k)!r}, num_warps={way.warps}, num_stages=1)"
            for k, way in enumerate(self.ways)
        )
        # as a template: it keeps the static launcher, and no one changes the tiles
        code.splice(f"""
            @triton_heuristics.cached_autotune(
                None, [{configs}],
                triton_meta={self.triton_meta!r},
                heuristic_type=triton_heuristics.HeuristicType.TEMPLATE,
                filename=__file__,
                inductor_meta={self.inductor_meta!r},
            )
            @triton.jit
        """)
        names = ", ".join(arg.full_name() for arg in self.argdefs)
        code.writeline(f"def {Placeholder.KERNEL_NAME}({names}):")
        with code.indent():
            code.writeline("block = tl.program_id(0)")
            if any(way.turns > 1 for way in self.ways):
                code.splice(AT_ONCE)
            groups: dict[tuple[int, ...], list[int]] = {}
            for number, way in enumerate(self.ways):
                groups.setdefault(tuple(way.tiles), []).append(number)
            for position, (ranges, ways) in enumerate(groups.items()):
                if len(groups) > 1:
                    test = " or ".join(f"WAY == {way}" for way in ways)
                    last = position == len(groups) - 1
                    code.writeline("else:" if last else f"{'el' if position else ''}if {test}:")
                with code.indent(int(len(groups) > 1)):
                    self._write_ranges(code, ranges)

    def _write_ranges(self, code: IndentedBuffer, numbers: tuple[int, ...]) -> None:
        """The blocks of one range follow those of another."""
        for k in numbers:
            one = self.ranges[k]
            kernel = one.kernel
            rows = kernel.kexpr(kernel.rename_indexing(one.rows))
            columns = kernel.kexpr(kernel.rename_indexing(one.columns))
            code.writeline(f"columns{k} = ({columns} + X{k} - 1) // X{k}")
            count = "" if one.flat else f" * (({rows} + Y{k} - 1) // Y{k})"
            if k != numbers[-1]:
                code.writeline(f"end{k} = {self._end(numbers, k)}columns{k}{count}")
        names = [arg.name for arg in self.args.python_argdefs()[0]]
        for position, k in enumerate(numbers):
            last = position == len(numbers) - 1
            if len(numbers) > 1:
                test = f"{'el' if position else ''}if block < end{k}:"
                code.writeline("else:" if last else test)
            with code.indent(int(len(numbers) > 1)):
                own = "block" if position == 0 else f"(block - end{numbers[position - 1]})"
                if self.ranges[k].flat:
                    place = [f"x_pid={own}", f"XBLOCK=X{k}"]
                else:
                    place = [f"x_pid={own} % columns{k}", f"y_pid={own} // columns{k}"]
                    place += [f"XBLOCK=X{k}", f"YBLOCK=Y{k}"]
                code.writeline(f"{self.ranges[k].name}({', '.join([*names, *place])})")

    def _end(self, numbers: tuple[int, ...], k: int) -> str:
        before = numbers.index(k) - 1
        return f"end{numbers[before]} + " if before >= 0 else ""

    def call(self, name: str) -> None:
        """The call in the wrapper."""
        wrapper = V.graph.wrapper_code
        wrapper.write_triton_header_once()
        _, call_args, _, arg_types = self.args.python_argdefs()
        wrapper.generate_kernel_call(
            name,
            call_args,
            triton=True,
            arg_types=arg_types,
            triton_meta=self.triton_meta,
            inductor_meta=self.inductor_meta,
        )
