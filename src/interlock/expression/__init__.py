"""The small safe language of guards and values: text to checked tree, checked tree to Python code.

Refuses everything that is not on its lists: no attribute of a Python object, no method, no loop, no unbounded value.
"""
