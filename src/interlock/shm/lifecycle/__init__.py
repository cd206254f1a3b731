"""Lifecycles in shared memory: permits, gates, drains."""
