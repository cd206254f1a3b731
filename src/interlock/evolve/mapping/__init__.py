"""Mappings: what a person decides about entities that cannot be carried as they are.

Nothing here reads a file or a store, and no result depends on the mapping later: a move records what came out of it.
"""
