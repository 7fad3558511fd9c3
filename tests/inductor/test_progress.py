"""The bar over pieces: on a terminal, and nowhere else."""

from __future__ import annotations

import io
import sys

import pytest

from torch_piecewise.inductor import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "pieces", "shown"),
    [(Terminal(), 3, True), (Terminal(), 1, False), (io.StringIO(), 3, False)],
    ids=["terminal", "one piece", "log"],
)
def test_where_it_is_shown(monkeypatch, stream, pieces, shown) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.over(pieces) as advance:
        for _ in range(pieces):
            advance()
    said = stream.getvalue()
    assert ("piecewise" in said and f"{pieces}/{pieces}" in said) if shown else said == ""
