"""A pool of worker processes over shared memory."""
