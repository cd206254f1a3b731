"""Cases of the store suite: appends, refusals, and what is stored after them."""

from __future__ import annotations

from typing import get_args, get_type_hints

from msgspec.structs import replace

from interlock.errors import UnavailableError, UsageError
from interlock.model.audit import AuditRow
from interlock.model.encoding.codec import encode
from interlock.model.limits import ENTITY_ID_BYTES_MAX, ENTRY_BYTES_MAX, SNAPSHOT_BYTES_MAX
from interlock.ports.clock import SystemClock
from interlock.ports.store import CAPABILITIES, Conflict, Duplicate, EntityQuery, Loaded, Store
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.history.replay import replay
from interlock.testing.store_suite.samples import SampleEntity, charts
from interlock.testing.store_suite.subject import StoreSubject, append_all, expect, expect_error, journal, snapshot

HOSTILE_IDS = (
    "a", "A", "ä", "a\u0308", "é" * (ENTITY_ID_BYTES_MAX // 2 - 4), "x" * (ENTITY_ID_BYTES_MAX - 7), "..", ".", "../a",
    "../../parcel/a", "a/b", "a/../b", "a//b", "/a", "a.", ".a", "-a", "--", "~a", "a~", "%", "%61", "%2e%2e", "a%2fb",
    "a b", " a", "a ", "'", "''; DROP TABLE entity; --", '"', "\\", "a\\b", "*", "?", "[a]", "_", "a_b", "$HOME",
    "`id`", "#a", "a:b", "a@1", "CON", "nul.txt", "events.log", "state.json", "日本語", "😀", "\u202ea", "\ufeffa",
    "a\u2028b", "0", "-1", "1e9", "null", "true",
)  # fmt: skip
"""Valid ids that a careless store confuses, escapes wrongly or reads as a path."""

INVALID_IDS = ("a\0b", "\ud800", "")
"""Invalid ids. A store may refuse them with UsageError, or store them exactly."""


async def capabilities_are_none_or_whole(subject: StoreSubject) -> None:
    """Each capability of the port is there; it is None, or has every attribute of its protocol."""
    async with subject.opened() as store:
        for name in CAPABILITIES:
            if not hasattr(store, name):
                raise AssertionError(f"the store has no attribute `{name}`")
            capability = getattr(store, name)
            port = get_args(get_type_hints(getattr(Store, name).fget)["return"])[0]
            if capability is not None:
                wanted = {*vars(port), *get_type_hints(port)}
                lacks = [each for each in sorted(wanted) if each[0] != "_" and not hasattr(capability, each)]
                expect([], lacks, f"what `{name}` lacks")


async def a_creation_is_version_one(subject: StoreSubject) -> None:
    """The first entry of an entity is number 1, and load gives what was appended."""
    sample = SampleEntity("parcel/1")
    async with subject.opened() as store:
        await append_all(store, sample.create())
        expect(sample.snapshot, await snapshot(store, "parcel/1"))


async def an_unknown_entity_loads_as_none(subject: StoreSubject) -> None:
    """Before its creation an entity has no snapshot, no records and no key."""
    async with subject.opened() as store:
        expect(None, await store.load("parcel/1"))
        expect(None, await store.load("parcel/1", key="k"))
        expect((), await store.read("parcel/1"))


async def entries_are_ordered_and_chained(subject: StoreSubject) -> None:
    """What is read is what was appended, in order, each record following the one before."""
    sample = SampleEntity("parcel/1")
    appends = [sample.create(), *(sample.step(key=f"k{each}") for each in range(7))]
    async with subject.opened() as store:
        await append_all(store, *appends)
        records = await journal(store, "parcel/1")
        expect([each.entry for each in appends], [each.entry for each in records])
        expect([each.entry.key for each in appends], [each.key for each in records])


async def a_known_key_is_a_duplicate(subject: StoreSubject) -> None:
    """A known key returns its version, and nothing is written."""
    sample = SampleEntity("parcel/1")
    creation, first = sample.create(), sample.step(key="first")
    async with subject.opened() as store:
        await append_all(store, creation, first)
        expect(Duplicate(2), await store.append(first))
        expect(Duplicate(2), await store.append(sample.step(key="first")))
        expect(2, len(await journal(store, "parcel/1")))


async def a_duplicate_key_takes_precedence_over_a_conflict(subject: StoreSubject) -> None:
    """A repeated send finds its entry although the entity moved on: `duplicate`, not `conflict`."""
    sample = SampleEntity("parcel/1")
    creation, first, second = sample.create(), sample.step("shipped", key="first"), sample.step(key="second")
    async with subject.opened() as store:
        await append_all(store, creation, first, second)
        expect(Duplicate(2), await store.append(first))


async def an_old_send_time_is_accepted_while_no_key_has_expired(subject: StoreSubject) -> None:
    """If every key is known, the time of sending does not matter: a new key is appended, a known one is a duplicate."""
    sample = SampleEntity("parcel/1", time_ms=1_000_000)
    creation, first = replace(sample.create(), sent_ms=0), replace(sample.step(key="first"), sent_ms=0)
    async with subject.opened() as store:
        await append_all(store, creation, first)
        expect(Duplicate(2), await store.append(first))
        await append_all(store, replace(sample.step(key="second"), sent_ms=1_000_000))


async def a_lost_swap_is_a_conflict(subject: StoreSubject) -> None:
    """Another version than expected: the current version is returned, nothing is written, the key stays unused."""
    sample, rival = SampleEntity("parcel/1"), SampleEntity("parcel/1")
    creation = sample.create()
    rival.create()
    async with subject.opened() as store:
        await append_all(store, creation, sample.step(key="mine"))
        expect(Conflict(2), await store.append(rival.step(key="theirs")))
        expect(2, len(await journal(store, "parcel/1")))
        await append_all(store, sample.step(key="theirs"))


async def a_version_that_is_ahead_is_a_conflict(subject: StoreSubject) -> None:
    """A step on a version that the store does not have is refused, also for a missing entity."""
    sample = SampleEntity("parcel/1")
    creation, _, third = sample.create(), sample.step(key="a"), sample.step(key="b")
    async with subject.opened() as store:
        expect(Conflict(0), await store.append(third))
        await append_all(store, creation)
        expect(Conflict(1), await store.append(third))
        expect(1, len(await journal(store, "parcel/1")))


async def an_entity_is_created_once(subject: StoreSubject) -> None:
    """The same creation again is a duplicate; another one is a conflict."""
    sample = SampleEntity("parcel/1")
    creation = sample.create("born")
    async with subject.opened() as store:
        await append_all(store, creation, sample.step(key="k"))
        expect(Duplicate(1), await store.append(creation))
        expect(Conflict(2), await store.append(SampleEntity("parcel/1").create("again")))
        expect(2, len(await journal(store, "parcel/1")))


async def a_key_belongs_to_one_entity(subject: StoreSubject) -> None:
    """Two entities may use the same key independently."""
    first, second = SampleEntity("parcel/1"), SampleEntity("parcel/2")
    async with subject.opened() as store:
        await append_all(store, first.create("same"), second.create("same"))
        await append_all(store, first.step(key="k"), second.step(key="k"))


async def load_finds_a_duplicate_key(subject: StoreSubject) -> None:
    """With a key, load returns whether it was used; otherwise the entity and the time of its last entry."""
    sample = SampleEntity("parcel/1", time_ms=5_000)
    async with subject.opened() as store:
        await append_all(store, sample.create("born"), sample.step(key="k", after_ms=250))
        expect(Duplicate(1), await store.load("parcel/1", key="born"))
        expect(Duplicate(2), await store.load("parcel/1", key="k"))
        found = await store.load("parcel/1", key="other")
        expect((Loaded, 2, 5_250), (type(found), found and found.version, getattr(found, "time_ms", None)))


async def replay_equals_the_snapshot(subject: StoreSubject) -> None:
    """Folding the journal through the step gives the snapshot that load gives."""
    sample = SampleEntity("parcel/1")
    appends = [sample.create(context={"notes": 3})]
    for number, event in enumerate(("shipped", "noted", "boarded", "noted", "landed", "delivered")):
        appends.append(sample.step(event, key=f"k{number}"))
    async with subject.opened() as store:
        await append_all(store, *appends)
        entries = [each.entry for each in await journal(store, "parcel/1")]
        revisions = Revisions(charts(), store, SystemClock())
        expect(sample.snapshot, await replay(revisions, "parcel/1", None, entries))
        expect(sample.snapshot, await snapshot(store, "parcel/1"))
        expect("done", (await snapshot(store, "parcel/1")).ended)


async def the_largest_entry_and_snapshot_are_stored(subject: StoreSubject) -> None:
    """The largest entry (256 KiB) and snapshot (nearly 1 MiB) are stored exactly."""
    sample, other = SampleEntity("parcel/1"), SampleEntity("parcel/2")
    creation = sample.create()
    empty = sample.step("written", {"text": ""}, key="empty")
    full = sample.step("written", {"text": "x" * (ENTRY_BYTES_MAX - len(encode(empty.entry)))}, key="whole")
    expect(ENTRY_BYTES_MAX, len(encode(full.entry)), "size of the sample")
    wide = other.create()
    big = replace(wide, snapshot=replace(wide.snapshot, context={"text": "y" * (SNAPSHOT_BYTES_MAX - 1_000)}))
    async with subject.opened() as store:
        await append_all(store, creation, empty, full, big)
        expect(full.entry, (await journal(store, "parcel/1"))[-1].entry)
        found = await store.load("parcel/2")
        if isinstance(found, Loaded) and found.snapshot is not None:  # a store may keep only the journal
            expect(big.snapshot, found.snapshot)


async def texts_are_stored_exactly(subject: StoreSubject) -> None:
    """Every character of a payload is returned: controls, NUL, line ends, other planes."""
    sample = SampleEntity("parcel/1")
    texts = ["\0", "\n", "\r\n", "\x1b[31m", "\u2028", "\ufeff", "😀", '","h":"', "'; --", "\x7f", "a\u0308"]
    appends = [sample.create(), *(sample.step("written", {"text": each}, key=f"k{each!r}") for each in texts)]
    async with subject.opened() as store:
        await append_all(store, *appends)
        records = await journal(store, "parcel/1")
        expect(texts, [each.entry.event.data["text"] for each in records[1:]])
        expect(sample.snapshot, await snapshot(store, "parcel/1"))


async def hostile_ids_stay_distinct(subject: StoreSubject) -> None:
    """Every valid id is a separate entity: no paths, patterns, case folding or normalisation."""
    async with subject.opened() as store:
        for own in HOSTILE_IDS:
            sample = SampleEntity(f"parcel/{own}")
            await append_all(store, sample.create(), sample.step(key=f"of {own}"[:100]))
        for own in HOSTILE_IDS:
            records = await journal(store, f"parcel/{own}")
            expect(["born", f"of {own}"[:100]], [each.key for each in records], f"journal of {own!r}")
        page = await store.find(EntityQuery(kind="parcel", limit=len(HOSTILE_IDS)))
        expect({f"parcel/{own}" for own in HOSTILE_IDS}, {each.entity for each in page.rows})


async def invalid_ids_are_refused_or_stored(subject: StoreSubject) -> None:
    """An invalid id is a UsageError, or is stored exactly."""
    async with subject.opened() as store:
        for own in INVALID_IDS:
            sample = SampleEntity(f"parcel/{own}")
            try:
                await append_all(store, sample.create())
            except (UsageError, UnicodeEncodeError):
                continue
            expect(1, len(await journal(store, f"parcel/{own}")))


async def hostile_keys_stay_distinct(subject: StoreSubject) -> None:
    """Keys are compared as they are, up to 200 bytes, whatever they hold."""
    sample = SampleEntity("parcel/1")
    keys = [each for each in HOSTILE_IDS if len(each.encode()) <= ENTITY_ID_BYTES_MAX]
    keys += ["k" * ENTITY_ID_BYTES_MAX, "k" * (ENTITY_ID_BYTES_MAX - 1)]
    async with subject.opened() as store:
        await append_all(store, sample.create(), *(sample.step(key=each) for each in keys))
        for version, key in enumerate(keys, start=2):
            expect(Duplicate(version), await store.load("parcel/1", key=key), f"key {key!r}")


async def refusals_change_no_version(subject: StoreSubject) -> None:
    """A store that keeps refusals keeps them apart from journals."""
    sample = SampleEntity("parcel/1")
    async with subject.opened() as store:
        await append_all(store, sample.create())
        if store.audit is not None:
            await store.audit.append_audit((AuditRow("parcel/1", "noted", "denied", "roles", 1_000, actor="ada"),))
        await append_all(store, sample.step(key="k"))
        expect(2, len(await journal(store, "parcel/1")))


async def a_closed_store_refuses_everything(subject: StoreSubject) -> None:
    """After close each call raises UnavailableError; closing again does nothing."""
    sample = SampleEntity("parcel/1")
    async with subject.opened() as store:
        await append_all(store, sample.create())
        await store.close()
        await expect_error(UnavailableError, store.append(sample.step(key="k")))
        await expect_error(UnavailableError, store.load("parcel/1"))
        await expect_error(UnavailableError, store.read("parcel/1"))
        await expect_error(UnavailableError, store.find(EntityQuery(kind="parcel")))


async def entries_and_keys_survive_reopening(subject: StoreSubject) -> None:
    """Another handle finds the journal, the snapshot and the keys, and continues the chain."""
    sample = SampleEntity("parcel/1")
    appends = [sample.create(), *(sample.step(key=f"k{each}") for each in range(3))]
    async with subject.opened() as store:
        await append_all(store, *appends)
    async with subject.opened() as store:
        expect(sample.snapshot, await snapshot(store, "parcel/1"))
        expect(Duplicate(2), await store.append(appends[1]))
        await append_all(store, sample.step(key="later"))
    async with subject.opened() as store:
        expect(5, len(await journal(store, "parcel/1")))
        expect(Duplicate(5), await store.load("parcel/1", key="later"))


async def lists_survive_reopening(subject: StoreSubject) -> None:
    """A list is the same after the store was closed and opened."""
    sample = SampleEntity("parcel/1")
    query = EntityQuery(kind="parcel", state="moving", tag="outside")
    async with subject.opened() as store:
        await append_all(store, sample.create(), sample.step("shipped", key="k"))
        before = await store.find(query)
    async with subject.opened() as store:
        expect(1, len(before.rows))
        expect(before, await store.find(query))


CASES = (
    capabilities_are_none_or_whole,
    a_creation_is_version_one,
    an_unknown_entity_loads_as_none,
    entries_are_ordered_and_chained,
    a_known_key_is_a_duplicate,
    a_duplicate_key_takes_precedence_over_a_conflict,
    an_old_send_time_is_accepted_while_no_key_has_expired,
    a_lost_swap_is_a_conflict,
    a_version_that_is_ahead_is_a_conflict,
    an_entity_is_created_once,
    a_key_belongs_to_one_entity,
    load_finds_a_duplicate_key,
    replay_equals_the_snapshot,
    the_largest_entry_and_snapshot_are_stored,
    texts_are_stored_exactly,
    hostile_ids_stay_distinct,
    invalid_ids_are_refused_or_stored,
    hostile_keys_stay_distinct,
    refusals_change_no_version,
    a_closed_store_refuses_everything,
)
DURABLE = (entries_and_keys_survive_reopening, lists_survive_reopening)
