"""Authorization on every store: who may send, create and read, and what a refusal discloses."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.errors import InterlockError, NotFoundError, UsageError
from interlock.model.codec import to_builtins
from interlock.runtime.chart_registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from tests.support.postgres_server import store_or_skip

LEAVE = """\
interlock: 1
kind: leave
revision: "1.0"
context: {owner: {type: string, default: ada}}
events:
  approved: {roles: [boss]}
  noted: {roles: [clerk, boss], permit: "= principal.id == context.owner", dedupe: "= event.data.id"}
states:
  open: {on: {noted: {}, approved: done}}
  done: {type: final}
"""
OLD_LEAVE = LEAVE.replace('"1.0"', '"0.9"').replace("  noted", "  withdrawn: {roles: [auditor]}\n  noted")
OLD_LEAVE = OLD_LEAVE.replace("approved: done}", "approved: done, withdrawn: done}")
CLERK, BOSS = {"id": "ada", "roles": ["clerk"]}, {"id": "bob", "roles": ["boss"]}
EVE = {"id": "eve", "kind": "user", "roles": ["visitor"]}
ADDRESSES = pytest.mark.parametrize(
    "address",
    ["memory:", "sqlite:///{}/x.db", "file://{}/x", "postgresql:"],
    ids=["memory", "sqlite", "file", "postgresql"],
)


@asynccontextmanager
async def opened(address: str, folder: Path, *texts: str) -> AsyncGenerator[Runtime, None]:
    """Return a runtime for these charts on a store of this kind, without a worker."""
    charts = [interlock.loads(each) for each in texts]
    url = store_or_skip() if address == "postgresql:" else address.format(folder)
    async with interlock.open(url, charts=charts, work=False) as found:
        yield found


async def answer(runtime: Runtime, entity: str, event: str, payload: Any = None, **options: Any) -> Any:
    """Return what a sender gets, with the id of the entity replaced: a receipt as plain data, or an error."""
    try:
        found = to_builtins(await runtime.send(entity, event, payload, **options))
    except InterlockError as error:
        found = {"error": type(error).__name__, "code": error.code, "message": error.message, "hint": error.hint}
    return {name: value.replace(entity, "ENTITY") if type(value) is str else value for name, value in found.items()}


@ADDRESSES
@pytest.mark.parametrize(
    ("event", "payload", "options"),
    [
        ("approved", None, {}),
        ("approved", None, {"key": "known"}),
        ("approved", None, {"expected": 1}),
        ("approved", None, {"expected": 7}),
        ("noted", {"id": "n1"}, {}),
        ("unheard.of", None, {}),
    ],
)
@pytest.mark.parametrize("principal", [EVE, {"id": "eve"}, None])
async def test_a_sender_without_the_role_learns_nothing_of_the_entity(
    tmp_path: Path, address: str, event: str, payload: Any, options: dict[str, Any], principal: dict[str, Any] | None
) -> None:
    """Not even whether it exists: whatever the event, the key and the expected version."""
    async with opened(address, tmp_path, LEAVE) as leaves:
        await leaves.create("leave/1", {"owner": "ada"})
        await leaves.send("leave/1", "noted", {"id": "n1"}, principal=CLERK, key="known")
        found = await answer(leaves, "leave/1", event, payload, principal=principal, **options)
        missing = await answer(leaves, "leave/2", event, payload, principal=principal, **options)
        rehearsed = [
            to_builtins(await leaves.dry_run(each, "approved", principal=principal)) for each in ("leave/1", "leave/2")
        ]

    assert found == missing
    assert found.get("version", 0) == 0
    assert "snapshot" not in found
    assert rehearsed[0].pop("explanation").replace("leave/1", "leave/2") == rehearsed[1].pop("explanation")
    assert rehearsed[0].pop("entity") != rehearsed[1].pop("entity")
    assert rehearsed[0] == rehearsed[1]


@ADDRESSES
async def test_a_sender_with_the_role_learns_that_an_entity_is_unknown(tmp_path: Path, address: str) -> None:
    async with opened(address, tmp_path, LEAVE) as leaves:
        with pytest.raises(NotFoundError):
            await leaves.send("leave/2", "approved", principal=BOSS)
        with pytest.raises(UsageError):
            await leaves.send("leave/2", "unheard.of", principal=EVE)


@ADDRESSES
async def test_an_outsider_learns_nothing_through_an_event_of_an_older_revision(tmp_path: Path, address: str) -> None:
    """Only the revision of the entity says who may send it; an unknown entity answers as one that denies it."""
    auditor = {"id": "kim", "roles": ["auditor"]}
    async with opened(address, tmp_path, OLD_LEAVE) as old:
        await old.create("leave/1")
        new = Runtime(old.store, ChartRegistry([interlock.loads(LEAVE).kernel]), old.clock)
        denied = [await answer(new, each, "withdrawn", principal=EVE) for each in ("leave/1", "leave/2")]
        both = Runtime(
            old.store, ChartRegistry([interlock.loads(each).kernel for each in (OLD_LEAVE, LEAVE)]), old.clock
        )
        denied += [await answer(both, each, "withdrawn", principal=EVE) for each in ("leave/1", "leave/2")]
        applied = await both.send("leave/1", "withdrawn", principal=auditor)

    assert denied[0]["code"] == "event.unknown"
    assert denied[2]["outcome"] == "denied"
    assert (denied[0], denied[2]) == (denied[1], {**denied[3], "explanation": denied[2]["explanation"]})
    assert "applied" == applied.outcome
