"""Frozen values, their canonical encoding, and every limit.

Values that cross packages are defined here and checked where they enter. They answer questions about themselves and
have no side effects. No text format, no rule of the step, and no I/O.
"""
