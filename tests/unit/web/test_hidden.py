"""A hidden kind does not exist for a caller: every endpoint is compared in two worlds that differ in that kind alone.

One world has a kind with hidden states, with entities, dead letters, refused events and jobs. The other world does not
have that kind. A user with every right except `read:sensitive` sends the same requests to both, and the responses must
be the same. The requests are generated from the endpoint table and the types of queries and bodies, so a new endpoint
is tested, too.
"""

from __future__ import annotations

import asyncio
import re
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from interlock.model.journal.work import WorkId
from interlock.operate.jobs.job import Bulk
from interlock.ports.store import EntityQuery
from interlock.ports.work import Settlement, WorkQuery
from interlock.runtime.trials.reports import StoredReport, plain_report, save_report
from interlock.testing.clock import VirtualClock
from interlock.trust.users import RIGHTS
from interlock.web.app import ENDPOINTS
from interlock.web.http.endpoint import Endpoint
from tests.support.audit import audit_rows
from tests.support.eventually import eventually
from tests.unit.web.consoles import ORDER, ORIGIN, Client, Stream, make_user, open_console, order

BEGAN_MS = 1_000_000_000_000
HIDDEN = "fraud"
FRAUD = ORDER.replace("  paid:\n", "  paid:\n    sensitive: true\n").replace("kind: order", f"kind: {HIDDEN}")
JOB = "2001-09-hiddenjob000"
REPORT = "refold-0123456789abcdef"
PAYER = {"id": "till", "roles": ["payments"]}
EVE = {"id": "eve", "roles": []}
ALMOST_ALL = tuple(each for each in RIGHTS if each != "read:sensitive")


async def lives(client: Client, clock: VirtualClock, kind: str) -> None:
    """Create entities of a kind, one with a dead letter, and a refused event."""
    runtime, store = client.runtime, client.runtime.store
    assert store.work is not None
    for number in (1, 2, 3):
        await runtime.create(f"{kind}/{number}", {"amount": 10 * number})
    for number in (1, 2):
        await runtime.send(f"{kind}/{number}", "payment.confirmed", {"id": "p"}, key="paid", principal=PAYER)
        await runtime.send(f"{kind}/{number}", "parcel.shipped", principal=EVE)
    now_ms = clock.now_ms()
    claims = await store.work.claim("effect", ("send_receipt",), owner="w", now_ms=now_ms, until_ms=now_ms + 9, limit=9)
    assert 2 == len(claims)
    await store.work.settle(tuple(Settlement(each, "dead", error={"code": "no"}) for each in claims), now_ms=now_ms)


async def jobs_over_it(client: Client) -> None:
    """Run jobs over the hidden kind: one of another user, and one of the caller, who could see the kind then."""
    jobs = client.console.jobs
    for who in ("eve", "ada"):
        bulk = Bulk(EntityQuery(kind=HIDDEN), "order.cancelled", None, PAYER, b"")
        await jobs.start_bulk(who, bulk, reason=None)
    await jobs.start_verify("ada", f"{HIDDEN}/1", may_see=lambda _: True)
    while jobs._runs:  # noqa: ASYNC110 - they run by themselves
        await asyncio.sleep(0)
    (first, *_) = list(jobs._jobs)
    job = jobs._jobs.pop(first)
    job.id = JOB
    jobs._jobs[JOB] = job
    jobs._dry_runs[JOB] = jobs._dry_runs.pop(first)


async def report_on_it(client: Client) -> None:
    """Save a report on the hidden kind."""
    runtime = client.runtime
    report = plain_report(await runtime.preview_refold(HIDDEN))
    stored = StoredReport(
        id=REPORT,
        what="refold",
        kind=HIDDEN,
        revision="b1.x",
        label=None,
        who="eve",
        began_ms=BEGAN_MS,
        saved_ms=BEGAN_MS,
        running=False,
        report=report,
    )
    await save_report(runtime.entities, runtime.sender, stored)


@asynccontextmanager
async def world(
    folder: Path, *, hidden: bool, rights: tuple[str, ...] = ALMOST_ALL, kinds: frozenset[str] | None = None
) -> AsyncIterator[Client]:
    """A console on a store with orders, with or without the hidden kind, for a caller with these rights."""
    clock = VirtualClock(BEGAN_MS)
    url = f"sqlite:///{folder}/{'with' if hidden else 'without'}.db"
    charts = (order(), order(FRAUD)) if hidden else (order(),)
    async with open_console(
        url, charts=charts, who=replace(make_user(rights=rights), kinds=kinds), clock=clock
    ) as client:
        if hidden:  # before and after the others in every order
            await lives(client, clock, HIDDEN)
        clock.time_ms = BEGAN_MS + 60_000
        await lives(client, clock, "order")
        if hidden:
            for number in (1, 2):
                await client.runtime.send(f"{HIDDEN}/{number}", "parcel.shipped", principal=EVE)
            await jobs_over_it(client)
            await report_on_it(client)
        clock.time_ms = BEGAN_MS + 120_000
        store, count = client.runtime.store, 6 if hidden else 2

        async def are_written() -> bool:
            return len(await audit_rows(store)) >= count

        await eventually(are_written)
        yield client


# Requests, generated from the endpoint table

PATHS = {"kind": "{kind}", "entity": "{kind}/1", "job": JOB, "act": "pause", "report": REPORT}
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
"""The value of each field. A new endpoint with other fields needs a new line here."""

ALSO: dict[str, Any] = {"entity": "{kind}/1", "revision": "9.9.9", "limit": 1, "dead": True, "rehearsal": JOB}
"""Optional fields that are tested one at a time."""


def filled(value: Any, kind: str) -> Any:
    """Return a value with the name of the kind in it."""
    return value.replace("{kind}", kind) if isinstance(value, str) else value


def fields(shape: Any, kind: str) -> Iterator[dict[str, Any]]:
    """Return queries or bodies of a type: one with its required fields, and one for each optional field."""
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
    """Return path, query and body of each request to an endpoint."""
    names = re.findall(r"\{(\w+)(?::path)?\}", endpoint.path)
    assert set(names) <= set(PATHS), f"{endpoint.path}: add {set(names) - set(PATHS)} to PATHS of this test"
    path = endpoint.path.lstrip("/")
    for name in names:
        path = re.sub(r"\{" + name + r"(:path)?\}", filled(PATHS[name], kind), path)
    for query in fields(endpoint.query, kind):
        for body in fields(endpoint.body, kind):
            yield path, query, body


# Responses

RANDOM = (
    (re.compile(r'"csrf":"[^"]*"'), '"csrf":"-"'),
    (re.compile(r'"id":"20\d\d-\d\d-[^"]*"'), '"id":"job"'),
    (re.compile(r'"(after|before)":"[^"]*"'), r'"\1":"cursor"'),
    (re.compile(r'"head":"[^"]*"'), '"head":"-"'),
    (re.compile(r'"minutes":\[[^]]*\]'), '"minutes":[]'),  # statistics lag by up to a second
    (re.compile(r'"steps_per_second":[^,}]*'), '"steps_per_second":0'),
)


async def answered(client: Client, endpoint: Endpoint, path: str, query: dict[str, Any], body: Any) -> str:
    """Return the response to a request without its random parts."""
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
        request = client.http.request(
            endpoint.method,
            f"/api/v1/{path}",
            json=body,
            params=query,
            headers={"Origin": ORIGIN, "X-Interlock-CSRF": client.csrf},
        )
        response = await (advancing(client, request) if endpoint.path in HOLDING else request)
        text = f"{response.status_code} {response.headers['content-type']} {response.text}"
        if '"began_ms"' in text and response.status_code == 200:
            ended = await client.ended(response.json()["id"])
            text += msgspec.json.encode(ended).decode()
    for pattern, replacement in RANDOM:
        text = pattern.sub(replacement, text)
    return text


HOLDING = ("/hold", "/resume")
"""What waits by the clock until every process knows of it."""


async def advancing(client: Client, request: Coroutine[Any, Any, httpx.Response]) -> httpx.Response:
    """Return the response to a request while time goes on."""
    clock = client.runtime.clock
    assert isinstance(clock, VirtualClock)
    task = asyncio.create_task(request)
    while not task.done():
        await clock.advance(1_000)
    return task.result()


def check_cursors(text: str) -> None:
    """Check that no cursor contains a readable name."""
    for found in re.findall(r'"(?:after|before)":"([^"]*)"', text):
        raw = urlsafe_b64decode(found + "=" * (-len(found) % 4))
        assert not any(each in raw for each in (b"order", HIDDEN.encode(), b"0000"))


ORDERED = sorted(ENDPOINTS, key=lambda each: (each.path == "/logout", each.path in HOLDING, each.method))
"""Reads come first; a hold refuses what would follow; the logout ends the session."""


async def all_answers(client: Client, kind: str) -> dict[str, str]:
    """Return the responses of every endpoint about a kind."""
    found = {}
    for endpoint in ORDERED:
        for path, query, body in requests(endpoint, kind):
            asked = f"{endpoint.method} {path} {query} {body}"
            found[asked] = await answered(client, endpoint, path, query, body)
    return found


@pytest.mark.parametrize(
    ("rights", "kinds"), [(ALMOST_ALL, None), (RIGHTS, frozenset({"order"}))], ids=["sensitive kind", "limited key"]
)
async def test_every_endpoint_answers_as_if_a_hidden_kind_did_not_exist(
    tmp_path: Path, rights: tuple[str, ...], kinds: frozenset[str] | None
) -> None:
    answers = {}
    for hidden in (True, False):
        async with world(tmp_path, hidden=hidden, rights=rights, kinds=kinds) as client:
            answers[hidden] = await all_answers(client, HIDDEN)

    assert {each.path for each in ENDPOINTS} == {each.path for each in ORDERED}
    for asked, answer in answers[False].items():
        assert answer == answers[True][asked], asked
    quoted = f"unknown kind `{HIDDEN}`"
    unasked = {asked: text for asked, text in answers[True].items() if HIDDEN not in asked}
    assert [] == [asked for asked, text in unasked.items() if HIDDEN in text.replace(quoted, "")]


async def test_every_endpoint_answers_alike_for_a_hidden_and_an_unknown_kind(tmp_path: Path) -> None:
    other = "gnome"
    async with world(tmp_path, hidden=True) as client:
        for endpoint in ORDERED:
            if endpoint.path == "/logout":
                continue
            pairs = zip(requests(endpoint, HIDDEN), requests(endpoint, other), strict=True)
            for (path, query, body), (path2, query2, body2) in pairs:
                one = await answered(client, endpoint, path, query, body)
                two = await answered(client, endpoint, path2, query2, body2)
                if endpoint.path != "/jobs":  # its list has grown meanwhile
                    assert one == two.replace(other, HIDDEN), path


async def test_comparison_detects_the_hidden_kind_for_users_who_may_see_it(tmp_path: Path) -> None:
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
        "work",
        "refusals",
        "jobs",
        "reports",
        "send",
        "accepted",
        "verify",
        "streams",
    } <= differing


@pytest.mark.parametrize("act", ["retry", "drop"])
async def test_dead_letters_of_a_hidden_kind_cannot_be_retried_or_dropped(tmp_path: Path, act: str) -> None:
    async with world(tmp_path, hidden=True) as client:
        store = client.runtime.store
        assert store.work is not None
        before = (await store.work.list_work(WorkQuery(kind=HIDDEN, dead=True))).rows
        work_id = before[0].work.id
        body = {"lane": work_id.lane, "version": work_id.version, "ordinal": work_id.ordinal, "reason": "a test"}
        answers = [
            await client.post(f"work/{act}", {"entity": f"{kind}/1", **body}) for kind in (HIDDEN, "gnome", "order")
        ]
        after = (await store.work.list_work(WorkQuery(kind=HIDDEN, dead=True))).rows
        orders = (await store.work.list_work(WorkQuery(kind="order", dead=True))).rows

    assert [404, 404, 200] == [each.status_code for each in answers]
    assert ["kind.unknown"] * 2 == [each.json()["code"] for each in answers[:2]]
    assert (2, before, 1) == (len(before), after, len(orders))


async def test_counts_and_lists_of_work_exclude_hidden_kinds(tmp_path: Path) -> None:
    async with world(tmp_path, hidden=True) as client:
        fleet = await client.json("kinds")
        first = await client.json("work?dead=true&limit=1")
        second = await client.json(f"work?dead=true&limit=1&after={first['after']}")
        whole = await client.json("work?limit=200")
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


async def test_hidden_sender_and_hidden_parent_are_masked() -> None:
    import interlock

    charts = (interlock.loads(CHILD), interlock.loads(PARENT))
    async with open_console(charts=charts, who=make_user(rights=("read",)), work=True) as client:
        await client.runtime.create("case/other")
        await client.runtime.create("fraud/secret-1")

        async def children_of_the_parent() -> list[str]:
            rows = (await client.runtime.store.find(EntityQuery(kind="case"))).rows
            is_heard = (await client.runtime.state("case/other")).version >= 2
            return [each.entity for each in rows if each.entity != "case/other"] if is_heard else []

        children = await eventually(children_of_the_parent)
        texts = [
            (await client.get(f"{part}/{entity}")).text
            for entity in ("case/other", children[0])
            for part in ("entity", "journal")
        ]
        journal = await client.runtime.journal("case/other")

    assert "fraud/secret-1" in journal[1].key
    assert [] == [each for each in texts if "secret-1" in each or "fraud" in each]


def test_world_has_its_dead_letters_where_the_requests_expect_them() -> None:
    assert WorkId("effect", VALUES["version"], VALUES["ordinal"]) == WorkId("effect", 2, 0)
