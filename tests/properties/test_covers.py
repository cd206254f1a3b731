"""Covers, by random events: others see the same with and without a stay in a hidden state."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from interlock.kernel.step import Kernel
from interlock.model.event import Event
from interlock.model.journal.entry import Entry
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step
from interlock.trust.visibility import Lens, lens_for
from tests.support.accounts import ACCOUNT, ADA, EVE, account

MASKED = ACCOUNT.replace('note: "= event.data.text"', 'iban: "= event.data.text"')
"""Here fraud changes only what others do not see."""

KERNELS = {"plain": account().kernel, "masked": account(MASKED).kernel}

PUBLIC = st.sampled_from([("deposited", {"amount": 3}), ("deposited", {"amount": -3}), ("odd", None)])
FRAUD = st.sampled_from([("frozen", None), ("noted", {"text": "x"}), ("unfrozen", None), ("noted", {"text": "y"})])


def event(name: str, data: Any, number: int, *, by: dict[str, Any]) -> Event:
    """Return an event of a sender at a time."""
    return Event(name, data, principal=by, time_ms=1_000 * number)


def entry_of(before: Snapshot | None, step: Step, cause: Event) -> Entry:
    """Return the entry of a step, as the runtime writes it."""
    after = step.snapshot
    sight = after.sight
    assert sight is not None
    return Entry(
        after.version,
        cause,
        step.outcome,
        () if before is None else before.configuration,
        after.configuration,
        after.revision,
        f"key-{after.version}",
        unseen=sight.unseen,
        shown=sight.shown,
    )


def life(kernel: Kernel, events: list[Event]) -> tuple[list[Snapshot], list[Entry]]:
    """Return the snapshots and the entries of a life."""
    start = kernel.start({}, entity="account/1", time_ms=0)
    snapshots, entries = [start.snapshot], [entry_of(None, start, Event("_create", time_ms=0))]
    for each in events:
        before = snapshots[-1]
        step = kernel.step(before, each)
        if step.snapshot.version > before.version:
            snapshots.append(step.snapshot)
            entries.append(entry_of(before, step, each))
    return snapshots, entries


def lens_of(kernel: Kernel) -> Lens:
    """Return what the owner sees through."""
    return lens_for(kernel.chart, ADA)


@given(
    st.lists(PUBLIC, max_size=6),
    st.integers(0, 6),
    st.lists(FRAUD.filter(lambda each: each[0] == "noted"), max_size=4),
    st.booleans(),
)
def test_a_stay_without_visible_changes_shows_nothing(
    public: list[tuple[str, Any]], place: int, notes: list[tuple[str, Any]], ends: bool
) -> None:
    """Two worlds: the same events of the owner, in one of them with a stay at a place."""
    kernel = KERNELS["masked"]
    lens = lens_of(kernel)
    numbered = [event(*each, number, by=ADA) for number, each in enumerate(public, start=1)]
    place = min(place, len(numbered))
    when = numbered[place - 1].time_ms if place else 0
    stay = [("frozen", None), *notes, *([("unfrozen", None)] if ends else [])]
    hidden = [replace(event(*each, 0, by=EVE), time_ms=when) for each in stay]
    _, plain = life(kernel, numbered if ends else numbered[:place])
    snapshots, frozen = life(kernel, [*numbered[:place], *hidden, *(numbered[place:] if ends else [])])
    without, _ = life(kernel, numbered if ends else numbered[:place])

    assert lens.snapshot(without[-1]) == lens.snapshot(snapshots[-1])
    shown = [[replace(one, key=None) for one in lens.entries(each)] for each in (plain, frozen)]
    assert shown[0] == shown[1]
    assert len(frozen) == len(plain) + len(stay)


@given(st.sampled_from(sorted(KERNELS)), st.lists(st.one_of(PUBLIC, FRAUD), max_size=12))
def test_the_visible_version_counts_what_is_seen_and_hidden_states_are_never_named(
    name: str, events: list[tuple[str, Any]]
) -> None:
    kernel = KERNELS[name]
    lens = lens_of(kernel)
    by = {"deposited": ADA, "odd": ADA}
    snapshots, entries = life(
        kernel, [event(*each, number, by=by.get(each[0], EVE)) for number, each in enumerate(events, start=1)]
    )
    seen = lens.entries(entries)

    assert list(range(1, len(seen) + 1)) == [each.version for each in seen]
    for number, (snapshot, entry) in enumerate(zip(snapshots, entries, strict=True), start=1):
        shown = lens.snapshot(snapshot)
        assert shown is not None
        assert shown.version == sum(each.shown != "nothing" for each in entries[:number])
        assert "frozen" not in shown.configuration
        assert lens.version(entry) == shown.version
    assert not any("frozen" in (*each.before, *each.after) for each in seen)
    assert all(one.after == other.before for one, other in pairwise(seen))


@given(st.lists(st.one_of(PUBLIC, FRAUD), max_size=12))
def test_compiled_and_general_steps_and_folds_have_the_same_sight(events: list[tuple[str, Any]]) -> None:
    fast = KERNELS["plain"]
    slow = Kernel(fast.chart, fast=False)
    by = {"deposited": ADA, "odd": ADA}
    numbered = [event(*each, number, by=by.get(each[0], EVE)) for number, each in enumerate(events, start=1)]
    compiled, general = life(fast, numbered), life(slow, numbered)

    assert compiled == general
    assert compiled[0][-1] == fast.fold(compiled[0][0], numbered)


def test_a_reader_is_entitled_by_right_or_by_role() -> None:
    kernel = KERNELS["plain"]
    frozen = life(kernel, [event("frozen", None, 1, by=EVE)])[0][-1]
    readers: list[tuple[dict[str, Any], str]] = [
        ({}, "active"),
        (ADA, "active"),
        ({"id": "x", "roles": "fraud"}, "active"),
        ({"id": "x", "rights": "read:sensitive"}, "active"),
        ({"id": "x", "rights": ["read"]}, "active"),
        (EVE, "frozen"),
        ({"id": "x", "rights": ["read:sensitive"]}, "frozen"),
    ]

    for reader, state in readers:
        shown = lens_for(kernel.chart, reader).snapshot(frozen)
        assert shown is not None
        assert ((state,), state == "active") == (shown.configuration, shown.masked), reader
