"""A broker and three processes: command line, console and worker, which is killed once. Every entry is published."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import pytest

import interlock
from interlock.buses.registry import open_source_url
from interlock.model.journal.message import Message, decode_message
from tests.processes.commands.test_published import LAMP, STORE, running
from tests.servers.buses.test_buses import reading
from tests.support.eventually import PATIENCE_SECONDS, eventually_blocking

LAMPS = 3


@pytest.fixture(params=["nats", "redis"])
def broker(request: pytest.FixtureRequest) -> Any:
    """Each broker in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def project(folder: Path) -> Path:
    """A project with a lamp and no store yet."""
    (folder / "lamp.yaml").write_text(LAMP, encoding="utf-8")
    (folder / "interlock.toml").write_text(f'store = "{STORE}"\ncharts = ["lamp.yaml"]\n', encoding="utf-8")
    return folder


def run_command(*arguments: str) -> None:
    """Run a command line in a separate process."""
    command = [sys.executable, "-m", "interlock", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr


class Console:
    """The console of another process, with a login."""

    def __init__(self, link: str) -> None:
        base, _, token = link.partition("/#login=")
        self.client = httpx.Client(base_url=base, timeout=PATIENCE_SECONDS)
        answer = self.client.post("/api/v1/login", json={"secret": token}, headers={"Origin": base})
        self._headers = {"Origin": base, "X-Interlock-CSRF": answer.json()["csrf"]}

    def flip(self, entity: str) -> None:
        """Send an event."""
        sent = self.client.post(f"/api/v1/send/{entity}", json={"event": "flip"}, headers=self._headers)
        assert 200 == sent.status_code, sent.text

    def version(self, entity: str) -> int:
        """The version of an entity."""
        answer = self.client.get(f"/api/v1/entity/{entity}", headers=self._headers)
        assert 200 == answer.status_code, answer.text
        return int(answer.json()["latest"])


def entry_of(message: Message) -> str:
    """The entity and the version that a message is about: its id without the ordinal."""
    return message.id.rpartition("/")[0]


async def read_until(url: str, wanted: set[str]) -> list[Message]:
    """The messages of a stream, until there is one about each of these entries."""
    source = open_source_url(url)
    found: list[Message] = []
    stream = source.incoming()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for each in stream:
                found.append(decode_message(each.body))
                await each.ack()
                if wanted <= set(map(entry_of, found)):
                    break
    except TimeoutError:
        raise AssertionError(f"missing: {wanted - set(map(entry_of, found))}") from None
    finally:
        await stream.aclose()
        await source.close()
    return found


def test_every_entry_of_three_processes_is_published_and_repeats_have_the_same_id(project: Path, broker: Any) -> None:
    """Each lamp is created by the command line, flipped by the console, dimmed by a worker, and flipped by the command
    line again. The first worker is killed when some of that has happened.
    """
    names = [f"lamp/{number}" for number in range(LAMPS)]
    bus = broker.url("three")
    with running("run", "--bus", bus) as (worker, ready), running("serve", "--port", "0") as (_, link):
        assert "running" in ready
        console = Console(link)
        for name in names:
            run_command("create", name)
            console.flip(name)
            if name == names[0]:
                eventually_blocking(lambda: console.version(names[0]) == 3)
        worker.kill()
        worker.wait()
        with running("run", "--bus", bus) as (_, line):
            assert "running" in line
            for name in names:
                eventually_blocking(lambda: console.version(name) == 3)  # noqa: B023 - called here
                run_command("send", name, "flip")
            wanted = {f"{name}/{version}" for name in names for version in range(1, 5)}
            found = asyncio.run(read_until(reading(broker, "three"), wanted))
        console.client.close()
    with interlock.connect(STORE, charts=[interlock.loads(LAMP)], work=False) as lamps:
        entries = {name: [(each.version, each.after) for each in lamps.journal(name)] for name in names}

    states = [(1, ("dark",)), (2, ("bright",)), (3, ("dim",)), (4, ("dark",))]
    assert dict.fromkeys(names, states) == entries
    assert wanted == set(map(entry_of, found))
    assert len(wanted) == len({each.id for each in found})
    bodies = defaultdict(set)
    for each in found:
        bodies[each.id].add((each.subject, each.type, json.dumps(each.data, sort_keys=True), each.time_ms))
    assert {1} == {len(each) for each in bodies.values()}
    for name in names:
        order = list(dict.fromkeys(entry_of(each) for each in found if each.subject == name))
        assert [f"{name}/{version}" for version in range(1, 5)] == order
