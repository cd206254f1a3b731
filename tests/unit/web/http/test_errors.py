"""The messages that HTTP callers get for errors, and the statuses."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock import errors
from interlock.errors import (
    ArchivedError,
    CompactedError,
    ConflictError,
    CorruptionError,
    DefinitionError,
    Diagnostic,
    ImpureFunctionError,
    InterlockError,
    InternalError,
    NotFoundError,
    PrunedError,
    UnavailableError,
    UsageError,
)
from interlock.stores.memory import MemoryStore
from interlock.trust.disclosure import OPEN_CODES, damage_text, is_withheld, public_text
from interlock.web.http.errors import HttpProblem, problem_of
from tests.unit.web.consoles import ORDER, make_user, open_console, order

SOURCE = Path(interlock.__file__).parent
SECRET = "fraud 3.1.0+abc key-of-eve v41 db.internal:5432"  # must not reach a caller
CLASSES = [
    each
    for each in vars(errors).values()
    if isinstance(each, type)
    and issubclass(each, InterlockError)
    and each not in (DefinitionError, ArchivedError, CompactedError, PrunedError, ImpureFunctionError)
]

CALLER_MODULES = (
    "web/",
    "operate/",
    "runtime/request_checks.py",
    "runtime/history/replay.py",
    "operate/dead_letters.py",
)
"""Modules whose messages are written for callers: they quote the request and limits only."""

OTHER_MODULES = {
    "argument.unknown": {"model/arguments.py"},
    "conflict.retries": {"runtime/entities/conflicts.py", "runtime/holds/operator.py"},
    "entity.reserved": {"runtime/requests.py"},
    "read.denied": {"runtime/entities/permissions.py"},
    "context.missing": {"kernel/first_context.py"},
    "context.refused": {
        "kernel/first_context.py",
        "model/encoding/json_value.py",
        "runtime/vault.py",
        "runtime/runtime.py",
    },
    "context.unknown": {"kernel/first_context.py"},
    "entity.malformed": {"stores/files/names.py"},
    "entity.not_then": {"runtime/reading/readers.py"},
    "entry.size": {"runtime/entities/append_builder.py", "stores/files/journal/journal.py"},
    "envelope.malformed": {"trust/envelopes.py"},
    "envelope.meaning": {"trust/envelopes.py"},
    "event.malformed": {"runtime/requests.py"},
    "event.payload": {"assemble/charts.py", "model/charts/sendable_events.py"},
    "event.reserved": {"model/event.py"},
    "event.unknown": {"assemble/charts.py", "model/charts/sendable_events.py", "runtime/requests.py"},
    "index.building": {"ports/reading/field_indexes.py"},
    "index.dropping": {"ports/reading/field_indexes.py"},
    "index.unknown": {"ports/reading/field_indexes.py", "runtime/reading/readers.py"},
    "limit.range": {"ports/store.py"},
    "mailbox.full": {"runtime/entities/mailbox.py"},
    "mailbox.share": {"runtime/entities/mailbox.py"},
    "payload.reserved": {"model/encoding/json_value.py", "runtime/requests.py"},
    "runtime.closed": {"runtime/blocking.py", "runtime/entities/entities.py"},
    "runtime.draining": {"runtime/admission.py"},
    "snapshot.size": {"runtime/entities/append_builder.py"},
    "token.keys": {"trust/jwks.py"},
    "where.malformed": {"model/conditions.py", "ports/store.py"},
    "where.range": {"model/conditions.py"},
    "where.value": {"model/conditions.py", "runtime/entities/permissions.py"},
    "store.work": {"effects/unsupported_work.py", "assemble/runtimes.py"},
}
"""Other modules that raise an open code. Before you add one, read its message: it may name no address, no version, no
key and no kind that the caller did not send.
"""

NOT_SERVED = ("cli/", "testing/", "demo/", "shm/")
"""Packages that no request uses."""


def raised() -> Iterator[tuple[str, str, str]]:
    """Yield module, class and code of every error that is created with a literal code."""
    for path in sorted(SOURCE.rglob("*.py")):
        module = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            for each in node.keywords:
                if each.arg == "code" and isinstance(each.value, ast.Constant) and node.func.id.endswith("Error"):
                    yield module, node.func.id, str(each.value.value)


FOUND = sorted(set(raised()))
CODES = sorted({code for _, _, code in FOUND})


def test_error_codes_are_found_in_the_source() -> None:
    assert {"key.reused", "store.connection", "conflict.expected", "right.missing"} <= set(CODES)
    assert len(CODES) > 150


@pytest.mark.parametrize("code", [each for each in CODES if each not in OPEN_CODES])
def test_message_of_a_closed_code_is_withheld(code: str) -> None:
    for each in CLASSES:
        error = each(SECRET, code=code, hint=SECRET)
        status, body = problem_of(error)
        assert not set(SECRET.split()) & set(f"{body['detail']} {body.get('hint', '')}".split())
        assert is_withheld(error)
        assert (status == 500, body["code"]) in ((True, "internal"), (True, code), (False, code))


def test_message_of_an_unknown_code_is_withheld() -> None:
    for each in CLASSES:
        assert SECRET not in problem_of(each(SECRET))[1]["detail"]
    assert SECRET not in public_text(DefinitionError([Diagnostic(code="x", message=SECRET)]))[0]
    assert "backup" not in str(problem_of(ArchivedError("order/1", 41, "file:///backup"))[1])
    assert "internal" == problem_of(InternalError(SECRET))[1]["code"]
    assert "internal" == problem_of(ValueError(SECRET))[1]["code"]


@pytest.mark.parametrize("code", sorted(OPEN_CODES))
def test_open_code_is_raised_only_in_reviewed_modules(code: str) -> None:
    modules = {module for module, _, each in FOUND if each == code and not module.startswith(NOT_SERVED)}
    others = {each for each in modules if not each.startswith(CALLER_MODULES)}

    assert others <= OTHER_MODULES.get(code, set())
    message, hint = public_text(UsageError("as it is", code=code, hint="and so"))
    assert ("as it is", "and so") == (message, hint)


def test_codes_of_the_console_are_open() -> None:
    starting = ("web/auth.py", "web/app.py", "web/listening.py", "web/probe.py", "web/server.py")  # for the operator
    own = {code for module, name, code in FOUND if module.startswith("web/") and module not in starting
           and name != "InternalError"}  # fmt: skip

    assert set() == own - OPEN_CODES


def test_message_of_an_http_problem_is_sent() -> None:
    problem = HttpProblem(404, "Not found", "no kind `x`", code="kind.unknown", hint="here are y")

    assert (404, "no kind `x`", "here are y") == (
        problem_of(problem)[0],
        problem_of(problem)[1]["detail"],
        problem_of(problem)[1]["hint"],
    )


@pytest.mark.parametrize(
    ("code", "is_told"),
    [
        ("journal.chain", True),
        ("journal.divergence", True),
        ("snapshot.version", True),
        ("store.beside", True),
        ("journal.unread", False),
        ("entity.row", False),
        ("store.corrupt", False),
        ("kind.unknown", False),
        ("revision.unknown", False),
    ],
)
def test_damage_is_reported_without_addresses(code: str, is_told: bool) -> None:
    assert is_told == (SECRET in damage_text(code, SECRET))


class AwayStore(MemoryStore):
    """A store whose server is unreachable."""

    async def load(self, entity: str, *, key: str | None = None) -> Any:
        """Fail with the address in the message, as the PostgreSQL store does."""
        raise UnavailableError(f"no connection to {SECRET}", code="store.connection", hint=SECRET)


async def test_unavailable_store_is_reported_without_its_address(caplog: pytest.LogCaptureFixture) -> None:
    async with open_console() as client:
        await client.runtime.create("order/1", {"amount": 1})
        client.runtime.entities.store = AwayStore()
        client.runtime.entities.snapshots.clear()
        with caplog.at_level(logging.INFO, logger="interlock.web"):
            read = await client.get("entity/order/1")
            sent = await client.post("send/order/1", {"event": "order.cancelled"})
            client.runtime.store = AwayStore()
            job = await client.job("verify", {"entity": "order/1"})

    assert [(503, "store.connection")] * 2 == [(each.status_code, each.json()["code"]) for each in (read, sent)]
    assert "db.internal" not in read.text + sent.text + str(job)
    assert 2 <= sum("db.internal" in str(vars(each).get("error")) for each in caplog.records)


async def test_conflict_withholds_the_version_and_reused_key_its_owner() -> None:
    async with open_console() as client:
        await client.runtime.create("order/1", {"amount": 1}, key="key-of-eve")
        body = {"event": "order.cancelled", "expected": 41}
        lost = await client.post("send/order/1", body)
        used = await client.post("send/order/1", {"event": "order.cancelled", "key": "key-of-eve"})

    assert (409, "conflict.expected") == (lost.status_code, lost.json()["code"])
    assert (400, "key.reused") == (used.status_code, used.json()["code"])
    assert not any(each in lost.text + used.text for each in ("version 1", "creation", "key-of-eve"))


async def test_user_without_read_gets_no_states() -> None:
    who = make_user(rights=("send",), roles=("payments",))
    async with open_console(who=who) as client:
        await client.runtime.create("order/1", {"amount": 5})
        denied = await client.post("send/order/1", {"event": "parcel.shipped"})
        rejected = await client.post("send/order/1", {"event": "payment.confirmed", "payload": {}})
        taken = await client.post("send/order/1", {"event": "payment.confirmed", "payload": {"id": "p"}})
        exists = await client.post("kinds/order/entities", {"id": "1", "context": {"amount": 5}})

    assert [403, 400, 200, 422] == [each.status_code for each in (denied, rejected, taken, exists)]
    assert not any("receipt" in each.json() for each in (denied, rejected, exists))
    assert ("applied", 2, [], []) == tuple(
        taken.json()[each] for each in ("outcome", "version", "configuration", "effects")
    )


async def test_unknown_revision_lists_the_loaded_ones() -> None:
    newer = ORDER.replace("revision: 2.0.0", "revision: 3.0.0")
    async with open_console(charts=(order(), order(newer)), who=make_user(rights=("read",))) as client:
        found = await client.get("kinds/order/chart.svg?revision=9.9.9")

    assert (404, "revision.unknown") == (found.status_code, found.json()["code"])
    assert "b1." in found.json()["hint"]


def test_error_classes_map_to_statuses() -> None:
    statuses = {each: problem_of(each("x"))[0] for each in (NotFoundError, ConflictError, CorruptionError, UsageError)}

    assert [404, 409, 500, 400] == list(statuses.values())
