"""Tells at the end of a run how much was compared, also when workers did it."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line: sequences, steps and seeds of the comparison with the reference interpreter."""
    reports = [each for kind in ("passed", "failed") for each in terminalreporter.stats.get(kind, [])]
    told = [dict(each.user_properties) for each in reports if "sequences" in dict(getattr(each, "user_properties", ()))]
    if told:
        sequences, steps = (sum(int(each[name]) for each in told) for name in ("sequences", "steps"))
        first = min(int(each["seed"]) for each in told)
        terminalreporter.write_line(f"agreement: {sequences:,} sequences, {steps:,} steps, seeds from {first}")
