"""The bus in memory after a fork: a child does not wait for a thread of its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.buses import memory
from interlock.errors import UsageError
from interlock.model.journal.message import Message
from tests.processes.shm.processes import Child, Line
from tests.support.eventually import PATIENCE_SECONDS
from tests.unit.runtime.test_blocking import _opened

MESSAGE = Message(id="order/A.1/7/0", source="/shop/order", type="order.paid", data={"n": 1})


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_locks_of_its_parent() -> None:
    bus = memory.open_bus("memory:forks")

    def child(line: Line) -> None:
        same = memory.open_bus("memory:forks") is bus
        asyncio.run(bus.publish(MESSAGE))
        line.send((same, len(bus.messages)))

    with memory._lock, bus._lock:
        started = Child(child)
        try:
            said = started.receive()
        finally:
            started.end()

    assert ((True, 1), []) == (said, bus.messages)


KEPT = """
import gc, os
from interlock.ports.fork import keep_forever

class Loud:
    def __del__(self):
        os.write(1, b"freed\\n")

kept, dropped = Loud(), Loud()
keep_forever(kept)
del kept, dropped
gc.collect()
os.write(1, b"end\\n")
"""


def test_an_object_kept_forever_is_not_freed_at_exit() -> None:
    done = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, check=True, env=os.environ)

    assert b"freed\nend\n" == done.stdout


def test_calls_in_a_forked_child_are_refused() -> None:
    doors = _opened()
    doors.create("door/1")
    child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE_SECONDS))  # ends it, should it wait
        code = 1
        try:
            doors.state("door/1")
        except UsageError as error:
            doors.close()
            code = 0 if error.code == "runtime.forked" else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    versions = [doors.state("door/1").version for _ in range(3)]
    doors.close()

    assert (0, [1, 1, 1]) == (os.waitstatus_to_exitcode(status), versions)


@pytest.mark.parametrize("url", ["sqlite:///doors.db", "file:doors"])
def test_a_runtime_may_be_closed_in_atexit(url: str, tmp_path: Path) -> None:
    program = f"""
import atexit
import interlock

door = interlock.loads("{{interlock: 1, kind: door, states: {{closed: {{}}}}}}")
doors = interlock.open({url!r}, charts=[door]).__enter__()
atexit.register(print, "closed")
atexit.register(doors.close)
doors.create("door/1")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )

    assert (0, "closed\n", "") == (ended.returncode, ended.stdout, ended.stderr)
