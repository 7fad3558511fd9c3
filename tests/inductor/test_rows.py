"""How the pieces of one nest stand in its kernel: row by row, without barriers between them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

from .code import fresh, generated


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rolled(x: torch.Tensor) -> torch.Tensor:
    return x.roll((x.shape[0] // 2, -1), (0, 1)) * 2 + x


def check(fn, x: torch.Tensor) -> None:
    got = torch.compile(fresh(fn), backend="piecewise", options={"split": "seams"})(x)
    torch.testing.assert_close(got, fn(x), rtol=0, atol=0)


def part(code: str, start: str, stop: str) -> str:
    begin = code.index(start)
    return code[begin : code.index(stop, begin + 1)]


def test_pieces_of_the_same_rows_share_the_loop_over_them(one_thread) -> None:
    x = torch.randn(100, 70)
    code = generated(rolled, x, split="seams")
    assert code.count("// 2 pieces, row by row") == 2
    rows = part(code, "// 2 pieces, row by row", "// 2 pieces, row by row")
    assert len(re.findall(r"\bx0\+=", rows)) == 1 and len(re.findall(r"\bx1\+=", rows)) == 2
    assert rows.index("x0+=") < rows.index("// piece 1 of 4") < rows.index("// piece 2 of 4")
    check(rolled, x)


def test_a_piece_of_one_row_is_vectorised(one_thread) -> None:
    code = generated(lambda x: x.roll(1, 0) * 2 + x, torch.randn(100, 70), split="seams")
    assert "Vectorized<float>::loadu" in part(code, "// piece 1 of 2", "// piece 2 of 2")


def test_threads_wait_after_the_last_piece_only(two_threads) -> None:
    def two_nests(x: torch.Tensor) -> torch.Tensor:
        y = rolled(x)
        return F.pad(y.sum(1, keepdim=True) + y.t().contiguous().t(), (3, 3)) * 2

    x = torch.randn(256, 256)
    code = generated(rolled, x, split="seams")
    pragmas = re.findall(r"#pragma omp (?:for|single).*", code)
    assert len(pragmas) > 1
    assert all(p.endswith("nowait") for p in pragmas[:-1]) and "nowait" not in pragmas[-1]
    for _ in range(3):
        check(rolled, x)
    x = torch.randint(-4, 4, (256, 256)).float()  # whole numbers: the order of adding is the same
    check(two_nests, x)


def test_few_rows_are_not_shared_among_threads(two_threads) -> None:
    def shifted(x: torch.Tensor) -> torch.Tensor:
        return x.roll(1, 1) * 2 + x

    assert "row by row" not in generated(shifted, torch.randn(4, 100_000), split="seams")
    assert "row by row" in generated(shifted, torch.randn(400, 1000), split="seams")


def test_parts_of_a_reduction_are_one_function(one_thread) -> None:
    def summed(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (20, 0)).amax(1)

    x = torch.randn(40, 70)
    options = {"split": "seams", "piece_functions": True}
    code = generated(summed, x, **options)
    assert re.findall(r"noinline\)\) void (piecewise_\w+)\(", code) == ["piecewise_op0_0"]
    assert "// piece 2 of 2" in code
    got = torch.compile(fresh(summed), backend="piecewise", options=options)(x)
    torch.testing.assert_close(got, summed(x), rtol=0, atol=0)
