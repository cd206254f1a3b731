"""From a document to a chart: resolve names, check, expand, index.

Reports every diagnostic at once, each with its place. Refuses to guess: what is unknown, ambiguous or contradictory is
an error with a hint. Reads no text and runs no step.
"""
