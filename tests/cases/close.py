"""The tolerance of all cases."""

from __future__ import annotations

from typing import Any

import torch


def assert_same(got: Any, want: Any) -> None:
    """Tensors, or tuples of them, agree to 1e-4."""
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
