"""Reports at the end of a run how many charts made a round trip and how many steps were compared."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for all trips, and one for each route that not every chart can take."""
    reports = [each for kind in ("passed", "failed") for each in terminalreporter.stats.get(kind, [])]
    reports = [dict(getattr(each, "user_properties", ())) for each in reports]
    counts = [each["roundtrip"] for each in reports if "roundtrip" in each]
    if counts:
        charts, steps, differences = (sum(each[position] for each in counts) for position in range(3))
        terminalreporter.write_line(f"roundtrip: {charts:,} charts, {steps:,} steps, {differences} differences")
    for each in reports:
        if "representable" in each:
            terminalreporter.write_line(f"roundtrip: {each['representable']}")
