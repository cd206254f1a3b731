"""Read-only questions about a store: populations, stuck entities, work status, accepted events, history.

The command line, the console, the demo and notebooks ask them, so that all of them show the same numbers and words. It
writes nothing, prints nothing and knows no HTTP.
"""
