"""Personal data on a PostgreSQL server: no plain value in its files and logs, and no key after its epoch ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import interlock
from interlock.buses.memory import MemoryBus
from interlock.errors import NotFoundError
from interlock.model.personal_token import ERASED
from interlock.runtime.key_rotation import rotate_epoch
from interlock.trust.keyrings import FileKeyring
from tests.conformance.runtime.personal_life import CANARIES, Services, charts, found_in, key_of, live
from tests.support.postgres_server import Server, asked, private_server, store_or_skip

ENTITY = "customer/c-1"


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that logs every statement with its values."""
    with private_server(log_statement="all", log_min_messages="log", log_parameter_max_length="-1") as found:
        yield found


@pytest.fixture
def keyring(tmp_path: Path) -> str:
    FileKeyring.create(tmp_path / "keyring.json")
    return f"file:{tmp_path / 'keyring.json'}"


async def test_an_erasure_on_a_server_is_final_when_the_epoch_ends(server: Server, keyring: str) -> None:
    services, bus, url = Services(), MemoryBus(), server.url()
    async with interlock.open(url, charts=charts(services), keyring=keyring, bus=bus) as runtime:
        await live(runtime, services, bus)
        row, key = await key_of(runtime, ENTITY)
        done = await runtime.erase(ENTITY, reason="request 2026-118", live=True)

        assert (done.destroyed, done.epoch) == ("epoch", 1)
        after = await runtime.verify(ENTITY)
        assert (after.problem, after.replayed) == (None, True)
        assert (await runtime.state(ENTITY, at=3)).context["email"] == ERASED
        assert runtime.vault is not None
        rotated = await rotate_epoch(runtime.vault.keys, runtime.vault.keyring)
        assert rotated.destroyed == (1,)
    asked(url, "CHECKPOINT")
    server.stop()

    log = (server.folder / "server.log").read_bytes()
    assert b"INSERT INTO data_key" in log, "the server logs statements"
    assert found_in(server.folder, *CANARIES, key) == []
    assert found_in(server.folder, row.wrapped) != [], "copies of the wrap remain, as the note says"
    with pytest.raises(NotFoundError):
        runtime.vault.keyring.unwrap(row.epoch, row.wrapped, kid=row.kid, tenant="")


async def test_a_creation_in_a_transaction_of_the_caller_is_sealed(keyring: str) -> None:
    asyncpg = pytest.importorskip("asyncpg")
    url = store_or_skip()
    async with interlock.open(url, charts=charts(Services()), keyring=keyring, work=False) as runtime:
        connection = await asyncpg.connect(url.partition("?")[0])
        try:
            async with connection.transaction():
                joined = runtime.join(connection)
                await joined.create(ENTITY, {"phone": CANARIES[1].decode()})
            async with connection.transaction():
                receipt = await runtime.join(connection).send(
                    ENTITY,
                    "signup",
                    {"email": CANARIES[0].decode(), "home": {"city": "x", "land": "DE"}, "adult": True},
                )
        finally:
            await connection.close()

        assert receipt.expect().snapshot.context["email"] == CANARIES[0].decode()
        assert (await runtime.state(ENTITY)).context["phone"] == CANARIES[1].decode()
        lines = b"".join(record.line for record in await runtime.store.read(ENTITY))
        assert [each for each in CANARIES if each in lines] == []
