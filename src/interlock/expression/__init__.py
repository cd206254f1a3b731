"""The safe expression language of guards and values: text to checked tree, checked tree to Python code.

Only what is listed here is allowed: no attributes of Python objects, no methods, no loops, no unbounded values.
"""
