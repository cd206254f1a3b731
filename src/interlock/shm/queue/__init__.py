"""Queues in shared memory: inbox, rings, work-stealing deque, and the notifiers that wake a consumer."""
