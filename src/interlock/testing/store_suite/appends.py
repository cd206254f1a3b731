"""Cases of the store suite: appends, refusals, and what is stored after them."""

from __future__ import annotations

from typing import get_args, get_type_hints

from msgspec.structs import replace

from interlock.errors import UnavailableError, UsageError
from interlock.model.codec import encode
from interlock.model.limits import ENTITY_ID_BYTES_MAX, ENTRY_BYTES_MAX, SNAPSHOT_BYTES_MAX
from interlock.ports.refusals import Refusal
from interlock.ports.store import CAPABILITIES, Conflict, Duplicate, EntityQuery, Loaded, Store
from interlock.runtime.history.replay import replay
from interlock.testing.store_suite.samples import Life, charts
from interlock.testing.store_suite.subject import StoreSubject, expect, expect_error, journal, kept, snapshot

HOSTILE_IDS = (
    "a", "A", "ä", "a\u0308", "é" * (ENTITY_ID_BYTES_MAX // 2 - 4), "x" * (ENTITY_ID_BYTES_MAX - 7), "..", ".", "../a",
    "../../parcel/a", "a/b", "a/../b", "a//b", "/a", "a.", ".a", "-a", "--", "~a", "a~", "%", "%61", "%2e%2e", "a%2fb",
    "a b", " a", "a ", "'", "''; DROP TABLE entity; --", '"', "\\", "a\\b", "*", "?", "[a]", "_", "a_b", "$HOME",
    "`id`", "#a", "a:b", "a@1", "CON", "nul.txt", "events.log", "state.json", "日本語", "😀", "\u202ea", "\ufeffa",
    "a\u2028b", "0", "-1", "1e9", "null", "true",
)  # fmt: skip
"""Valid ids that a careless store confuses, escapes wrongly or reads as a path."""

IMPOSSIBLE_IDS = ("a\0b", "\ud800", "")
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
    life = Life("parcel/1")
    async with subject.opened() as store:
        await kept(store, life.created())
        expect(life.snapshot, await snapshot(store, "parcel/1"))


async def an_unknown_entity_is_nothing(subject: StoreSubject) -> None:
    """Before its creation an entity has no snapshot, no records and no key."""
    async with subject.opened() as store:
        expect(None, await store.load("parcel/1"))
        expect(None, await store.load("parcel/1", key="k"))
        expect((), await store.read("parcel/1"))


async def entries_stand_in_order_and_chained(subject: StoreSubject) -> None:
    """What is read is what was appended, in order, each record following the one before."""
    life = Life("parcel/1")
    appends = [life.created(), *(life.stepped(key=f"k{each}") for each in range(7))]
    async with subject.opened() as store:
        await kept(store, *appends)
        records = await journal(store, "parcel/1")
        expect([each.entry for each in appends], [each.entry for each in records])
        expect([each.entry.key for each in appends], [each.key for each in records])


async def a_known_key_is_a_duplicate(subject: StoreSubject) -> None:
    """A known key returns its version, and nothing is written."""
    life = Life("parcel/1")
    born, first = life.created(), life.stepped(key="first")
    async with subject.opened() as store:
        await kept(store, born, first)
        expect(Duplicate(2), await store.append(first))
        expect(Duplicate(2), await store.append(life.stepped(key="first")))
        expect(2, len(await journal(store, "parcel/1")))


async def a_known_key_outranks_a_lost_swap(subject: StoreSubject) -> None:
    """A repeated send finds its entry although the entity moved on: `duplicate`, not `conflict`."""
    life = Life("parcel/1")
    born, first, second = life.created(), life.stepped("shipped", key="first"), life.stepped(key="second")
    async with subject.opened() as store:
        await kept(store, born, first, second)
        expect(Duplicate(2), await store.append(first))


async def an_early_sending_is_kept_while_no_key_is_forgotten(subject: StoreSubject) -> None:
    """If every key is known, the time of sending does not matter: a new key is appended, a known one is a duplicate."""
    life = Life("parcel/1", time_ms=1_000_000)
    born, first = replace(life.created(), sent_ms=0), replace(life.stepped(key="first"), sent_ms=0)
    async with subject.opened() as store:
        await kept(store, born, first)
        expect(Duplicate(2), await store.append(first))
        await kept(store, replace(life.stepped(key="second"), sent_ms=1_000_000))


async def a_lost_swap_is_a_conflict(subject: StoreSubject) -> None:
    """Another version than expected: the current version is returned, nothing is written, the key stays unused."""
    life, rival = Life("parcel/1"), Life("parcel/1")
    born = life.created()
    rival.created()
    async with subject.opened() as store:
        await kept(store, born, life.stepped(key="mine"))
        expect(Conflict(2), await store.append(rival.stepped(key="theirs")))
        expect(2, len(await journal(store, "parcel/1")))
        await kept(store, life.stepped(key="theirs"))


async def a_version_that_is_ahead_is_a_conflict(subject: StoreSubject) -> None:
    """A step on a version that the store does not have is refused, also for a missing entity."""
    life = Life("parcel/1")
    born, _, third = life.created(), life.stepped(key="a"), life.stepped(key="b")
    async with subject.opened() as store:
        expect(Conflict(0), await store.append(third))
        await kept(store, born)
        expect(Conflict(1), await store.append(third))
        expect(1, len(await journal(store, "parcel/1")))


async def an_entity_is_created_once(subject: StoreSubject) -> None:
    """The same creation again is a duplicate; another one finds the entity there."""
    life = Life("parcel/1")
    born = life.created("born")
    async with subject.opened() as store:
        await kept(store, born, life.stepped(key="k"))
        expect(Duplicate(1), await store.append(born))
        expect(Conflict(2), await store.append(Life("parcel/1").created("again")))
        expect(2, len(await journal(store, "parcel/1")))


async def a_key_belongs_to_one_entity(subject: StoreSubject) -> None:
    """Two entities may have the same key; each has its own memory."""
    first, second = Life("parcel/1"), Life("parcel/2")
    async with subject.opened() as store:
        await kept(store, first.created("same"), second.created("same"))
        await kept(store, first.stepped(key="k"), second.stepped(key="k"))


async def load_answers_for_a_key(subject: StoreSubject) -> None:
    """With a key, load says whether it was kept; otherwise it gives the entity and the time of its last entry."""
    life = Life("parcel/1", time_ms=5_000)
    async with subject.opened() as store:
        await kept(store, life.created("born"), life.stepped(key="k", after_ms=250))
        expect(Duplicate(1), await store.load("parcel/1", key="born"))
        expect(Duplicate(2), await store.load("parcel/1", key="k"))
        found = await store.load("parcel/1", key="other")
        expect((Loaded, 2, 5_250), (type(found), found and found.version, getattr(found, "time_ms", None)))


async def replay_equals_the_snapshot(subject: StoreSubject) -> None:
    """Folding the journal through the step gives the snapshot that load gives."""
    life = Life("parcel/1")
    appends = [life.created(context={"notes": 3})]
    for number, event in enumerate(("shipped", "noted", "boarded", "noted", "landed", "delivered")):
        appends.append(life.stepped(event, key=f"k{number}"))
    async with subject.opened() as store:
        await kept(store, *appends)
        entries = [each.entry for each in await journal(store, "parcel/1")]
        expect(life.snapshot, replay(charts(), "parcel/1", None, entries))
        expect(life.snapshot, await snapshot(store, "parcel/1"))
        expect("done", (await snapshot(store, "parcel/1")).ended)


async def the_largest_entry_and_snapshot_are_kept(subject: StoreSubject) -> None:
    """The largest entry (256 KiB) and snapshot (nearly 1 MiB) are stored exactly."""
    life, other = Life("parcel/1"), Life("parcel/2")
    born = life.created()
    empty = life.stepped("written", {"text": ""}, key="empty")
    full = life.stepped("written", {"text": "x" * (ENTRY_BYTES_MAX - len(encode(empty.entry)))}, key="whole")
    expect(ENTRY_BYTES_MAX, len(encode(full.entry)), "size of the sample")
    wide = other.created()
    big = replace(wide, snapshot=replace(wide.snapshot, context={"text": "y" * (SNAPSHOT_BYTES_MAX - 1_000)}))
    async with subject.opened() as store:
        await kept(store, born, empty, full, big)
        expect(full.entry, (await journal(store, "parcel/1"))[-1].entry)
        found = await store.load("parcel/2")
        if isinstance(found, Loaded) and found.snapshot is not None:  # a store may keep only the journal
            expect(big.snapshot, found.snapshot)


async def texts_are_kept_exactly(subject: StoreSubject) -> None:
    """Every character of a payload is returned: controls, NUL, line ends, other planes."""
    life = Life("parcel/1")
    texts = ["\0", "\n", "\r\n", "\x1b[31m", "\u2028", "\ufeff", "😀", '","h":"', "'; --", "\x7f", "a\u0308"]
    appends = [life.created(), *(life.stepped("written", {"text": each}, key=f"k{each!r}") for each in texts)]
    async with subject.opened() as store:
        await kept(store, *appends)
        records = await journal(store, "parcel/1")
        expect(texts, [each.entry.event.data["text"] for each in records[1:]])
        expect(life.snapshot, await snapshot(store, "parcel/1"))


async def hostile_ids_are_kept_apart(subject: StoreSubject) -> None:
    """Every valid id is a separate entity: no paths, patterns, case folding or normalisation."""
    async with subject.opened() as store:
        for own in HOSTILE_IDS:
            life = Life(f"parcel/{own}")
            await kept(store, life.created(), life.stepped(key=f"of {own}"[:100]))
        for own in HOSTILE_IDS:
            records = await journal(store, f"parcel/{own}")
            expect(["born", f"of {own}"[:100]], [each.key for each in records], f"journal of {own!r}")
        page = await store.find(EntityQuery(kind="parcel", limit=len(HOSTILE_IDS)))
        expect({f"parcel/{own}" for own in HOSTILE_IDS}, {each.entity for each in page.rows})


async def impossible_ids_are_refused_or_kept(subject: StoreSubject) -> None:
    """An invalid id is a UsageError, or is stored exactly."""
    async with subject.opened() as store:
        for own in IMPOSSIBLE_IDS:
            life = Life(f"parcel/{own}")
            try:
                await kept(store, life.created())
            except (UsageError, UnicodeEncodeError):
                continue
            expect(1, len(await journal(store, f"parcel/{own}")))


async def hostile_keys_are_kept_apart(subject: StoreSubject) -> None:
    """Keys are compared as they are, up to 200 bytes, whatever they hold."""
    life = Life("parcel/1")
    keys = [each for each in HOSTILE_IDS if len(each.encode()) <= ENTITY_ID_BYTES_MAX]
    keys += ["k" * ENTITY_ID_BYTES_MAX, "k" * (ENTITY_ID_BYTES_MAX - 1)]
    async with subject.opened() as store:
        await kept(store, life.created(), *(life.stepped(key=each) for each in keys))
        for version, key in enumerate(keys, start=2):
            expect(Duplicate(version), await store.load("parcel/1", key=key), f"key {key!r}")


async def refusals_change_no_version(subject: StoreSubject) -> None:
    """A store that keeps refusals keeps them apart from journals."""
    life = Life("parcel/1")
    async with subject.opened() as store:
        await kept(store, life.created())
        if store.refusal_log is not None:
            await store.refusal_log.refuse((Refusal("parcel/1", "noted", "denied", "roles", 1_000, "ada", None),))
        await kept(store, life.stepped(key="k"))
        expect(2, len(await journal(store, "parcel/1")))


async def a_closed_store_refuses_everything(subject: StoreSubject) -> None:
    """After close each call raises UnavailableError; closing again does nothing."""
    life = Life("parcel/1")
    async with subject.opened() as store:
        await kept(store, life.created())
        await store.close()
        await expect_error(UnavailableError, store.append(life.stepped(key="k")))
        await expect_error(UnavailableError, store.load("parcel/1"))
        await expect_error(UnavailableError, store.read("parcel/1"))
        await expect_error(UnavailableError, store.find(EntityQuery(kind="parcel")))


async def entries_and_keys_outlive_a_reopening(subject: StoreSubject) -> None:
    """Another handle finds the journal, the snapshot and the keys, and the chain goes on."""
    life = Life("parcel/1")
    appends = [life.created(), *(life.stepped(key=f"k{each}") for each in range(3))]
    async with subject.opened() as store:
        await kept(store, *appends)
    async with subject.opened() as store:
        expect(life.snapshot, await snapshot(store, "parcel/1"))
        expect(Duplicate(2), await store.append(appends[1]))
        await kept(store, life.stepped(key="later"))
    async with subject.opened() as store:
        expect(5, len(await journal(store, "parcel/1")))
        expect(Duplicate(5), await store.load("parcel/1", key="later"))


async def lists_outlive_a_reopening(subject: StoreSubject) -> None:
    """A list is the same after the store was closed and opened."""
    life = Life("parcel/1")
    query = EntityQuery(kind="parcel", state="moving", tag="outside")
    async with subject.opened() as store:
        await kept(store, life.created(), life.stepped("shipped", key="k"))
        before = await store.find(query)
    async with subject.opened() as store:
        expect(1, len(before.rows))
        expect(before, await store.find(query))


CASES = (
    capabilities_are_none_or_whole,
    a_creation_is_version_one,
    an_unknown_entity_is_nothing,
    entries_stand_in_order_and_chained,
    a_known_key_is_a_duplicate,
    a_known_key_outranks_a_lost_swap,
    an_early_sending_is_kept_while_no_key_is_forgotten,
    a_lost_swap_is_a_conflict,
    a_version_that_is_ahead_is_a_conflict,
    an_entity_is_created_once,
    a_key_belongs_to_one_entity,
    load_answers_for_a_key,
    replay_equals_the_snapshot,
    the_largest_entry_and_snapshot_are_kept,
    texts_are_kept_exactly,
    hostile_ids_are_kept_apart,
    impossible_ids_are_refused_or_kept,
    hostile_keys_are_kept_apart,
    refusals_change_no_version,
    a_closed_store_refuses_everything,
)
DURABLE = (entries_and_keys_outlive_a_reopening, lists_outlive_a_reopening)
