"""The summary of skipped tests: one line for each reason, not one for each test."""

from __future__ import annotations

from collections import Counter

import pytest

REASON_CHARS_MAX = 200


class SkipSummary:
    """A plugin that counts skipped tests by reason: a missing server is one line for all tests that need it."""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the reasons, the most frequent first."""
        reasons = Counter(_reason(each) for each in terminalreporter.stats.get("skipped", []))
        if not reasons:
            return
        terminalreporter.section(f"{sum(reasons.values()):,} tests skipped", yellow=True, bold=True)
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"SKIPPED {count:,}: {reason}", yellow=True)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    found = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    line = found.removeprefix("Skipped: ").strip().partition("\n")[0]
    return line if len(line) <= REASON_CHARS_MAX else f"{line[:REASON_CHARS_MAX]}..."
