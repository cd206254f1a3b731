"""What is hidden from a caller is as good as not there: at every endpoint, in two worlds that differ in that alone.

One world has a kind with hidden states: entities of it, dead letters, refusals, and jobs over it. The other has never
heard of that kind. Each endpoint of the table is asked the same in both, as somebody who has every right but that to
see what is hidden; the answers must be the same. Requests are made from the table of endpoints and the types of their
queries and bodies, so a new endpoint is asked, too.
"""

from __future__ import annotations

import asyncio
import re
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.model.journal.work import WorkId
from interlock.ports.store import EntityQuery
from interlock.ports.work import Settlement, WorkQuery, WorkStore
from interlock.testing.clock import VirtualClock
from interlock.web.app import ENDPOINTS
from interlock.web.auth import RIGHTS
from interlock.web.http.endpoint import Endpoint
from interlock.web.jobs.job import Bulk
from tests.unit.web.consoles import ORDER, ORIGIN, Client, Stream, opened, order, person

BEGAN_MS = 1_000_000_000_000
HIDDEN = "fraud"
FRAUD = ORDER.replace("  paid:\n", "  paid:\n    sensitive: true\n").replace("kind: order", f"kind: {HIDDEN}")
JOB = "2001-09-hiddenjob000"
PAYER = {"id": "till", "roles": ["payments"]}
EVE = {"id": "eve", "roles": []}
ALMOST_ALL = tuple(each for each in RIGHTS if each != "read:sensitive")


async def lives(client: Client, clock: VirtualClock, kind: str) -> None:
    """Entities of a kind: one has a dead letter, and somebody was refused."""
    runtime, store = client.runtime, client.runtime.store
    assert isinstance(store, WorkStore)
    for number in (1, 2, 3):
        await runtime.create(f"{kind}/{number}", {"amount": 10 * number})
    for number in (1, 2):
        await runtime.send(f"{kind}/{number}", "payment.confirmed", {"id": "p"}, key="paid", principal=PAYER)
        await runtime.send(f"{kind}/{number}", "parcel.shipped", principal=EVE)
    now_ms = clock.now_ms()
    claims = await store.claim("effect", ("send_receipt",), owner="w", now_ms=now_ms, until_ms=now_ms + 9, limit=9)
    assert 2 == len(claims)
    await store.settle(tuple(Settlement(each, "dead", error={"code": "no"}) for each in claims), now_ms=now_ms)


async def jobs_over_it(client: Client) -> None:
    """Jobs over what is hidden: one of somebody else, and one of the caller, who could see it once."""
    jobs = client.console.jobs
    for who in ("eve", "ada"):
        bulk = Bulk(EntityQuery(kind=HIDDEN), "order.cancelled", None, PAYER, b"")
        await jobs.begin_bulk(who, bulk, reason=None)
    await jobs.begin_verify("ada", f"{HIDDEN}/1", may_see=lambda _: True)
    while jobs._runs:  # noqa: ASYNC110 - they run by themselves
        await asyncio.sleep(0)
    (first, *_) = list(jobs._jobs)
    job = jobs._jobs.pop(first)
    job.id = JOB
    jobs._jobs[JOB] = job
    jobs._rehearsals[JOB] = jobs._rehearsals.pop(first)


@asynccontextmanager
async def world(folder: Path, *, hidden: bool, rights: tuple[str, ...] = ALMOST_ALL) -> AsyncIterator[Client]:
    """A console on a store with orders, and with what is hidden, or without; for a caller with these rights."""
    clock = VirtualClock(BEGAN_MS)
    url = f"sqlite:///{folder}/{'with' if hidden else 'without'}.db"
    charts = (order(), order(FRAUD)) if hidden else (order(),)
    async with opened(url, charts=charts, who=person(rights=rights), clock=clock) as client:
        if hidden:  # before the others and after them, so that these lie between
            await lives(client, clock, HIDDEN)
        clock.time_ms = BEGAN_MS + 60_000
        await lives(client, clock, "order")
        if hidden:
            for number in (1, 2):
                await client.runtime.send(f"{HIDDEN}/{number}", "parcel.shipped", principal=EVE)
            await jobs_over_it(client)
        clock.time_ms = BEGAN_MS + 120_000
        while len((await client.runtime.store.refusals_before(None)) or ()) < (6 if hidden else 2):  # type: ignore[attr-defined]  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        yield client


# Requests, made from the table

PATHS = {"kind": "{kind}", "entity": "{kind}/1", "job": JOB, "act": "pause"}
VALUES: dict[str, Any] = {
    "kind": "{kind}",
    "entity": "{kind}/1",
    "id": "new-1",
    "event": "order.cancelled",
    "lane": "effect",
    "version": 2,
    "ordinal": 0,
    "reason": "a test",
    "secret": "no key",
    "from": "1.0.0",
    "to": "2.0.0",
}
"""What a field is given. A new endpoint may have others: then this table needs a line."""

ALSO: dict[str, Any] = {"entity": "{kind}/1", "revision": "9.9.9", "limit": 1, "dead": True, "rehearsal": JOB}
"""Fields that may be left out, and are asked with, too, one at a time."""


def filled(value: Any, kind: str) -> Any:
    """A value with the name of the kind in it."""
    return value.replace("{kind}", kind) if isinstance(value, str) else value


def fields(shape: Any, kind: str) -> Iterator[dict[str, Any]]:
    """Queries or bodies of a type: with what it needs alone, and with one more field each."""
    if shape is None:
        yield {}
        return
    listed = msgspec.structs.fields(shape)
    needed = [each.encode_name for each in listed if each.required]
    unknown = set(needed) - set(VALUES)
    assert not unknown, f"{shape.__name__}: add {unknown} to VALUES of this test"
    least = {each: filled(VALUES[each], kind) for each in needed}
    yield least
    for each in listed:
        if each.encode_name in ALSO and not each.required:
            yield {**least, each.encode_name: filled(ALSO[each.encode_name], kind)}
    if shape.__name__ == "BulkBody":
        yield {**least, "dry_run": False, "rehearsal": JOB}


def requests(endpoint: Endpoint, kind: str) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Path, query and body of each request to an endpoint."""
    names = re.findall(r"\{(\w+)(?::path)?\}", endpoint.path)
    assert set(names) <= set(PATHS), f"{endpoint.path}: add {set(names) - set(PATHS)} to PATHS of this test"
    path = endpoint.path.lstrip("/")
    for name in names:
        path = re.sub(r"\{" + name + r"(:path)?\}", filled(PATHS[name], kind), path)
    for query in fields(endpoint.query, kind):
        for body in fields(endpoint.body, kind):
            yield path, query, body


# Answers

RANDOM = (
    (re.compile(r'"csrf":"[^"]*"'), '"csrf":"-"'),
    (re.compile(r'"id":"20\d\d-\d\d-[^"]*"'), '"id":"job"'),
    (re.compile(r'"(after|before)":"[^"]*"'), r'"\1":"cursor"'),
    (re.compile(r'"head":"[^"]*"'), '"head":"-"'),
    (re.compile(r'"minutes":\[[^]]*\]'), '"minutes":[]'),  # statistics lag by up to a second
    (re.compile(r'"steps_per_second":[^,}]*'), '"steps_per_second":0'),
)


async def answered(client: Client, endpoint: Endpoint, path: str, query: dict[str, Any], body: Any) -> str:
    """The answer to a request, without what is random in it."""
    if endpoint.media == "text/event-stream":
        stream = Stream(client, path)
        try:
            await stream.until("}")  # the first event, or a problem
            text = f"{stream.status} {stream.text}"
        finally:
            await stream.close()
    elif endpoint.method == "GET":
        response = await client.get(path, params=query)
        check_cursors(response.text)
        text = f"{response.status_code} {response.headers['content-type']} {response.text}"
    else:
        response = await client.http.request(
            endpoint.method,
            f"/api/v1/{path}",
            json=body,
            params=query,
            headers={"Origin": ORIGIN, "X-Interlock-CSRF": client.csrf},
        )
        text = f"{response.status_code} {response.headers['content-type']} {response.text}"
        if '"began_ms"' in text and response.status_code == 200:
            ended = await client.ended(response.json()["id"])
            text += msgspec.json.encode(ended).decode()
    for pattern, replacement in RANDOM:
        text = pattern.sub(replacement, text)
    return text


def check_cursors(text: str) -> None:
    """No cursor holds a name that can be read."""
    for found in re.findall(r'"(?:after|before)":"([^"]*)"', text):
        raw = urlsafe_b64decode(found + "=" * (-len(found) % 4))
        assert not any(each in raw for each in (b"order", HIDDEN.encode(), b"0000"))


ORDERED = sorted(ENDPOINTS, key=lambda each: (each.path == "/logout", each.method))
"""Reading first; whoever logs out is not answered any more."""


async def all_answers(client: Client, kind: str) -> dict[str, str]:
    """The answers of every endpoint about a kind."""
    found = {}
    for endpoint in ORDERED:
        for path, query, body in requests(endpoint, kind):
            asked = f"{endpoint.method} {path} {query} {body}"
            found[asked] = await answered(client, endpoint, path, query, body)
    return found


async def test_every_endpoint_answers_as_if_a_hidden_kind_did_not_exist(tmp_path: Path) -> None:
    """The same answers in a world that has the kind and in one that has not, byte by byte."""
    answers = {}
    for hidden in (True, False):
        async with world(tmp_path, hidden=hidden) as client:
            answers[hidden] = await all_answers(client, HIDDEN)

    assert {each.path for each in ENDPOINTS} == {each.path for each in ORDERED}
    for asked, answer in answers[False].items():
        assert answer == answers[True][asked], asked
    assert [] == [asked for asked, text in answers[True].items() if HIDDEN in text.replace(f"no kind `{HIDDEN}`", "")
                  and HIDDEN not in asked]  # fmt: skip


async def test_every_endpoint_answers_alike_for_a_hidden_kind_and_an_unknown_one(tmp_path: Path) -> None:
    """Two names in one world: the one of a kind that is hidden, and one that nobody has ever used."""
    other = "gnome"
    async with world(tmp_path, hidden=True) as client:
        for endpoint in ORDERED:
            if endpoint.path == "/logout":
                continue
            pairs = zip(requests(endpoint, HIDDEN), requests(endpoint, other), strict=True)
            for (path, query, body), (path2, query2, body2) in pairs:
                one = await answered(client, endpoint, path, query, body)
                two = await answered(client, endpoint, path2, query2, body2)
                if endpoint.path != "/jobs":  # which has grown meanwhile
                    assert one == two.replace(other, HIDDEN), path


async def test_the_walk_tells_worlds_apart_for_those_who_may_see_everything(tmp_path: Path) -> None:
    """It is not blind: with the right to see what is hidden, most endpoints answer differently."""
    answers = {}
    for hidden in (True, False):
        async with world(tmp_path, hidden=hidden, rights=RIGHTS) as client:
            answers[hidden] = await all_answers(client, HIDDEN)
    differing = {
        asked.split()[1].split("/")[0] for asked in answers[False] if answers[True][asked] != answers[False][asked]
    }

    assert {
        "kinds",
        "entity",
        "journal",
        "works",
        "refusals",
        "jobs",
        "send",
        "accepted",
        "verify",
        "streams",
    } <= differing


@pytest.mark.parametrize("act", ["retry", "drop"])
async def test_nobody_operates_on_what_is_hidden_from_them(tmp_path: Path, act: str) -> None:
    """The dead letter stays, and the answer is that of a kind that does not exist."""
    async with world(tmp_path, hidden=True) as client:
        store = client.runtime.store
        assert isinstance(store, WorkStore)
        before = (await store.works(WorkQuery(kind=HIDDEN, dead=True))).rows
        place = before[0].work.place
        body = {"lane": place.lane, "version": place.version, "ordinal": place.ordinal, "reason": "a test"}
        answers = [
            await client.post(f"works/{act}", {"entity": f"{kind}/1", **body}) for kind in (HIDDEN, "gnome", "order")
        ]
        after = (await store.works(WorkQuery(kind=HIDDEN, dead=True))).rows
        orders = (await store.works(WorkQuery(kind="order", dead=True))).rows

    assert [404, 404, 200] == [each.status_code for each in answers]
    assert ["kind.unknown"] * 2 == [each.json()["code"] for each in answers[:2]]
    assert (2, before, 1) == (len(before), after, len(orders))


async def test_counts_and_lists_of_work_leave_out_what_is_hidden(tmp_path: Path) -> None:
    """Page by page, each full, and the last one without a cursor."""
    async with world(tmp_path, hidden=True) as client:
        fleet = await client.json("kinds")
        first = await client.json("works?dead=true&limit=1")
        second = await client.json(f"works?dead=true&limit=1&after={first['after']}")
        whole = await client.json("works?limit=200")
    async with world(tmp_path / "..", hidden=True, rights=RIGHTS) as client:
        seeing = await client.json("kinds")

    assert (2, 4) == (fleet["dead"], seeing["dead"])
    assert ["order/1", "order/2"] == [each["entity"] for page in (first, second) for each in page["rows"]]
    assert second["after"] is None
    assert {"order"} == {each["entity"].partition("/")[0] for each in whole["rows"]}


CHILD = """
interlock: 1
kind: case
revision: 1.0.0
initial: open
states:
  open:
    expect: {within: forever}
    on: {told: {actions: [{assign: {heard: true}}]}}
context: {heard: {type: boolean, default: false}}
"""
PARENT = """
interlock: 1
kind: fraud
revision: 1.0.0
initial: looking
states:
  looking:
    sensitive: true
    expect: {within: forever}
    entry: [{send: {event: told, to: case/other}}]
    invoke: {id: helper, src: case, type: chart}
"""


async def test_a_visible_entity_does_not_name_the_hidden_one_that_sent_to_it_or_began_it() -> None:
    """Neither its page nor its journal."""
    import interlock

    charts = (interlock.loads(CHILD), interlock.loads(PARENT))
    async with opened(charts=charts, who=person(rights=("read",)), work=True) as client:
        await client.runtime.create("case/other")
        await client.runtime.create("fraud/secret-1")
        children: list[str] = []
        async with asyncio.timeout(20):
            while len(children) < 1 or (await client.runtime.state("case/other")).version < 2:
                rows = (await client.runtime.store.find(EntityQuery(kind="case"))).rows
                children = [each.entity for each in rows if each.entity != "case/other"]
                await asyncio.sleep(0.005)
        texts = [
            (await client.get(f"{part}/{entity}")).text
            for entity in ("case/other", children[0])
            for part in ("entity", "journal")
        ]
        journal = await client.runtime.journal("case/other")

    assert "fraud/secret-1" in journal[1].key
    assert [] == [each for each in texts if "secret-1" in each or "fraud" in each]


def test_a_place_is_what_the_walk_says() -> None:
    """The dead letters of this test are where its requests look for them."""
    assert WorkId("effect", VALUES["version"], VALUES["ordinal"]) == WorkId("effect", 2, 0)
