"""The `read` of a chart over HTTP: a user sees the entities that it may read, and nothing about others."""

from __future__ import annotations

import pytest

import interlock
from interlock.trust.users import User
from tests.unit.web.consoles import Client, open_console

ACCOUNT = """
interlock: 1
kind: account
context: {owner: {type: string, required: true, index: true}, note: {type: string, default: ""}}
create: {roles: [customer], permit: "= event.data.context.owner == principal.id"}
read: {roles: [clerk], owner: owner}
events:
  noted: {roles: [customer, teller], payload: {text: string}}
states:
  open: {expect: {within: forever}, on: {noted: {actions: [{assign: {note: "= event.data.text"}}]}}}
"""
RIGHTS = ("read", "send", "operate", "bulk", "read:audit", "read:sensitive")


def user(name: str, *roles: str) -> User:
    return User(principal={"id": name, "kind": "user", "roles": list(roles)}, rights=frozenset(RIGHTS))


async def fill(client: Client) -> None:
    for number, owner in enumerate(("ada", "bob", "ada"), start=1):
        await client.runtime.create(f"account/{number}", {"owner": owner})


def masked(text: str) -> str:
    return text.replace("account/404", "ID").replace("account/2", "ID")


async def test_an_owner_lists_and_reads_its_own_entities_only() -> None:
    async with open_console(charts=(interlock.loads(ACCOUNT),), who=user("ada", "customer")) as client:
        await fill(client)
        listed = await client.json("kinds/account/entities")
        filtered = await client.get("kinds/account/entities?where=owner=bob")
        own = await client.json("entity/account/1")
        held = await client.json("holds?entity=account/1")
        reads = ("entity/account/{}", "journal/account/{}", "accepted/account/{}", "streams/entity/account/{}")
        paths = (*reads, "holds?entity=account/{}")
        foreign = [await client.get(each.format(2)) for each in paths]
        missing = [await client.get(each.format(404)) for each in paths]

    assert ["account/1", "account/3"] == sorted(each["entity"] for each in listed["rows"])
    assert [] == filtered.json()["rows"]
    assert "ada" == own["context"]["owner"]
    assert [] == held["holds"]
    assert own["p95_ms"] is None
    for one, other in zip(foreign, missing, strict=True):
        assert (one.status_code, masked(one.text)) == (other.status_code, masked(other.text))
        assert one.status_code == 404


async def test_a_kind_that_is_read_in_part_appears_in_nothing_about_all_entities() -> None:
    paths = ("kinds/account", "kinds/account/chart.svg", "kinds/account/entities?error=any")
    async with open_console(charts=(interlock.loads(ACCOUNT),), who=user("ada", "customer")) as client:
        await fill(client)
        await client.runtime.send("account/2", "noted", {"text": "x"}, principal={"id": "eve", "kind": "user"})
        answers = [await client.get(each) for each in paths]
        answers.append(await client.post("bulk", {"kind": "account", "event": "noted", "payload": {"text": "x"}}))
        answers.append(await client.post("verify", {"entity": "account/2"}))
        silent = [await client.get(each) for each in ("kinds", "sagas", "refusals", "jobs", "reports")]

    assert [404] * len(answers) == [each.status_code for each in answers]
    assert [200] * len(silent) == [each.status_code for each in silent]
    assert not [each.text for each in silent if "account" in each.text]


async def test_a_clerk_sees_everything() -> None:
    async with open_console(charts=(interlock.loads(ACCOUNT),), who=user("kim", "clerk")) as client:
        await fill(client)
        listed = await client.json("kinds/account/entities")
        assert "account" in (await client.get("kinds")).text
        assert 3 == len(listed["rows"])
        assert "bob" == (await client.json("entity/account/2"))["context"]["owner"]


async def test_who_may_read_nothing_is_denied_alike_for_known_and_unknown_entities() -> None:
    text = ACCOUNT.replace("read: {roles: [clerk], owner: owner}", "read: {roles: [clerk]}")
    async with open_console(charts=(interlock.loads(text),), who=user("eve", "teller")) as client:
        await fill(client)
        found = [await client.get(f"entity/account/{each}") for each in (2, 404)]
        listed = await client.get("kinds/account/entities")

    assert [(403, "read.denied")] * 2 == [(each.status_code, each.json()["code"]) for each in found]
    assert masked(found[0].text) == masked(found[1].text)
    assert (403, "read.denied") == (listed.status_code, listed.json()["code"])


async def test_who_may_send_and_not_read_gets_no_state() -> None:
    async with open_console(charts=(interlock.loads(ACCOUNT),), who=user("tom", "teller")) as client:
        await fill(client)
        sent = await client.post("send/account/2", {"event": "noted", "payload": {"text": "secret"}})
        twice = await client.post("send/account/2", {"event": "noted", "payload": {"text": "x"}, "dry_run": True})

    assert ("applied", [], []) == tuple(sent.json()[each] for each in ("outcome", "configuration", "effects"))
    assert twice.status_code == 200
    assert [] == twice.json()["configuration"]


@pytest.mark.parametrize(("owner", "status"), [("ada", 200), ("bob", 403)])
async def test_a_creation_follows_the_chart(owner: str, status: int) -> None:
    async with open_console(charts=(interlock.loads(ACCOUNT),), who=user("ada", "customer")) as client:
        made = await client.post("kinds/account/entities", {"id": "9", "context": {"owner": owner}})
        assert status == made.status_code, made.text
        assert (await client.runtime.store.load("account/9") is None) == (status == 403)
