"""Checks of a chart: errors, warnings and lints with stable codes."""
