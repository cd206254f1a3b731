"""Definitions in our own vocabulary as JSON."""
