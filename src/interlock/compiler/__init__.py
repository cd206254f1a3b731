"""Compile a document into a chart: resolve names, check, expand sagas, number states.

The compiler reports all diagnostics together, each with its place. It does not guess: an unknown, ambiguous or
contradictory name is an error with a hint. It reads no text and runs no step.
"""
