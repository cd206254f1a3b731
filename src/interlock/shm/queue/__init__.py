"""Queues in shared memory: inbox, rings, work-stealing deque, and how a consumer is woken."""
