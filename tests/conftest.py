"""What all tests share: a clean Dynamo for each, the backend under test, and which tests run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

ALL = "PIECEWISE_TEST_ALL"

# Property tests run 200 examples, or 10,000 on request. A busy machine is no fault of a test's.
settings.register_profile(
    "piecewise",
    max_examples=10_000 if os.environ.get(ALL) == "1" else 200,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("piecewise")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend",
        default="piecewise",
        help="what tests of cases, bench and models compile with; `inductor` shows what is "
        "not this package's doing",
    )


@pytest.hookimpl(trylast=True)  # once hypothesis has marked its own
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the long tests out, unless all are asked for or marks are chosen with -m."""
    if os.environ.get(ALL) == "1":
        for item in items:
            if item.get_closest_marker("hypothesis"):  # 10,000 examples take as long as they take
                item.add_marker(pytest.mark.timeout(0))
        return
    if config.option.markexpr:
        return
    long = [item for item in items if item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in set(long)]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What the sweep of operators covered: its tests record that as the property "sweep"."""
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, [])]
    found = [value for r in reports for key, value in r.user_properties if key == "sweep"]
    if not found:
        return
    from .operators.summary import lines  # slow to import, which runs without the sweep need not

    terminalreporter.section("operators behind seams")
    for line in lines(found):
        terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def clean_dynamo() -> Iterator[None]:
    """No compiled code, and no recompile limit reached, is left over from another test."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> str:
    """The backend under test: "piecewise", or what --backend names."""
    return str(request.config.getoption("--backend"))


@pytest.fixture
def compiled(backend: str) -> Callable[..., Any]:
    """torch.compile with the backend under test."""

    def compile_it(fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return torch.compile(fn, backend=backend, **options)

    return compile_it
