"""Our own drivers: load, step, append, retry (the six duties).

The only rooms above it are the entry points; it decides nothing about charts and keeps nothing itself.
"""
