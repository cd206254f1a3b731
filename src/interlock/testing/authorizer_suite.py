"""The public suite that every authorizer must pass, ours and yours.

A case is a coroutine function that takes an authorizer; with pytest:

    @pytest.mark.parametrize("case", AUTHORIZER_CASES, ids=lambda case: case.__name__)
    async def test_mine(case):
        await case(Mine())

Rule 1: the authorizer must allow `ALLOWED_PRINCIPAL`, which has the role `clerk`, everything with the suite's chart.
Rule 2: a case needs no store: its runtime is in memory. It raises AssertionError with what it expected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from interlock.assemble.charts import loads
from interlock.assemble.runtimes import open as open_runtime
from interlock.errors import InterlockError
from interlock.model.event import Event
from interlock.model.journal.entry import CREATE
from interlock.ports.trust.authorizer import Allow, AuthorizationRequest, Authorizer, Decision, Deny
from interlock.runtime.runtime import Runtime
from interlock.testing.store_suite.subject import expect
from interlock.trust.authorization import ChartPolicy

CHART = """\
interlock: 1
kind: paper
context: {owner: {type: string, default: ada}}
create: {roles: [clerk]}
read: {roles: [clerk]}
events:
  paper.signed: {roles: [clerk]}
states:
  draft: {on: {paper.signed: signed}, expect: {within: forever}}
  signed: {type: final}
"""

ODD_PRINCIPALS: tuple[Mapping[str, Any] | None, ...] = (
    None,
    {},
    {"id": ""},
    {"id": 7, "roles": []},
    {"roles": ["clerk " * 100]},
    {"id": "eve", "roles": ["other"], "kind": "nothing"},
)
"""Principals that callers may send; none of them has the role of the chart."""


ALLOWED_PRINCIPAL: Mapping[str, Any] = MappingProxyType({"id": "ada", "kind": "user", "roles": ["clerk"]})
"""A principal with the role that the chart wants."""


async def every_answer_is_allow_or_deny_with_a_code(authorizer: Authorizer) -> None:
    """For each kind of request, also of principals that make no sense."""
    for request in _requests((ALLOWED_PRINCIPAL, *ODD_PRINCIPALS)):
        decision = await _ask(authorizer, request)
        expect(True, isinstance(decision, Allow | Deny), f"{request.action}: whether {decision!r} is Allow or Deny")
        has_code = isinstance(decision, Allow) or (bool(decision.code) and decision.code.isprintable())
        expect(True, has_code, f"{request.action}: whether {decision!r} has a printable code")


async def the_same_request_gets_the_same_answer(authorizer: Authorizer) -> None:
    """A random answer would differ between the check and a repetition after a lost swap."""
    for request in _requests((ALLOWED_PRINCIPAL, *ODD_PRINCIPALS)):
        first, second = await _ask(authorizer, request), await _ask(authorizer, request)
        expect(first, second, f"{request.action}: the second answer")


async def the_allowed_principal_may_create_send_and_read(authorizer: Authorizer) -> None:
    """Through a runtime."""
    async with open_runtime("memory:", charts=[loads(CHART)], work=False, authorizer=authorizer) as papers:
        created = await papers.create("paper/1", principal=ALLOWED_PRINCIPAL)
        expect(("applied", None), (created.outcome, created.reason), "the creation")
        found = await papers.state("paper/1", reader=ALLOWED_PRINCIPAL)
        expect(1, found.version, "the version")
        sent = await papers.send("paper/1", "paper.signed", principal=ALLOWED_PRINCIPAL)
        expect(("applied", None), (sent.outcome, sent.reason), "the event")


async def a_denial_before_the_load_does_not_depend_on_the_entity(authorizer: Authorizer) -> None:
    """What is denied without a snapshot is answered alike for known and unknown entities."""
    async with open_runtime("memory:", charts=[loads(CHART)], work=False, authorizer=authorizer) as papers:
        await papers.create("paper/1")
        for principal in ODD_PRINCIPALS:
            if isinstance(await _ask(authorizer, _sending("paper/1", principal)), Deny):
                known, unknown = [await _answer(papers, each, principal) for each in ("paper/1", "paper/2")]
                expect(known, unknown, f"the answer to {principal!r} about an unknown entity")


AUTHORIZER_CASES = (
    every_answer_is_allow_or_deny_with_a_code,
    the_same_request_gets_the_same_answer,
    the_allowed_principal_may_create_send_and_read,
    a_denial_before_the_load_does_not_depend_on_the_entity,
)
"""All cases."""


async def _ask(authorizer: Authorizer, request: AuthorizationRequest) -> Decision:
    found = authorizer.decide(request)
    waits = isinstance(found, Awaitable)
    decision = await found if isinstance(found, Awaitable) else found
    expect(authorizer.is_async, waits, "whether `decide` is awaited, as `is_async` says")
    return decision


def _rules() -> ChartPolicy:
    return ChartPolicy(loads(CHART).chart)


def _sending(entity: str, principal: Mapping[str, Any] | None) -> AuthorizationRequest:
    event = Event("paper.signed", principal=principal, time_ms=1)
    return AuthorizationRequest(
        action="send", kind="paper", entity=entity, principal=principal, event=event, rules=_rules()
    )


def _requests(principals: tuple[Mapping[str, Any] | None, ...]) -> list[AuthorizationRequest]:
    snapshot = loads(CHART).start(entity="paper/1", time_ms=1).snapshot
    found: list[AuthorizationRequest] = []
    for principal in principals:
        sent = _sending("paper/1", principal)
        event = Event(CREATE, {"context": {"owner": "ada"}}, principal=principal, type="platform")
        reading = replace(sent, action="read", event=None)
        found += [sent, replace(sent, snapshot=snapshot), replace(sent, action="create", event=event)]
        found += [reading, replace(reading, snapshot=snapshot), replace(reading, entity=None)]
    return found


async def _answer(papers: Runtime, entity: str, principal: Mapping[str, Any] | None) -> tuple[Any, ...]:
    try:
        receipt = await papers.send(entity, "paper.signed", principal=principal)
    except InterlockError as error:
        return type(error).__name__, error.code
    return receipt.outcome, receipt.version, receipt.reason, receipt.snapshot
