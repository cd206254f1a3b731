"""An application whose role is not the owner: it works, and cannot change the audit."""

from __future__ import annotations

import re
from collections.abc import Iterator

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest

import interlock
from interlock.cli.commands.operation.doctor import store_checks
from interlock.errors import UsageError
from interlock.stores.registry import audit_privileges, grant_script, open_store
from tests.support.audit import audit_rows
from tests.support.postgres_server import asked, store_or_skip

CHART = interlock.loads("""
interlock: 1
kind: order
revision: 1.0.0
create: {roles: [clerk]}
events: {pay: {roles: [clerk]}}
initial: unpaid
states:
  unpaid: {after: {1h: late}, on: {pay: {target: paid, actions: [notify]}}}
  late: {}
  paid: {}
""")
ADA = {"id": "ada", "roles": ["clerk"]}


@CHART.handler("notify")
async def notify(effect: object) -> None:
    """Notify no process."""


@pytest.fixture
def role(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a role that exists for the test."""
    url = store_or_skip()
    name = f"app_{abs(hash(request.node.name)) % 10**9}"
    asked(url, f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    yield name
    asked(url, f"REASSIGN OWNED BY {name} TO CURRENT_USER")
    asked(url, f"DROP OWNED BY {name}")
    asked(url, f"DROP ROLE {name}")


def as_role(url: str, role: str) -> str:
    """The address of a store for another role."""
    return re.sub(r"//[^@]*@", f"//{role}:secret@", url)


async def granted(role: str) -> str:
    """Create a store as its owner, and admit the role; return the address of the owner."""
    url = store_or_skip()
    await (await open_store(url)).close()
    for statement in grant_script(url, role).split(";\n"):
        if statement not in ("", "BEGIN", "COMMIT"):
            asked(url, statement)
    return url


async def connection(url: str, role: str) -> asyncpg.Connection:
    """A connection as the role, in the schema of the store."""
    schema = url.partition("schema=")[2].partition("&")[0]
    return await asyncpg.connect(as_role(url, role).partition("?")[0], server_settings={"search_path": schema})


async def test_the_application_works_and_cannot_change_the_audit(role: str) -> None:
    """It writes entries, effects and rows, and has no statement that changes a row or removes the protection."""
    url = await granted(role)
    async with interlock.open(f"{as_role(url, role)}&migrate=0", charts=[CHART]) as opened:
        await opened.create("order/1", principal=ADA)
        await opened.send("order/1", "pay", principal={"id": "eve"})
        await opened.send("order/1", "pay", principal=ADA)
        rows = await audit_rows(opened.store)
    hand = await connection(url, role)
    refused = []
    try:
        for statement in (
            "UPDATE audit SET time_ms = 2",
            "DELETE FROM audit",
            "TRUNCATE audit",
            "DROP TABLE audit",
            "ALTER TABLE audit DISABLE TRIGGER ALL",
            "DROP TRIGGER audit_no_change ON audit",
            "INSERT INTO audit_gate VALUES (1, 't', 9)",
            "SET session_replication_role = replica",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError) as caught:
                await hand.execute(statement)
            refused.append(caught.value)
    finally:
        await hand.close()

    assert ([("eve", "roles")], 8) == ([(each.actor, each.reason) for each in rows], len(refused))
    assert () == await audit_privileges(as_role(url, role))


async def test_doctor_names_a_role_that_is_the_owner() -> None:
    url = store_or_skip()
    await (await open_store(url)).close()
    (found,) = [each for each in await store_checks(url, ()) if each.name == "audit"]

    assert "warning" == found.status
    assert "DELETE" in found.detail


@pytest.mark.parametrize("name", ["", "a b", 'a"; DROP TABLE audit', "x" * 64])
def test_text_that_is_no_role_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        grant_script("postgresql://localhost/x", name)

    assert "role.malformed" == caught.value.code


def test_a_store_without_roles_has_no_grants() -> None:
    with pytest.raises(UsageError) as caught:
        grant_script("sqlite:///x.db", "app")

    assert "grants.none" == caught.value.code
