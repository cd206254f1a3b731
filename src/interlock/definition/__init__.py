"""Readers and writers: text or Python to and from one `Document`.

They take strings, never paths, do no I/O, resolve no names, and never evaluate what they read.
"""
