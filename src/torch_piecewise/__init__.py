"""torch.compile, range by range: see the README."""

from .errors import (
    ArgumentError,
    CompilerMissing,
    OptionError,
    PiecewiseError,
    RangeError,
    UnsupportedSetting,
    UnsupportedTorch,
)
from .graph.cutting import cut
from .report.doctor import Finding, examine
from .report.explain import explain
from .report.explanation import Explanation, SourceLine

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "CompilerMissing",
    "Explanation",
    "Finding",
    "OptionError",
    "PiecewiseError",
    "RangeError",
    "SourceLine",
    "UnsupportedSetting",
    "UnsupportedTorch",
    "cut",
    "examine",
    "explain",
]
