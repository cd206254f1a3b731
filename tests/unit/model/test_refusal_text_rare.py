"""Why an event was refused: roles of transitions, permits that fail, and states of a snapshot without a chart."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import interlock
from interlock.errors import UsageError
from interlock.model.refusal_text import elsewhere_text, guard_text

DOOR = """
interlock: 1
kind: vault
events:
  opened: {permit: "= event.principal.id == 'ada'"}
  broken: {permit: "= event.principal.none.id == 'ada'"}
states:
  shut: {tags: [safe], on: {opened: wide, broken: wide}, expect: {within: forever}}
  wide: {expect: {within: forever}}
"""
GATE = """
interlock: 1
kind: gate
states:
  shut: {on: {opened: {target: wide, roles: [guard]}}, expect: {within: forever}}
  wide: {expect: {within: forever}}
"""


async def refusal(text: str, event: str, principal: dict[str, object]) -> str:
    """The explanation of a denied event."""
    chart = interlock.loads(text)
    async with interlock.open("memory:", charts=[chart], work=False) as runtime:
        entity = f"{chart.chart.kind}/1"
        await runtime.create(entity)
        receipt = await runtime.send(entity, event, principal=principal)
        with pytest.raises((interlock.DeniedError, interlock.RejectedError)) as raised:
            receipt.expect()
    return str(raised.value)


async def test_a_permit_that_is_false_or_fails_is_named() -> None:
    assert "permit" in await refusal(DOOR, "opened", {"id": "eve"})
    assert "permit" in await refusal(DOOR, "broken", {"id": "eve"})


async def test_roles_of_a_transition_are_named() -> None:
    assert "guard" in await refusal(GATE, "opened", {"id": "eve", "roles": ["clerk"]})


def test_a_snapshot_answers_while_its_chart_is_in_use() -> None:
    vault = interlock.loads(DOOR)
    snapshot = vault.start(entity="vault/1").snapshot

    assert snapshot.matches("shut")
    assert frozenset({"safe"}) == snapshot.tags
    with pytest.raises(UsageError) as unknown:
        snapshot.matches("shutt")
    with pytest.raises(UsageError) as missing:
        replace(snapshot, revision="b1.none").matches("shut")
    with pytest.raises(UsageError):
        _ = replace(snapshot, revision="b1.none").tags
    assert ("state.unknown", "snapshot.chart") == (unknown.value.code, missing.value.code)


def test_a_guard_that_failed_is_not_called_false() -> None:
    assert "failed: context.a > 1: no such field" == guard_text("context.a > 1", {}, "no such field")


def test_an_entity_that_exists_or_has_ended_says_so() -> None:
    chart = interlock.loads(GATE).chart

    assert "exists" in str(elsewhere_text(chart, "opened", "entity.exists"))
    assert "ended" in str(elsewhere_text(chart, "opened", "ended"))
    assert elsewhere_text(chart, "opened", "duplicate") is None
