"""The event of an erasure: it forgets the key, leaves everything else, and asks for the key to be destroyed."""

import pytest

from interlock.assemble.charts import loads
from interlock.errors import RejectedError
from interlock.model.event import Event
from interlock.model.personal_token import KEY_FIELD
from interlock.model.snapshot import Snapshot

CHART = loads("""
interlock: 1
kind: member
context: {email: {type: string, nullable: true, personal: true}, n: {default: 1}}
events: {go: {}, end: {}}
states: {a: {on: {go: b}, after: {1h: b}}, b: {on: {end: c}}, c: {type: final}}
""").kernel
KID = "0123456789abcdef"
TOKEN = {"$personal": "AUxx"}
ERASE = Event("_erase", type="platform", time_ms=7_000)


def started(**context: object) -> Snapshot:
    return CHART.start({"email": TOKEN, **context}, entity="member/1", time_ms=1_000).snapshot


def test_an_erasure_replaces_the_key_and_nothing_else() -> None:
    before = started(**{KEY_FIELD: KID})

    step = CHART.step(before, ERASE)

    assert ("applied", "erased") == (step.outcome, step.reason)
    assert {"email": TOKEN, "n": 1, KEY_FIELD: {"kid": KID, "erased_ms": 7_000}} == step.snapshot.context
    assert (before.configuration, before.timers, 2) == (
        step.snapshot.configuration,
        step.snapshot.timers,
        step.snapshot.version,
    )
    (effect,) = step.effects
    assert ("call", "_erase", {"kid": KID}, "member/1/2/0") == (effect.type, effect.name, effect.input, effect.key)


def test_an_erasure_works_after_the_end() -> None:
    ended = CHART.step(CHART.step(started(**{KEY_FIELD: KID}), "go").snapshot, "end").snapshot

    step = CHART.step(ended, ERASE)

    assert "applied" == step.outcome
    assert ("done", {"kid": KID, "erased_ms": 7_000}) == (step.snapshot.ended, step.snapshot.context[KEY_FIELD])


def test_only_the_driver_erases() -> None:
    before = started(**{KEY_FIELD: KID})

    assert ("rejected", "reserved") == _answer(before, Event("_erase"))
    assert ("rejected", "ended") == _answer(
        CHART.step(CHART.step(before, "go").snapshot, "end").snapshot, Event("_erase")
    )


def test_an_entity_without_a_key_and_an_erased_one_are_not_erased() -> None:
    erased = CHART.step(started(**{KEY_FIELD: KID}), ERASE).snapshot

    assert ("rejected", "personal.none") == _answer(started(), ERASE)
    assert ("rejected", "personal.erased") == _answer(erased, ERASE)


def _answer(snapshot: Snapshot, event: Event) -> tuple[str, str | None]:
    step = CHART.step(snapshot, event)
    return step.outcome, step.reason


def test_the_key_is_kept_by_every_step_and_by_compiled_ones() -> None:
    snapshot = started(**{KEY_FIELD: KID})
    for _ in range(200):  # enough uses that the step is compiled
        assert KID == CHART.step(snapshot, "go").snapshot.context[KEY_FIELD]
    assert KID == CHART.fold(snapshot, [Event("go"), Event("end")]).context[KEY_FIELD]


def test_a_chart_without_personal_data_takes_no_key() -> None:
    plain = loads("{interlock: 1, kind: lamp, states: {a: {}}}", format="yaml").kernel
    late = loads("""
interlock: 1
kind: late
binding: late
context: {email: {nullable: true, personal: true}}
states: {a: {context: {more: {nullable: true}}}}
""").kernel

    with pytest.raises(RejectedError) as caught:
        plain.start({KEY_FIELD: KID}, entity="lamp/1")
    assert "context.unknown" == caught.value.code
    assert KID == late.start({KEY_FIELD: KID}, entity="late/1").snapshot.context[KEY_FIELD]
