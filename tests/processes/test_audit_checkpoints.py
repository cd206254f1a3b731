"""`interlock audit checkpoint --every` as processes: one writes, another follows when it was killed, none is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import interlock
from interlock.observe.audit_proof import verify_audit
from interlock.operate.checkpoints import read_published
from interlock.trust.checkpoints import SigningKey, decode_published
from tests.support.eventually import eventually

CHART = interlock.loads("""
interlock: 1
kind: order
revision: 1.0.0
initial: unpaid
states:
  unpaid: {on: {pay: paid}}
  paid: {}
""")


@contextmanager
def publisher(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that publishes checkpoints to a file."""
    words = ["audit", "checkpoint", f"sqlite:///{folder}/x.db", "--key", str(folder / "audit.pem")]
    words += ["--publish", str(folder / "published.jsonl"), "--every", "100ms"]
    process = subprocess.Popen([sys.executable, "-m", "interlock", *words], stderr=subprocess.PIPE, cwd=folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


async def test_a_killed_publisher_is_followed_by_the_next(tmp_path: Path) -> None:
    """Each checkpoint is in the file once, in order; the second process waits until the lease of the first ends."""
    key = SigningKey.create(tmp_path / "audit.pem")
    file = tmp_path / "published.jsonl"
    url = f"sqlite:///{tmp_path}/x.db"

    def covered() -> set[str]:
        lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
        published = [decode_published(each) for each in lines if each.endswith(b"\n")]  # the last may be in progress
        return {entity for each in published for entity in each.checkpoint.journals}

    async with interlock.open(url, charts=[CHART], work=False) as opened:
        await opened.create("order/1")
        with publisher(tmp_path) as first, publisher(tmp_path) as second:
            await eventually(lambda: covered() >= {"order/1"})
            os.kill(first.pid, signal.SIGKILL)
            first.wait()
            await opened.create("order/2")
            await eventually(lambda: covered() >= {"order/1", "order/2"})
            os.kill(second.pid, signal.SIGTERM)
            second.wait()
        with publisher(tmp_path):
            await opened.create("order/3")
            await eventually(lambda: covered() >= {"order/1", "order/2", "order/3"})
        published = read_published(file)
        numbers = [each.checkpoint.number for each in published]
        proof = await verify_audit(opened.store, now_ms=opened.clock.now_ms(), key=key.public, published=published)

    assert list(range(1, len(numbers) + 1)) == numbers
    assert ((), len(numbers), len(numbers)) == (proof.problems, proof.checkpoints, proof.signed)
