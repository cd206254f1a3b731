"""The command line: one module for each group of commands.

A command parses its arguments, calls the packages below, prints data on stdout and messages on stderr, and ends with a
documented exit code. It has no rules of its own: everything it does, a Python program can do too.
"""
