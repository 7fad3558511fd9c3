"""The example of the loop IR's docstring runs, and what it needs is public."""

from __future__ import annotations

import doctest

from torch_piecewise import loops


def test_the_docstring_example() -> None:
    result = doctest.testmod(loops)
    assert result.attempted >= 8 and result.failed == 0


def test_public_names() -> None:
    assert all(hasattr(loops, name) for name in loops.__all__)
    assert loops.__all__ == sorted(loops.__all__)
