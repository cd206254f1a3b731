"""A service with one event loop and three worker processes that share memory.

Workers measure (here: count) and push results into an inbox, alarms before readings. The loop is woken, takes batches,
and never blocks. One worker is killed while it works, and another takes its place.
At the end the lifecycle is drained: new work is refused in every process, running work ends, and it closes.

Run it with `python examples/worker_service.py`.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections import Counter
from multiprocessing.context import SpawnProcess
from time import sleep

from interlock.shm import Inbox, Lifecycle, MemoryRegion

WORKERS = 3
READINGS = 300
ALARM, READING = 0, 1


def measure(region: MemoryRegion, inbox: Inbox) -> None:
    """A worker: while the service runs, do a piece of work and send the result to the loop."""
    service = multiprocessing.parent_process()
    assert service is not None  # a worker always has a service
    with Lifecycle(region) as life, inbox.producer() as producer:
        number = 0
        while service.is_alive() and (permit := life.try_enter()) is not None:
            with permit:
                sleep(0.001)  # blocking work: fine in a worker
                number += 1
                if number % 50 == 0:
                    producer.push(f"alarm {number} of process {os.getpid()}".encode(), priority=ALARM)
                while not producer.push(b"%d" % number, priority=READING) and service.is_alive():
                    sleep(0.001)  # full: the loop is behind; a worker may wait, the loop may not


def start_worker(region: MemoryRegion, inbox: Inbox) -> SpawnProcess:
    """One worker process, attached to the region by its name."""
    process = multiprocessing.get_context("spawn").Process(target=measure, args=(region, inbox), daemon=True)
    process.start()
    return process


async def main() -> None:
    """Run the service until enough results were read, then drain it."""
    with (
        MemoryRegion.create(f"worker-service-{os.getpid()}", slots=WORKERS + 2) as region,
        Inbox(region, producers=WORKERS, priorities=2) as inbox,
        Lifecycle(region) as life,
    ):
        life.start()
        workers = [await asyncio.to_thread(start_worker, region, inbox) for _ in range(WORKERS)]
        print(f"{WORKERS} workers at work")

        read: Counter[int] = Counter()
        async for batch in inbox.batches(budget_us=500):
            read[batch.priority] += len(batch)
            if read[READING] > READINGS // 3 and len(workers) == WORKERS:
                victim = workers.pop()
                os.kill(victim.pid or 0, signal.SIGKILL)
                victim.join()
                workers.append(await asyncio.to_thread(start_worker, region, inbox))
                workers.append(victim)
                print("a worker was killed; another has its place")
            if read[READING] >= READINGS and len(workers) > WORKERS:
                break

        report = await life.drain(timeout=30)
        for worker in workers:
            await asyncio.to_thread(worker.join, 10)
        while (rest := inbox.take()) is not None:  # no published message is lost
            read[rest.priority] += len(rest)

        print(f"enough was read: {read[READING] >= READINGS}; alarms were heard: {read[ALARM] > 0}")
        print(f"drained: closed={report.closed}, still inside: {len(report.still_inside)}")


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(main(), 60))
