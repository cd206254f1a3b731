"""Migrations: move all entities of a kind to a newer chart while they are in use, pause, resume, and take it back.

A migration is an entity of the store (`record`), so it survives its process and its journal is its audit log. What is
moved is decided by `evolve`; each move is an ordinary entry.
"""
