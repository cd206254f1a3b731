"""Shared memory: lifecycles, queues and worker pools that threads and processes share without locks.

The state is in atomic words of a mapped region. A region exists until the machine restarts: use a store for durable
state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy_names import lazy_names

if TYPE_CHECKING:
    from interlock.shm.lifecycle.asgi import DrainMiddleware, drain_workers, shared_lifecycle
    from interlock.shm.lifecycle.chart import LIFECYCLE_YAML, AtomicChart
    from interlock.shm.lifecycle.drain import CloseReport, Drain, Participant
    from interlock.shm.lifecycle.gate import Gate
    from interlock.shm.lifecycle.lifecycle import Lifecycle
    from interlock.shm.lifecycle.permits import Permit, Phase
    from interlock.shm.lifecycle.status import LifecycleStatus, lifecycle_status
    from interlock.shm.memory.region import MemoryRegion
    from interlock.shm.memory.words import AtomicWord
    from interlock.shm.pool.pool import TaskPool
    from interlock.shm.pool.worker import spawn
    from interlock.shm.queue.deque import Deque
    from interlock.shm.queue.inbox import Inbox
    from interlock.shm.queue.notifier import EventNotifier
    from interlock.shm.queue.ring import Producer

_HOMES = {
    "LIFECYCLE_YAML": "interlock.shm.lifecycle.chart",
    "AtomicChart": "interlock.shm.lifecycle.chart",
    "AtomicWord": "interlock.shm.memory.words",
    "CloseReport": "interlock.shm.lifecycle.drain",
    "Deque": "interlock.shm.queue.deque",
    "Drain": "interlock.shm.lifecycle.drain",
    "DrainMiddleware": "interlock.shm.lifecycle.asgi",
    "EventNotifier": "interlock.shm.queue.notifier",
    "Gate": "interlock.shm.lifecycle.gate",
    "Inbox": "interlock.shm.queue.inbox",
    "Lifecycle": "interlock.shm.lifecycle.lifecycle",
    "LifecycleStatus": "interlock.shm.lifecycle.status",
    "Participant": "interlock.shm.lifecycle.drain",
    "Permit": "interlock.shm.lifecycle.permits",
    "Phase": "interlock.shm.lifecycle.permits",
    "Producer": "interlock.shm.queue.ring",
    "MemoryRegion": "interlock.shm.memory.region",
    "TaskPool": "interlock.shm.pool.pool",
    "drain_workers": "interlock.shm.lifecycle.asgi",
    "lifecycle_status": "interlock.shm.lifecycle.status",
    "shared_lifecycle": "interlock.shm.lifecycle.asgi",
    "spawn": "interlock.shm.pool.worker",
}

__all__ = (
    "LIFECYCLE_YAML",
    "AtomicChart",
    "AtomicWord",
    "CloseReport",
    "Deque",
    "Drain",
    "DrainMiddleware",
    "EventNotifier",
    "Gate",
    "Inbox",
    "Lifecycle",
    "LifecycleStatus",
    "MemoryRegion",
    "Participant",
    "Permit",
    "Phase",
    "Producer",
    "TaskPool",
    "drain_workers",
    "lifecycle_status",
    "shared_lifecycle",
    "spawn",
)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
