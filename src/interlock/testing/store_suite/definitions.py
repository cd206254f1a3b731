"""Cases of the store suite for a store that keeps definitions (`ports.definitions.Definitions`).

Rule: a store does not understand definitions, so a body here is any bytes without a line feed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from interlock.errors import UsageError
from interlock.model.limits import DEFINITION_STORED_BYTES_MAX, EDITIONS_MAX
from interlock.ports.definitions import Definition, Definitions, Edition
from interlock.testing.store_suite.subject import StoreSubject, expect

FIRST, SECOND = "b1.00000000000000000001", "b1.00000000000000000002"
OLD_NAME = "1.0.0+0123456789ab"


@asynccontextmanager
async def _definitions(subject: StoreSubject) -> AsyncIterator[Definitions]:
    async with subject.opened() as store:
        if store.definitions is None:
            raise AssertionError(f"a {type(store).__name__} keeps no definitions")
        yield store.definitions


def _definition(revision: str = FIRST, body: bytes = b'{"a":1}', **facts: object) -> Definition:
    given = {"kind": "parcel", "revision": revision, "body": body, **facts}
    return Definition(**given)  # type: ignore[arg-type]  # each case gives what the field has


async def _bodies(store: Definitions, kind: str, name: str) -> list[tuple[str, bytes | None]]:
    return [(each.edition.revision, each.body) for each in await store.read_definitions(kind, name)]


async def a_saved_definition_is_read_byte_for_byte(subject: StoreSubject) -> None:
    """By the name of its behaviour; other kinds and names have nothing."""
    async with _definitions(subject) as store:
        body = '{"text":"Grüße, \\u0000 \U0001f600"}'.encode()
        saved = await store.save_definition(_definition(body=body, label="1.0.0"), now_ms=5_000)
        expect(Edition("parcel", FIRST, saved.digest, 1, "1.0.0", 5_000, FIRST, ()), saved, "the edition")
        expect([(FIRST, body)], await _bodies(store, "parcel", FIRST))
        expect((saved,), await store.list_definitions("parcel"))
        expect(([], []), (await _bodies(store, "parcel", SECOND), await _bodies(store, "letter", FIRST)))
        expect((), await store.list_definitions("letter"))


async def saving_again_changes_nothing(subject: StoreSubject) -> None:
    """The edition keeps its number, its time, its label and its written name."""
    async with _definitions(subject) as store:
        first = await store.save_definition(_definition(label="1.0.0", written_name=OLD_NAME), now_ms=5_000)
        again = await store.save_definition(_definition(label="2.0.0"), now_ms=9_000)
        expect(first, again)
        expect((first,), await store.list_definitions())


async def sequence_numbers_rise_within_a_kind(subject: StoreSubject) -> None:
    """Each edition of a kind has a new number; another kind has its own numbers; the list is sorted by both."""
    async with _definitions(subject) as store:
        one = await store.save_definition(_definition(SECOND), now_ms=1)
        two = await store.save_definition(_definition(FIRST), now_ms=2)
        other = await store.save_definition(_definition(FIRST, kind="letter"), now_ms=3)
        three = await store.save_definition(_definition(SECOND, b'{"a":2}'), now_ms=4)
        expect([1, 2, 1, 3], [each.sequence for each in (one, two, other, three)])
        expect((other, one, two, three), await store.list_definitions())
        expect((one, two, three), await store.list_definitions("parcel"))


async def the_newest_edition_of_a_revision_is_read(subject: StoreSubject) -> None:
    """An edition that was saved before does not become the newest one again. All have the first written name."""
    async with _definitions(subject) as store:
        await store.save_definition(_definition(body=b"1", written_name=OLD_NAME), now_ms=1)
        second = await store.save_definition(_definition(body=b"2"), now_ms=2)
        await store.save_definition(_definition(body=b"1"), now_ms=3)
        expect(OLD_NAME, second.written_name)
        (found,) = await store.read_definitions("parcel", FIRST)
        expect((2, b"2", OLD_NAME), (found.edition.sequence, found.body, found.edition.written_name))


async def another_name_leads_to_the_revision(subject: StoreSubject) -> None:
    """Names may be added later, with or without a new edition, and count for all editions."""
    async with _definitions(subject) as store:
        await store.save_definition(_definition(body=b"1", names=(OLD_NAME,)), now_ms=1)
        await store.save_definition(_definition(body=b"2"), now_ms=2)
        expect([(FIRST, b"2")], await _bodies(store, "parcel", OLD_NAME))
        await store.save_definition(_definition(body=b"2", names=("b0.ffffffff",)), now_ms=3)
        expect([(FIRST, b"2")], await _bodies(store, "parcel", "b0.ffffffff"))
        for each in await store.list_definitions("parcel"):
            expect((OLD_NAME, "b0.ffffffff"), each.names, "the names of the revision")
        expect([1, 2], [each.sequence for each in await store.list_definitions("parcel")])


async def a_name_of_several_revisions_gives_all_of_them(subject: StoreSubject) -> None:
    """In their order. The name of a behaviour means this behaviour only, also if it is another one's alias."""
    async with _definitions(subject) as store:
        await store.save_definition(_definition(SECOND, b"2", names=(OLD_NAME,)), now_ms=1)
        await store.save_definition(_definition(FIRST, b"1", names=(OLD_NAME, SECOND)), now_ms=2)
        expect([(SECOND, b"2"), (FIRST, b"1")], await _bodies(store, "parcel", OLD_NAME))
        expect([(SECOND, b"2")], await _bodies(store, "parcel", SECOND))


async def rivals_get_different_numbers(subject: StoreSubject) -> None:
    """Definitions that are saved at the same time are all there, each with its own number."""
    async with _definitions(subject) as store:
        names = [f"b1.{number:020x}" for number in range(8)]
        saved = await asyncio.gather(*(store.save_definition(_definition(each), now_ms=1) for each in names * 2))
        expect(list(range(1, 9)), sorted({each.sequence for each in saved}))
        expect({*names}, {each.revision for each in await store.list_definitions("parcel")})


async def old_editions_are_dropped_but_never_the_first(subject: StoreSubject) -> None:
    """At most `EDITIONS_MAX` of a revision are kept; its order stays. Other revisions are not touched."""
    async with _definitions(subject) as store:
        await store.save_definition(_definition(SECOND, b"0"), now_ms=1)  # its body is that of a dropped edition, too
        for number in range(EDITIONS_MAX + 2):
            await store.save_definition(_definition(body=str(number).encode()), now_ms=2)
        kept = [each for each in await store.list_definitions("parcel") if each.revision == FIRST]
        expect([2, *range(5, EDITIONS_MAX + 4)], [each.sequence for each in kept])
        expect([(FIRST, str(EDITIONS_MAX + 1).encode())], await _bodies(store, "parcel", FIRST))
        expect([(SECOND, b"0")], await _bodies(store, "parcel", SECOND))


async def unusual_kinds_and_labels_are_kept(subject: StoreSubject) -> None:
    """Kinds that are long or not ASCII, and one that looks like a path, have separate definitions."""
    kinds = ["..", "a/b", "sequence", "sequence.json", "Grüße", "k" * 200, "k" * 199 + "l"]
    async with _definitions(subject) as store:
        for number, kind in enumerate(kinds):
            body = str(number).encode()
            await store.save_definition(_definition(body=body, kind=kind, label=f"ü {number}"), now_ms=1)
        for number, kind in enumerate(kinds):
            expect([(FIRST, str(number).encode())], await _bodies(store, kind, FIRST), kind)
        found = await store.list_definitions()
        expect(sorted(kinds), [each.kind for each in found])
        expect({f"ü {number}" for number in range(len(kinds))}, {each.label for each in found})


async def invalid_definitions_are_refused(subject: StoreSubject) -> None:
    """A revision that no scheme gives, such as a path, and a body that is too large."""
    async with _definitions(subject):
        for facts in (
            {"revision": "../../x"},
            {"revision": OLD_NAME},
            {"revision": ""},
            {"body": b" " * (DEFINITION_STORED_BYTES_MAX + 1)},
        ):
            try:
                _definition(**facts)
            except UsageError:
                continue
            raise AssertionError(f"{str(facts)[:80]} was accepted")


async def definitions_survive_a_handle(subject: StoreSubject) -> None:
    """They are durable, and their numbers continue."""
    async with _definitions(subject) as store:
        first = await store.save_definition(_definition(names=(OLD_NAME,), label="1"), now_ms=1)
    async with _definitions(subject) as store:
        expect((first,), await store.list_definitions())
        expect([(FIRST, b'{"a":1}')], await _bodies(store, "parcel", OLD_NAME))
        expect(2, (await store.save_definition(_definition(SECOND), now_ms=2)).sequence)


async def two_handles_share_definitions(subject: StoreSubject) -> None:
    """What one has saved, the other reads, and numbers are never given twice."""
    async with _definitions(subject) as one, _definitions(subject) as two:
        names = [f"b1.{number:020x}" for number in range(8)]
        turns = zip((one, two) * 4, names, strict=True)
        saved = await asyncio.gather(*(store.save_definition(_definition(each), now_ms=1) for store, each in turns))
        expect(list(range(1, 9)), sorted(each.sequence for each in saved))
        expect(await one.list_definitions(), await two.list_definitions())
        again = await two.save_definition(_definition(names[0]), now_ms=2)
        expect(saved[0], again)


CASES = (
    a_saved_definition_is_read_byte_for_byte,
    saving_again_changes_nothing,
    sequence_numbers_rise_within_a_kind,
    the_newest_edition_of_a_revision_is_read,
    another_name_leads_to_the_revision,
    a_name_of_several_revisions_gives_all_of_them,
    rivals_get_different_numbers,
    old_editions_are_dropped_but_never_the_first,
    unusual_kinds_and_labels_are_kept,
    invalid_definitions_are_refused,
)
DURABLE = (definitions_survive_a_handle,)
SHARED = (two_handles_share_definitions,)
