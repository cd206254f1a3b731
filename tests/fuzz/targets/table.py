"""The parsers under test, by name. Each is imported by the process that runs it."""

from __future__ import annotations

from importlib import import_module

from tests.fuzz.target import Target

TARGETS = {
    "yaml": ("definitions", "YAML"),
    "scxml": ("definitions", "SCXML"),
    "xstate": ("definitions", "XSTATE"),
    "smcat": ("definitions", "SMCAT"),
    "journal": ("journals", "JOURNAL"),
    "message": ("messages", "MESSAGE"),
    "expression": ("expressions", "EXPRESSION"),
}


def get_target(name: str) -> Target:
    """Return a target."""
    module, attribute = TARGETS[name]
    found: Target = getattr(import_module(f"tests.fuzz.targets.{module}"), attribute)
    return found
