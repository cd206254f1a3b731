"""What an operator changes in a running system: retry or drop work, send in bulk. Every change is written to the audit.

It sits above `observe`, which finds what needs attention, and below the command line and the console, which ask for
the change. Nothing here prints or knows HTTP.
"""
