"""The command line: one module for each group of commands, and as little else as possible.

Reads files and arguments, calls the rooms below, prints data on stdout and the rest on stderr, and ends with a
documented exit code. Holds no rule of its own: what a command knows, a Python caller can have too.
"""
