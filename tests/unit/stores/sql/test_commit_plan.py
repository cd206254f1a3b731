"""What one append changes in the tables of a SQL store."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from interlock.errors import CorruptionError
from interlock.ports.store import Append
from interlock.stores.sql.commit_plan import CommitPlan, JournalTip, plan_commit, tip_of_new_entity
from interlock.testing.store_suite.samples import SampleEntity


def planned(append: Append, tip: JournalTip) -> CommitPlan:
    return plan_commit(append, tip)


def test_creation_enters_every_active_state_and_counts_it() -> None:
    append = SampleEntity("parcel/1").create()
    plan = planned(append, tip_of_new_entity("parcel/1", ""))

    assert plan.changes is not None
    assert ([], []) == (plan.changes.states_left, plan.changes.tags_left)
    assert set(append.states) == {state for state, _ in plan.changes.states_entered}
    assert {(append.snapshot.revision, state, 1) for state in append.states} == set(plan.changes.counts)
    assert (1, len(plan.line)) == (plan.tip.version, plan.tip.journal_bytes)
    assert plan.tip.head.encode() in plan.line


def test_a_state_that_stays_active_keeps_its_entry_time() -> None:
    sample = SampleEntity("parcel/1")
    first = planned(sample.create(), tip_of_new_entity("parcel/1", ""))
    second = planned(sample.step(key="note", after_ms=5_000), first.tip)

    assert second.changes is None
    assert (first.tip.active, first.tip.tags) == (second.tip.active, second.tip.tags)
    assert first.tip.entered_ms == second.tip.entered_ms


def test_a_transition_changes_the_lists_by_the_difference() -> None:
    sample = SampleEntity("parcel/1")
    before = sample.create()
    first = planned(before, tip_of_new_entity("parcel/1", ""))
    after = sample.step("shipped", key="s", after_ms=10)
    changes = planned(after, first.tip).changes

    assert changes is not None
    assert set(before.states) - set(after.states) == {state for state, _ in changes.states_left}
    assert set(after.states) - set(before.states) == {state for state, _ in changes.states_entered}
    assert 0 == len(set(before.states) & set(after.states) & {state for _, state, _ in changes.counts})


def test_another_revision_recounts_every_state() -> None:
    sample = SampleEntity("parcel/1")
    first = planned(sample.create(), tip_of_new_entity("parcel/1", ""))
    append = sample.step(key="note", after_ms=0)
    moved = replace(append, snapshot=replace(append.snapshot, revision="other"))
    changes = planned(moved, first.tip).changes

    assert changes is not None
    assert ([], []) == (changes.states_left, changes.states_entered)
    assert sorted(
        [(first.tip.revision, each, -1) for each in append.states] + [("other", each, 1) for each in append.states]
    ) == sorted(changes.counts)


@pytest.mark.parametrize(("active", "tags"), [(b"{", b"[]"), (b"{}", b"7")])
def test_a_tip_that_cannot_be_decoded_is_corruption(active: bytes, tags: bytes) -> None:
    tip = replace(tip_of_new_entity("parcel/1", ""), active=active, tags=tags)
    with pytest.raises(CorruptionError) as raised:
        planned(SampleEntity("parcel/1").create(), tip)

    assert "entity.row" == raised.value.code
