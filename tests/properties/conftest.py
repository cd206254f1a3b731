"""Reports at the end of a run how much was compared, including by workers."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line: sequences, steps and seeds of the comparison with the reference interpreter."""
    reports = [each for kind in ("passed", "failed") for each in terminalreporter.stats.get(kind, [])]
    results = [
        dict(each.user_properties) for each in reports if "sequences" in dict(getattr(each, "user_properties", ()))
    ]
    if results:
        sequences, steps = (sum(int(each[name]) for each in results) for name in ("sequences", "steps"))
        first = min(int(each["seed"]) for each in results)
        terminalreporter.write_line(f"agreement: {sequences:,} sequences, {steps:,} steps, seeds from {first}")
