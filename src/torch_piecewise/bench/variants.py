"""The ways one function is run, and a code object of its own for each of them.

Dynamo keeps compiled code with the code object of the Python function. Two backends that compile
the same function object would share one list of entries and its guards, so that the second one
timed pays for looking past the first one's entries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch


@dataclass(frozen=True)
class Variant:
    """One way to run a function. `backend` is a name or a function; None is eager mode."""

    name: str
    backend: str | Callable[..., Any] | None
    options: tuple[tuple[str, Any], ...] = field(default=())


EAGER = Variant("eager", None)
PLAIN = Variant("inductor", "inductor")
AGAIN = Variant("inductor_again", "inductor")  # A/A: what differs from PLAIN is noise
FORCED = Variant("inductor_pointwise_cat", "inductor", (("force_pointwise_cat", True),))
# never cut, and every concatenation left to Inductor; always cut, concatenations as by default
OFF = Variant("always_off", "piecewise", (("split", "off"),))
SEAMS = Variant("always_seams", "piecewise", (("split", "seams"),))


def piecewise(backend: str = "piecewise") -> Variant:
    """The variant under test. Another backend's name measures that one in its place."""
    return Variant("piecewise", backend)


def variants(backend: str = "piecewise", choices: bool = False) -> tuple[Variant, ...]:
    return EAGER, PLAIN, AGAIN, FORCED, piecewise(backend), *((OFF, SEAMS) if choices else ())


def own_code(fn: Callable[..., Any], label: str) -> Callable[..., Any]:
    """A copy of a plain Python function with a code object of its own, named after `label`.

    The name is part of the copy because Dynamo's records of past sizes go by file, line and name.
    """
    if not isinstance(fn, FunctionType):
        raise TypeError(f"only a plain Python function can be copied, and this is a {type(fn)}")
    name = f"{fn.__name__}__{label}"
    code = fn.__code__.replace(co_name=name)
    own = FunctionType(code, fn.__globals__, name, fn.__defaults__, fn.__closure__)
    own.__kwdefaults__ = fn.__kwdefaults__
    own.__module__ = fn.__module__
    return own


def compiled(variant: Variant, fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` as this variant runs it. Compiling happens in the first call."""
    own = own_code(fn, variant.name)
    if variant.backend is None:
        return own
    options = dict(variant.options) or None
    return torch.compile(own, backend=variant.backend, options=options, dynamic=False)
