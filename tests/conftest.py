"""Settings that hold for every test.

Rule 1: no test depends on how fast the machine is, so hypothesis has no deadline here.
Rule 2: a run can be repeated: pytest-randomly prints its seed, hypothesis prints the failing example as a blob.
"""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("interlock", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("interlock")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--rewrite`, which only this file can do for a run of one folder."""
    parser.addoption(
        "--rewrite", action="store_true", help="write what happened into the scenario files; review the diff"
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether scenario files take the actual output instead of being compared with it."""
    return bool(request.config.getoption("--rewrite"))
