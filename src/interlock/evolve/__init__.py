"""Changes of a definition: the name of a behaviour, the differences between two, and what they mean for entities.

It compares values and opens nothing: no file, no store, no clock.
"""
