"""The options of `torch.compile(..., backend="piecewise", options=, mode=)`, checked and frozen.

Nothing here imports Inductor: whoever calls hands in what Inductor's own options are.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast, get_args, get_origin

from torch_piecewise.errors import NotYetAvailable, OptionError, with_article
from torch_piecewise.graph.ranges import WANTED, Given, checked

Split = Literal["auto", "seams", "off"]
SPLITS: tuple[str, ...] = get_args(Split)
STITCHES = ("global", "streaming", "loops")
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
SPLIT_VARIABLE = "TORCH_PIECEWISE_SPLIT"

OWN = ("split", "piece_functions", "max_pieces", "mode", "ranges", "dim", "stitch", "reuse")
PLANNED = (
    "memory_budget",
    "target",
    "on_target_error",
    "tune",
    "size_ranges",
    "verify",
    "report",
)


@dataclass(frozen=True)
class Config:
    """All that the user chose for one compile.

    split: cut loop nests by the cost model, at every seam, or never.
    piece_functions: each piece becomes a C++ function of its own with a stable symbol and line
        information, for debuggers and profilers.
    max_pieces: most pieces of one nest, at least 1.
    mode: one of torch.compile's modes; None is the default one.
    ranges: the user's own ranges of a dim of the first output: see `graph.ranges`.
    dim: that dim, counted from the last where negative.
    stitch: how the pieces of these ranges become one result; "loops" cuts the loops of kernels.
    reuse: compile equal pieces once (True), with "blocks" those that a graph repeats too.
    inductor: Inductor's own options as the user gave them, sorted by name.
    """

    split: Split = "auto"
    piece_functions: bool = False
    max_pieces: int = 16
    mode: str | None = None
    ranges: Given | None = None
    dim: int = 0
    stitch: str = "global"
    reuse: bool | str = True
    inductor: tuple[tuple[str, object], ...] = field(default=())

    @staticmethod
    def of(
        options: Mapping[str, object] | None = None,
        mode: str | None = None,
        *,
        inductor_options: Mapping[str, object],
        inductor_types: Callable[[str], object] | None = None,
        modes: Collection[str] = MODES,
    ) -> Config:
        """Check what the user gave; raises OptionError, which names the option.

        inductor_options: the names of Inductor's options, with their values of now.
        inductor_types: gives an option's declared type (torch._inductor.config.get_type); without
            it the type is that of its value of now.
        modes: the valid modes (torch._inductor.list_mode_options()).
        """
        given = _normalised({} if options is None else options)
        own: dict[str, object] = {"split": _default_split()}
        passed: dict[str, object] = {}
        for name, value in given.items():
            if name in OWN:
                own[name] = _own(name, value, modes)
            elif name in PLANNED:
                raise NotYetAvailable.of(name, OWN)
            elif name in inductor_options:
                _check_inductor(name, value, inductor_options[name], inductor_types)
                passed[name] = value
            else:
                raise OptionError.unknown(name, [*OWN, *inductor_options])
        own["mode"] = _mode(mode, own.get("mode"), modes)
        _check_together(own)
        return Config(**own, inductor=tuple(sorted(passed.items(), key=_name)))  # type: ignore[arg-type]

    def key(self) -> str:
        """A stable text that holds all that determines the code; equal settings, equal text."""
        return json.dumps(
            {
                "split": self.split,
                "piece_functions": self.piece_functions,
                "max_pieces": self.max_pieces,
                "mode": self.mode,
                "ranges": self.ranges,
                "dim": self.dim,
                "stitch": self.stitch,
                "reuse": self.reuse,
                "inductor": [[name, _text(value)] for name, value in self.inductor],
            },
            separators=(",", ":"),
        )

    def patches(self) -> dict[str, object]:
        """Inductor's options as the user gave them; what the mode sets is not in here."""
        return dict(self.inductor)

    def __hash__(self) -> int:
        # Not over the values of `inductor`: lists, dicts and functions are valid there.
        names = tuple(name for name, _ in self.inductor)
        own = (self.split, self.piece_functions, self.max_pieces, self.mode)
        return hash((*own, self.ranges, self.dim, self.stitch, self.reuse, names))


def _name(item: tuple[str, object]) -> str:
    return item[0]


def _normalised(options: Mapping[str, object]) -> dict[str, object]:
    """torch takes "-" for "_" in the names of options."""
    if not isinstance(options, Mapping):
        wanted = "a dict from names to values, such as {'split': 'seams'}"
        raise OptionError.bad_value("options", options, wanted, where="torch.compile")
    result: dict[str, object] = {}
    for given, value in options.items():
        if not isinstance(given, str):
            raise OptionError.bad_value(repr(given), given, "the name of an option is a str")
        name = given.replace("-", "_")
        if name in result and result[name] != value:
            raise OptionError.conflict(name, result[name], value, "with '-' and with '_'")
        result[name] = value
    return result


def _own(name: str, value: object, modes: Collection[str]) -> object:
    if name == "split":
        return _choice(name, value, SPLITS)
    if name == "mode":
        return None if value is None else _choice(name, value, modes)
    if name == "stitch":
        return _choice(name, value, STITCHES)
    if name == "ranges":
        return _ranges(value)
    if name == "dim" and (isinstance(value, bool) or not isinstance(value, int)):
        raise OptionError.bad_value(name, value, "an int, the number of a dim")
    if name == "piece_functions" and not isinstance(value, bool):
        raise OptionError.bad_value(name, value, "True or False")
    if name == "reuse" and not (isinstance(value, bool) or value == "blocks"):
        raise OptionError.bad_value(name, value, "True, False or 'blocks'")
    if name == "max_pieces" and (
        isinstance(value, bool) or not isinstance(value, int) or value < 1
    ):
        raise OptionError.bad_value(name, value, "an int, at least 1")
    return value


def _ranges(value: object) -> Given | None:
    found = None if value is None else checked(value)
    if value is not None and found is None:
        raise OptionError.bad_value("ranges", value, WANTED)
    return found


def _check_together(own: Mapping[str, object]) -> None:
    """`dim` and `stitch` say something about `ranges` only."""
    if own.get("ranges") is None:
        for name in ("dim", "stitch"):
            if name in own:
                text = "only together with 'ranges'"
                raise OptionError.bad_value(name, own[name], text)


def _choice(name: str, value: object, valid: Collection[str], where: str = "") -> str:
    if isinstance(value, str) and value in valid:
        return value
    wanted = ", ".join(map(repr, valid))
    raise OptionError.bad_value(name, value, wanted, near=valid, where=where)


def _mode(argument: str | None, option: object, modes: Collection[str]) -> str | None:
    """The mode as argument or as option; "default" and none are the same thing."""
    if argument is not None:
        _choice("mode", argument, modes, "mode=")
        if option is not None and option != argument:
            raise OptionError.conflict("mode", argument, option, "mode= and options=")
    chosen = option if argument is None else argument
    return None if chosen == "default" else cast("str | None", chosen)


def _check_inductor(
    name: str, value: object, current: object, types: Callable[[str], object] | None
) -> None:
    """As torch.compile(backend="inductor") does: only plain types are checked."""
    if types is not None:
        wanted = types(name)
    else:  # a default that is no plain value may stand for a union of types
        wanted = type(current) if isinstance(current, bool | int | float | str) else object
    if get_origin(wanted) is None and isinstance(wanted, type) and not isinstance(value, wanted):
        text = f"{with_article(wanted.__name__)}, as now {current!r} (an option of Inductor's)"
        raise OptionError.bad_value(name, value, text)


@functools.cache
def _default_split() -> str:
    """From the environment, which is read once, at the first compile."""
    value = os.environ.get(SPLIT_VARIABLE)
    if not value:
        return "auto"
    return _choice("split", value, SPLITS, f"environment variable {SPLIT_VARIABLE}")


def _text(value: object) -> str:
    """Stable across processes: no addresses. Inductor keys such objects itself, by uuid()."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    if isinstance(value, Mapping):
        items = sorted(f"{_text(k)}:{_text(v)}" for k, v in value.items())
        return "{" + ",".join(items) + "}"
    if isinstance(value, set | frozenset):
        return "{" + ",".join(sorted(map(_text, value))) + "}"
    if isinstance(value, list | tuple):
        ends = "[]" if isinstance(value, list) else "()"
        return ends[0] + ",".join(map(_text, value)) + ends[1]
    plain = repr(value)
    if " at 0x" not in plain:
        return plain
    name = value if hasattr(value, "__qualname__") else type(value)
    return f"<{getattr(name, '__module__', '')}.{getattr(name, '__qualname__', '')}>"
