"""The runtime: load, step, append, retry.

It decides nothing about charts and stores nothing itself.
"""
