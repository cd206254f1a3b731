"""The nouns: frozen values, their canonical encoding, and every limit.

Everything that crosses a room is defined here and checked where it enters. Refuses to act: a value answers questions
about itself, and that is all. Knows no text format, no rule of the step, and nothing outside the process.
"""
