"""The cover of an entity that is moved to a revision with other hidden states."""

from __future__ import annotations

from msgspec.structs import replace

import interlock
from interlock.kernel.step import Kernel
from interlock.model.event import Event
from interlock.model.snapshot import Snapshot
from tests.support.accounts import ACCOUNT, EVE, account

OPEN = ACCOUNT.replace("    sensitive: {as: active, roles: [fraud]}\n", "")


def moved(snapshot: Snapshot, kernel: Kernel) -> Snapshot:
    """Return a snapshot as another revision has it."""
    return replace(snapshot, version=snapshot.version + 1, revision=kernel.chart.revision)


def frozen(kernel: Kernel) -> Snapshot:
    """Return a frozen account."""
    started = kernel.start({}, entity="account/1", time_ms=0).snapshot
    return kernel.step(started, Event("frozen", principal=EVE, time_ms=1_000)).snapshot


def test_an_entity_in_a_state_that_becomes_hidden_has_no_cover() -> None:
    before, kernel = frozen(interlock.loads(OPEN).kernel), account().kernel
    assert kernel.covers is not None

    after = kernel.covers.after_move(before, moved(before, kernel), None, 2_000)

    assert after.sight is not None
    assert (1, "nothing", 3) == (after.sight.unseen, after.sight.shown, after.sight.since)
    assert after.sight.cover is None  # others see no such entity until it leaves the state


def test_the_cover_moves_with_its_entity() -> None:
    kernel = account().kernel
    before = frozen(kernel)
    assert kernel.covers is not None
    assert before.sight is not None
    assert before.sight.cover is not None
    cover = moved(before.sight.cover, kernel)

    after = kernel.covers.after_move(before, moved(before, kernel), cover, 2_000)

    assert after.sight is not None
    assert (1, "change", 2_000, 0) == (
        after.sight.unseen,
        after.sight.shown,
        after.sight.time_ms,
        after.sight.entered_ms,
    )
    assert after.sight.cover == replace(cover, sight=None)


def test_a_step_that_changes_nothing_keeps_the_sight() -> None:
    kernel = account().kernel
    before = frozen(kernel)
    assert kernel.covers is not None
    ignored = kernel.step(before, Event("odd", principal=EVE, time_ms=2_000))

    assert kernel.covers.after(before, replace(ignored, snapshot=before), 2_000).snapshot is before
    assert before == kernel.covers.after(before, replace(ignored, snapshot=replace(before, sight=None)), 2_000).snapshot
