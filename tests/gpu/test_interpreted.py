"""Results of what is generated for a GPU, on the CPU: Triton interprets the kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .fake import needs_triton
from .interpreted import GROUPS

ROOT = Path(__file__).parents[2]


@needs_triton
@pytest.mark.parametrize("group", GROUPS)
def test_kernels_compute_what_eager_mode_does(group: str) -> None:
    """In a process of its own: Triton decides whether to interpret when it is imported."""
    command = [sys.executable, "-m", "tests.gpu.interpreted", *GROUPS[group]]
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
