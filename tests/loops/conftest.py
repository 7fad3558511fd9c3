"""How many examples the property tests of the loop IR run: 200, or 10,000 on request."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_common = {
    "deadline": None,
    "print_blob": True,
    "derandomize": False,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("piecewise", max_examples=200, **_common)
settings.register_profile("piecewise-all", max_examples=10_000, **_common)
settings.load_profile(
    "piecewise-all" if os.environ.get("PIECEWISE_TEST_ALL") == "1" else "piecewise"
)
