"""Facts that are gathered: in any order, repeated, late, or never, on a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import permutations
from pathlib import Path

import pytest

from examples.subscription.subscription import SERVICES, Tray, subscriptions
from interlock.assemble.runtimes import open as opening
from interlock.errors import DeniedError
from interlock.model.journal.entry import Receipt
from interlock.runtime.runtime import Runtime
from tests.docs.examples.scene import reached
from tests.support.eventually import PATIENCE_SECONDS

ENTITY = "subscription/1"
LATE = "incomplete.verification_pending"


class Heard(Tray):
    """An outbox that signals each request."""

    def __init__(self, whom: str) -> None:
        super().__init__()
        self.was_asked = asyncio.Event()
        self._whom = whom

    async def ask(self, whom: str, entity: str, key: str) -> None:
        """As `Desk.ask`."""
        await super().ask(whom, entity, key)
        if whom == self._whom:
            self.was_asked.set()


@asynccontextmanager
async def runtime_of(folder: Path, tray: Tray | None = None) -> AsyncIterator[Runtime]:
    """Subscriptions in a file, and their handlers."""
    chart = subscriptions(tray or Tray())
    async with opening(f"sqlite:///{folder}/subscriptions.db", charts=[chart]) as runtime:
        yield runtime


async def confirmed(runtime: Runtime, service: str, number: str = "1") -> Receipt:
    """A service confirms."""
    principal = {"id": service, "roles": [SERVICES[service]]}
    return await runtime.send(ENTITY, f"{service}.confirmed", {"number": number}, principal=principal)


async def state(runtime: Runtime) -> tuple[str, ...]:
    """Where it is."""
    return (await runtime.state(ENTITY)).configuration


@pytest.mark.parametrize("order", list(permutations(SERVICES)), ids=" ".join)
async def test_it_is_active_once_all_have_confirmed_and_not_before(tmp_path: Path, order: tuple[str, ...]) -> None:
    async with runtime_of(tmp_path) as runtime:
        await runtime.create(ENTITY, {"customer": "ada"})
        for service in order[:-1]:
            await confirmed(runtime, service)
            assert ("incomplete.confirmation_pending",) == await state(runtime)
        await confirmed(runtime, order[-1])

        assert ("active",) == await state(runtime)


async def test_every_service_is_asked_once(tmp_path: Path) -> None:
    tray = Heard("person")
    async with runtime_of(tmp_path, tray) as runtime:
        await runtime.create(ENTITY, {"customer": "ada", "patience": "1ms"})
        await reached(runtime, ENTITY, [LATE])
        async with asyncio.timeout(PATIENCE_SECONDS):
            await tray.was_asked.wait()

    assert [*SERVICES, "person"] == sorted((whom for whom, _ in tray.asked.values()), key=[*SERVICES, "person"].index)


async def test_a_service_may_repeat_itself(tmp_path: Path) -> None:
    async with runtime_of(tmp_path) as runtime:
        await runtime.create(ENTITY, {"customer": "ada"})
        assert ["applied", "duplicate"] == [(await confirmed(runtime, "payment")).outcome for _ in range(2)]
        for service in ("account", "entitlement"):
            await confirmed(runtime, service)

        assert "duplicate" == (await confirmed(runtime, "payment")).outcome
        assert "ignored" == (await confirmed(runtime, "payment", "2")).outcome


async def test_silence_leads_to_a_person(tmp_path: Path) -> None:
    async with runtime_of(tmp_path) as runtime:
        await runtime.create(ENTITY, {"customer": "ada", "patience": "1ms"})
        await reached(runtime, ENTITY, [LATE])
        denied = await runtime.send(ENTITY, "verification.passed", {"by": "eve"}, principal={"id": "eve", "roles": []})
        with pytest.raises(DeniedError):
            denied.expect()
        person = {"id": "joan", "roles": ["support"]}
        await runtime.send(ENTITY, "verification.refused", {"by": "joan"}, principal=person)

        assert ("refused",) == await state(runtime)


async def test_the_last_fact_may_come_while_a_person_looks(tmp_path: Path) -> None:
    async with runtime_of(tmp_path) as runtime:
        await runtime.create(ENTITY, {"customer": "ada", "patience": "1ms"})
        await confirmed(runtime, "payment")
        await reached(runtime, ENTITY, [LATE])
        await confirmed(runtime, "account")
        assert (LATE,) == await state(runtime)
        await confirmed(runtime, "entitlement")

        assert ("active",) == await state(runtime)


@pytest.mark.parametrize("facts", [0, 3])
async def test_it_can_be_cancelled_at_any_time(tmp_path: Path, facts: int) -> None:
    async with runtime_of(tmp_path) as runtime:
        await runtime.create(ENTITY, {"customer": "ada"})
        for service in list(SERVICES)[:facts]:
            await confirmed(runtime, service)
        await runtime.send(ENTITY, "subscription.cancelled", principal={"id": "ada", "roles": ["customer"]})

        assert ("cancelled",) == await state(runtime)
