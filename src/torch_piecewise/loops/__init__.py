"""The loop IR: nests as plain data that print, read back, are cut and run; no Inductor in it.

`explain(...).nests[k].text` is the text of a nest that Inductor made. This one pads by two zeros:

    >>> import torch
    >>> from torch_piecewise.loops import boxes, find_seams, parse, restrict, run, show
    >>> nest = parse('''
    ... nest padded (i0: 6)
    ... buffers x: f32, y: f32
    ... body op0 for i0:
    ...   %0: i64 = index_expr([i0 - 2], i64)
    ...   %1: i64 = constant(0, i64)
    ...   %2: bool = ge(%0, %1)
    ...   %4: f32 = masked(%2, {
    ...     %3: f32 = load(x, [i0 - 2])
    ...     yield %3
    ...   }, 0.0)
    ...   store(y, [i0], %4)
    ... ''')
    >>> parse(show(nest)) == nest
    True

Its body changes in one place. Each range to the sides of it gets a body of its own, counted from 0:

    >>> seams = find_seams(nest)
    >>> [(str(s.axis), str(s.position), s.cause) for s in seams.seams]
    [('i0', '2', 'i0 - 2 < 0')]
    >>> for box in boxes(nest, seams.cuts):
    ...     print("#", box)
    ...     print(show(restrict(nest, box)), end="")
    # i0 in [0, 2)
    nest padded (i0: 2)
    buffers x: f32, y: f32
    body op0 for i0:
      %0: f32 = constant(0.0, f32)
      store(y, [i0], %0)
    # i0 in [2, 6)
    nest padded (i0: 4)
    buffers x: f32, y: f32
    body op0 for i0:
      %0: f32 = load(x, [i0])
      store(y, [i0 + 2], %0)

A nest runs in place on flat tensors, slowly, as the reference for all that is made of it:

    >>> buffers = {"x": torch.tensor([1., 2., 3., 4.]), "y": torch.empty(6)}
    >>> for box in boxes(nest, seams.cuts):
    ...     run(restrict(nest, box), buffers)
    >>> buffers["y"]
    tensor([0., 0., 1., 2., 3., 4.])
"""

from .interpret import AssertFailed, OutOfBounds, run
from .ir import Axis, Block, Body, Box, Builder, LoopNest, Op, Ref, Symbol
from .seams import Note, SeamAt, SeamSearch
from .seams import find as find_seams
from .split import boxes, restrict
from .text import ParseError, parse, show

__all__ = [
    "AssertFailed",
    "Axis",
    "Block",
    "Body",
    "Box",
    "Builder",
    "LoopNest",
    "Note",
    "Op",
    "OutOfBounds",
    "ParseError",
    "Ref",
    "SeamAt",
    "SeamSearch",
    "Symbol",
    "boxes",
    "find_seams",
    "parse",
    "restrict",
    "run",
    "show",
]
