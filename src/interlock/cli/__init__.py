"""The command line: one module for each group of commands.

A command parses its arguments, calls the packages below, prints data on stdout and messages on stderr, and ends with a
documented exit code. It adds no rules: a Python program can do everything that it does.
"""
