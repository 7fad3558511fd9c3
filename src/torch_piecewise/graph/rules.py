"""All rules: importing this module registers them."""

from . import pointwise

__all__ = ["pointwise"]
