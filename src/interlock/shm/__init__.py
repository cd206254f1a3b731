"""Shared memory: lifecycles, queues and pools that threads and processes share without locks.

Everything about atomic words in a mapped region lives here; charts that fit into a word run on it, stores do not.
"""
