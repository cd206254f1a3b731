"""The test runner of Django, with runtimes that are closed before the test databases are deleted.

PostgreSQL does not drop a database with open connections. In the settings:

    TEST_RUNNER = "interlock.contrib.django.test_runner.Runner"
"""

from __future__ import annotations

from typing import Any

from django.test.runner import DiscoverRunner

from interlock.contrib.django.runtimes import close_runtimes


class Runner(DiscoverRunner):
    """Runs tests as `DiscoverRunner` does."""

    def teardown_databases(self, old_config: Any, **options: Any) -> None:
        """Close the runtimes, and delete the test databases."""
        close_runtimes()
        super().teardown_databases(old_config, **options)
