"""A stored definition that this release cannot use, on every store: what is read, what is refused, and that a process
which has the file continues.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import interlock
from interlock.errors import UnavailableError
from interlock.ports.definitions import Definition
from interlock.ports.store import Store
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from tests.conformance.runtime.test_upgrades import STORES
from tests.support.postgres_server import store_or_skip
from tests.unit.runtime.scene import StillClock

pytestmark = pytest.mark.conformance

LAMP = """
interlock: 1
kind: lamp
states:
  dark: {on: {press: bright}}
  bright: {on: {press: dark}}
"""
Change = Callable[[dict[str, Any]], object]

CASES: dict[str, tuple[Change, str]] = {
    "another behaviour": (lambda found: found["states"]["bright"].pop("on"), "definition.damaged"),
    "another kind": (lambda found: found.update(kind="torch"), "definition.damaged"),
    "a newer vocabulary": (lambda found: found.update(interlock=2), "definition.newer"),
    "unknown semantics": (lambda found: found.update(semantics=99), "definition.newer"),
    "an unknown key": (lambda found: found["states"]["bright"].update(hovers=True), "definition.newer"),
}


@pytest.fixture(params=STORES)
async def store(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A store of each kind with a lamp."""
    address = STORES[request.param]
    url = store_or_skip() if address == "postgresql:" else address.format(tmp_path)
    async with interlock.open(url, charts=[interlock.loads(LAMP)], clock=StillClock(), work=False) as lamps:
        await lamps.create("lamp/1")
        yield lamps.store


def process(store: Store, *texts: str) -> Runtime:
    """The runtime of another process."""
    return Runtime(store, ChartRegistry(interlock.loads(each).kernel for each in texts), StillClock())


async def store_edition(store: Store, change: Change) -> None:
    """Save a changed text under the name of the revision, as the newest one."""
    assert store.definitions is not None
    (edition,) = await store.definitions.list_definitions("lamp")
    (found,) = await store.definitions.read_definitions("lamp", edition.revision)
    assert found.body is not None
    content = msgspec.json.decode(found.body)
    change(content)
    definition = Definition(kind="lamp", revision=edition.revision, body=msgspec.json.encode(content))
    await store.definitions.save_definition(definition, now_ms=2_000)


@pytest.mark.parametrize("case", CASES)
async def test_a_definition_that_cannot_be_used_stops_steps_and_nothing_else(store: Store, case: str) -> None:
    change, code = CASES[case]
    await store_edition(store, change)
    reader = process(store)
    for call in (reader.send, reader.dry_run):
        with pytest.raises(UnavailableError) as refused:
            await call("lamp/1", "press")
        assert code == refused.value.code
    shown, entries = await reader.state("lamp/1"), await reader.journal("lamp/1")
    verified = await reader.verify("lamp/1")
    sent = await process(store, LAMP).send("lamp/1", "press")

    assert (1, ("dark",), 1) == (shown.version, shown.configuration, len(entries))
    assert verified.problem is not None
    assert (code, False) == (verified.problem.code, verified.problem.is_corruption)
    assert ("applied", 2) == (sent.outcome, sent.version)
