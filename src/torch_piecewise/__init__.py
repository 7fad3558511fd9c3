"""torch.compile, range by range: see the README."""

from .errors import (
    CompilerMissing,
    OptionError,
    PiecewiseError,
    UnsupportedSetting,
    UnsupportedTorch,
)
from .report.doctor import Finding, examine
from .report.explain import Explanation, explain

__version__ = "0.1.0"

__all__ = [
    "CompilerMissing",
    "Explanation",
    "Finding",
    "OptionError",
    "PiecewiseError",
    "UnsupportedSetting",
    "UnsupportedTorch",
    "examine",
    "explain",
]
