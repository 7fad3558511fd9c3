"""Whether an operator's compiled results agree with eager's, within what torch's tests grant it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from .database import seed, tolerance

if TYPE_CHECKING:
    from .sweep import Call

Results = tuple[list[Any], list[Any]]  # the results, and the gradients


def difference(call: Call, got: Results, want: Results) -> str:
    """What differs first, '' if nothing does.

    Eager mode rounds to bfloat16 after every operation, a compiled nest once, at its end. So there
    eager mode in float32 counts as right too, as in torch's own tests of Inductor.
    """
    said = _differs(call, got[0], want[0]) or _differs(call, got[1], want[1], "gradient")
    if said and call.dtype == torch.bfloat16 and not got[1]:
        said = said and _differs(call, got[0], _in_float32(call, want[0]))
    return said


def _in_float32(call: Call, want: Sequence[Any]) -> list[Any]:
    seed()
    wide = [t.float() if t.dtype == torch.bfloat16 else t for t in call.tensors]
    try:
        exact = tree_leaves(call.run(wide))
    except RuntimeError:  # an argument names the dtype
        return list(want)
    return [a.detach().to(b.dtype) if isinstance(b, Tensor) else a for a, b in zip(exact, want)]


def _differs(call: Call, got: Sequence[Any], want: Sequence[Any], what: str = "result") -> str:
    if len(got) != len(want):
        return f"{len(got)} {what}s instead of {len(want)}"
    for number, (a, b) in enumerate(zip(got, want)):
        if not isinstance(a, Tensor) or not isinstance(b, Tensor):
            # not-a-number differs from itself
            if type(a) is not type(b) or not (a == b or (a != a and b != b)):
                return f"{what} {number}: {a} is not {b}"
            continue
        granted = [tolerance(call.op, d) for d in (b.dtype, call.dtype)]
        if not (b.is_floating_point() or b.is_complex()):
            granted = [(0.0, 0.0)]
        relative, absolute = (max(each) for each in zip(*granted))
        try:
            torch.testing.assert_close(a, b, rtol=relative, atol=absolute, equal_nan=True)
        except AssertionError as error:
            return f"{what} {number}: " + " ".join(str(error).split())
    return ""
