"""One class per failure of the user's side: each message says what happened, where, and what to do.

An `assert` elsewhere in the package marks a bug of the package itself.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

TORCH_FROM, TORCH_BELOW = (2, 11), (2, 15)


class PiecewiseError(RuntimeError):
    """Base of all errors that this package raises on purpose."""


class OptionError(PiecewiseError, ValueError):
    """An option that does not exist, or a value that it can't take. `option` is its name."""

    option: str = ""

    @classmethod
    def unknown(cls, option: str, known: Iterable[str], where: str = "options=") -> OptionError:
        """`known` are all valid names; the message gives the nearest ones."""
        near = nearest(option, known)
        hint = (
            f"nearest valid: {', '.join(map(repr, near))}"
            if near
            else "see torch_piecewise's options in its README and torch._inductor.list_options()"
        )
        return cls._named(option, f"{where}: there is no option {option!r}; {hint}")

    @classmethod
    def bad_value(
        cls, option: str, given: object, wanted: str, *, near: Iterable[str] = (), where: str = ""
    ) -> OptionError:
        """`wanted` says what is valid, `near` are valid texts to compare `given` with."""
        text = f"{where or 'options='}: {option!r} is {given!r} ({type(given).__name__})"
        text += f"; valid: {wanted}"
        close = nearest(given, near) if isinstance(given, str) else []
        if close:
            text += f" (did you mean {close[0]!r}?)"
        return cls._named(option, text)

    @classmethod
    def conflict(cls, option: str, first: object, second: object, how: str) -> OptionError:
        """One option given two ways with different values; `how` names the two ways."""
        text = f"{option!r} is given twice, as {first!r} and {second!r} ({how}); give it once"
        return cls._named(option, text)

    @classmethod
    def _named(cls, option: str, text: str) -> OptionError:
        error = cls(text)
        error.option = option
        return error


class NotYetAvailable(OptionError):
    """An option that is planned and that this version does not have."""

    @classmethod
    def of(cls, option: str, available: Iterable[str]) -> OptionError:
        """`available` are the options that this version has."""
        text = (
            f"options=: {option!r} is planned, this version of torch_piecewise does not have it; "
        )
        return cls._named(option, text + f"leave it out. It has: {', '.join(available)}")


class RangeError(OptionError):
    """Ranges of the user's that do not fit, or that can't be cut. `option` is "ranges".

    `code` says why an operator can't be cut: one of `torch_piecewise.graph.axes.CODES`.
    """

    code: str | None = None

    @classmethod
    def of(cls, given: object, what: str, code: str | None = None) -> RangeError:
        """`what` says which range, and what to do; `code` is the kind of what is in the way."""
        shown = list(given) if isinstance(given, tuple) else given
        error = cls(f"ranges={shown!r}: {what}{f' [{code}]' if code else ''}")
        error.option, error.code = "ranges", code
        return error

    @classmethod
    def in_the_way(
        cls,
        given: object,
        dim: int,
        ranges: Iterable[object],
        where: str,
        why: str,
        code: str,
        hint: str = "Take another dim, cut inside the kernels (stitch='loops')",
    ) -> RangeError:
        """`where` names the operator that can't be cut, `why` is the reason, `code` its kind."""
        shown = ", ".join(map(str, ranges))
        text = f"dim {dim} can't be cut into {shown}: {where} is in the way, {why}. "
        return cls.of(given, f"{text}{hint}, or leave 'ranges' out", code)


class ArgumentError(PiecewiseError, TypeError):
    """Something of a wrong type was handed to a function of this package."""

    @classmethod
    def of(cls, call: str, name: str, given: object, wanted: str, write: str) -> ArgumentError:
        """`call` is the function as declared, `write` an example of a right call."""
        kind = with_article(type(given).__name__)
        return cls(f"{call}: {name} is {kind}, not {wanted}; write {write}")


class CompiledAgain(UserWarning):
    """Other shapes made a graph in ranges compile again and again."""

    @classmethod
    def of(cls, times: int, seconds: float) -> CompiledAgain:
        """It was compiled for `times` shapes, which took `seconds` in all."""
        return cls(
            f"a graph with 'ranges' was compiled {times} times, each for other shapes, in "
            f"{seconds:.1f} s, and will be for every further one. Compile it for any size: "
            "torch.compile(..., dynamic=True); bounds in 'ranges' then end with None"
        )


class InputError(PiecewiseError, ValueError):
    """Something named on the command line does not exist or is not what it has to be."""


class UnsupportedTorch(PiecewiseError):
    """The installed torch is outside the range that this package was made for."""

    @classmethod
    def check(cls, version: str) -> None:
        """Raise unless `version` (torch.__version__, "2.13.0+cpu") is in the supported range."""
        match = re.match(r"(\d+)\.(\d+)", version)
        if match and TORCH_FROM <= (int(match[1]), int(match[2])) < TORCH_BELOW:
            return
        low, high = (".".join(map(str, bound)) for bound in (TORCH_FROM, TORCH_BELOW))
        raise cls(
            f"torch {version} is installed; torch_piecewise needs torch >={low},<{high}, since it "
            f"builds on Inductor's internals. Install one of those (pip install 'torch>={low},"
            f"<{high}'), or use backend='inductor'"
        )


class UnsupportedSetting(PiecewiseError):
    """A setting of torch under which this backend can't work. `setting` is its name."""

    setting: str = ""

    @classmethod
    def of(cls, setting: str, value: object, why: str, fix: str) -> UnsupportedSetting:
        """`fix` says how to change the setting."""
        error = cls(f"{setting} is {value!r}: backend='piecewise' can't work with it, {why}; {fix}")
        error.setting = setting
        return error


class CompilerMissing(PiecewiseError):
    """No working C++ compiler, which the CPU code needs."""

    @classmethod
    def of(cls, tried: object, cause: object = None) -> CompilerMissing:
        """`tried` is the compiler's name or names, `cause` what failed."""
        because = f" ({str(cause).strip()})" if cause else ""
        return cls(
            f"no working C++ compiler: tried {tried}{because}. Install one (g++ or clang++), or "
            "name one with the environment variable CXX or Inductor's option 'cpp.cxx'"
        )


def with_article(noun: str) -> str:
    """ "an int", "a bool"."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def nearest(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The names most like `word`; for a dotted name, those that end like it count too."""
    names = list(known)
    found = difflib.get_close_matches(word, names, count, 0.6)
    ends = [n for n in names if "." in n and n.rsplit(".", 1)[1] == word]
    return list(dict.fromkeys(ends + found))[:count]
