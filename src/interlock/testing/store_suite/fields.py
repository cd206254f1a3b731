"""Cases of the store suite for a store with indexes on context fields (`ports.field_indexes.FieldIndexes`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from interlock.errors import UsageError
from interlock.model.conditions import Range, key_range
from interlock.model.encoding.index_key import PREFIX_BYTES, IndexedField, IndexForm
from interlock.ports.reading.field_indexes import FieldIndexes, IndexStatus
from interlock.ports.store import EntityQuery, Store
from interlock.testing.store_suite.samples import SampleEntity
from interlock.testing.store_suite.subject import StoreSubject, append_all, expect, expect_error, list_all

NOTES, TEXT = IndexedField("parcel", "notes", "number"), IndexedField("parcel", "text", "string")
FORMS: Mapping[str, IndexForm] = {"notes": "number", "text": "string"}

TEXTS = ("", "a", "b", "ä", "日", "x" * PREFIX_BYTES, "x" * PREFIX_BYTES + "a", "x" * PREFIX_BYTES + "b")
CONDITIONS: tuple[dict[str, Any], ...] = (
    *({"text": each} for each in TEXTS),
    {"text": "none"},
    {"text": Range(at_least="a")},
    {"text": Range(above="a", below="日")},
    {"text": Range(at_most="x" * PREFIX_BYTES + "a", above="x")},
    {"text": Range(above="x" * PREFIX_BYTES + "a")},
    {"notes": 0},
    {"notes": 1.0},
    {"notes": Range(at_least=1)},
    {"notes": Range(above=0, below=2)},
    {"notes": Range(at_least=5, at_most=4)},
    {"notes": 1, "text": "a"},
    {"notes": Range(at_least=1), "text": Range(above="")},
)


async def a_step_writes_the_keys_of_the_fields_that_it_changes(subject: StoreSubject) -> None:
    """An entity is found by its present value only, from its creation on, in every state and after its end."""
    sample = SampleEntity("parcel/1")
    async with subject.opened() as store:
        await _indexes(store).declare_indexes((NOTES, TEXT))
        await append_all(store, sample.create(context={"text": "a"}))
        expect(["parcel/1"], await _names(store, {"text": "a"}))
        expect(["parcel/1"], await _names(store, {"notes": 0}))
        await append_all(store, sample.step("written", {"text": "b"}, key="w"), sample.step("noted", key="n"))
        expect([[], ["parcel/1"]], [await _names(store, {"text": each}) for each in ("a", "b")])
        expect([[], ["parcel/1"]], [await _names(store, {"notes": each}) for each in (0, 1)])
        await append_all(store, sample.cancel(key="off"))
        expect(["parcel/1"], await _names(store, {"notes": 1, "text": "b"}))
        expect([], await _names(store, {"notes": 1}, state="packed"))
        await _check_verified(store, "parcel/1")


async def a_condition_finds_what_a_comparison_of_values_finds(subject: StoreSubject) -> None:
    """Values, ranges and pairs of conditions, with and without a state, on pages of every size."""
    async with subject.opened() as store:
        await _indexes(store).declare_indexes((NOTES, TEXT))
        samples = await _create_entities(store, 40)
        for where in CONDITIONS:
            for state in (None, "packed", "moving"):
                expected = sorted(each.entity for each in samples if _matches(each, where, state))
                for limit in (1, 7, 50):
                    query = EntityQuery(kind="parcel", state=state, where=where, limit=limit)
                    rows = await list_all(store, query)
                    expect(expected, sorted(each.entity for each in rows), str(query))


async def rows_are_in_the_order_of_the_values(subject: StoreSubject) -> None:
    """A list by one field is in the order of its values, and of ids for equal ones."""
    async with subject.opened() as store:
        await _indexes(store).declare_indexes((NOTES,))
        samples = await _create_entities(store, 12)
        for limit in (1, 5, 50):
            rows = await list_all(store, EntityQuery(kind="parcel", where={"notes": Range(at_least=0)}, limit=limit))
            expected = sorted((_context(each)["notes"], each.entity) for each in samples)
            expect([entity for _, entity in expected], [each.entity for each in rows])


async def rows_have_the_context_on_request(subject: StoreSubject) -> None:
    """Only then, in lists with and without conditions."""
    async with subject.opened() as store:
        await _indexes(store).declare_indexes((TEXT,))
        samples = {each.entity: _context(each) for each in await _create_entities(store, 9)}
        for where in (None, {"text": Range(at_least="")}):
            rows = await list_all(store, EntityQuery(kind="parcel", where=where, context=True, limit=4))
            expect(samples, {each.entity: each.context for each in rows})
            rows = await list_all(store, EntityQuery(kind="parcel", where=where, limit=4))
            expect({None}, {each.context for each in rows})


async def an_index_is_built_while_entities_change(subject: StoreSubject) -> None:
    """Older entities are added part by part, with the value that they have then; until the end it cannot be used."""
    async with subject.opened() as store:
        samples = await _create_entities(store, 25)
        indexes = _indexes(store)
        await indexes.declare_indexes((TEXT,))
        expect((IndexStatus("parcel", "text", "string", "building"),), await indexes.indexes())
        await expect_error(UsageError, _names(store, {"text": "a"}), "a query while the index is built")
        state, rounds = "building", 0
        while state == "building":
            for number, each in enumerate(samples):  # before and behind the builder
                if (number + rounds) % 3 == 0:
                    await append_all(store, each.step("written", {"text": f"{number % 4}"}, key=f"round-{rounds}"))
            late = SampleEntity(f"parcel/late-{rounds}")
            samples.append(late)
            await append_all(store, late.create(context={"text": "1"}))
            status = await indexes.build_index("parcel", "text", limit=5)
            assert status is not None
            state, rounds = status.state, rounds + 1
        expect(True, rounds > 3, "parts")
        for text in {_context(each)["text"] for each in samples}:
            expected = sorted(each.entity for each in samples if _context(each)["text"] == text)
            expect(expected, sorted(await _names(store, {"text": text})), text)
        for each in samples:
            await _check_verified(store, each.entity)


async def an_index_of_a_kind_without_entities_is_ready(subject: StoreSubject) -> None:
    """A new kind needs no build; declaring again changes nothing."""
    async with subject.opened() as store:
        await append_all(store, SampleEntity("letter/1").create())
        for _ in range(2):
            await _indexes(store).declare_indexes((NOTES,))
            expect((IndexStatus("parcel", "notes", "number", "ready"),), await _indexes(store).indexes())
        expect([], await _names(store, {"notes": 0}))


async def a_removed_index_is_gone(subject: StoreSubject) -> None:
    """Part by part; it is no longer maintained and cannot be used, and it can be declared again."""
    async with subject.opened() as store:
        indexes = _indexes(store)
        await indexes.declare_indexes((NOTES, TEXT))
        samples = await _create_entities(store, 12)
        expect("dropping", getattr(await indexes.drop_index("parcel", "text", limit=5), "state", None))
        await expect_error(UsageError, _names(store, {"text": "a"}), "a query while the index is removed")
        await append_all(store, samples[0].step("written", {"text": "later"}, key="later"))
        parts = 1
        while await indexes.drop_index("parcel", "text", limit=5) is not None:
            parts += 1
        expect(True, parts > 1, "parts")
        expect(["notes"], [each.field for each in await indexes.indexes()])
        await expect_error(UsageError, _names(store, {"text": "a"}), "a query without the index")
        expect(None, await indexes.drop_index("parcel", "text", limit=5))
        expect(None, await indexes.build_index("parcel", "text", limit=5))
        expect(12, len(await _names(store, {"notes": Range(at_least=0)})))
        await _check_verified(store, samples[0].entity)
        await indexes.declare_indexes((TEXT,))
        while getattr(await indexes.build_index("parcel", "text", limit=5), "state", None) != "ready":
            pass
        expect(["parcel/0"], await _names(store, {"text": "later"}))
        await _check_verified(store, "parcel/0")


async def an_unknown_field_is_refused(subject: StoreSubject) -> None:
    """It does not fall back to reading every entity; a value of another type is refused too."""
    async with subject.opened() as store:
        await _indexes(store).declare_indexes((NOTES,))
        for where in ({"text": "a"}, {"notes": "a"}, {"notes": None}, {"notes": 1, "nowhere": 1}):
            await expect_error(UsageError, _names(store, where), str(where))
        for after in ("", "x", "bm9uZQ"):
            query = EntityQuery(kind="parcel", where={"notes": 0}, after=after)
            await expect_error(UsageError, store.find(query), f"cursor {after!r}")


async def a_field_keeps_its_keys_when_its_type_changes(subject: StoreSubject) -> None:
    """A value of another type, from another revision, is kept and found once the field is declared so."""
    async with subject.opened() as store:
        await _indexes(store).declare_indexes((replace(TEXT, form="number"),))
        await append_all(store, SampleEntity("parcel/1").create(context={"text": "a"}))
        expect([], await _names(store, {"text": 1}))
        await _indexes(store).declare_indexes((TEXT,))
        expect(["parcel/1"], await _names(store, {"text": "a"}))
        await _check_verified(store, "parcel/1")


async def a_step_of_another_handle_keeps_the_index(subject: StoreSubject) -> None:
    """The set of indexed fields is the store's: a handle that was open before the declaration keeps it too."""
    first, second = SampleEntity("parcel/1"), SampleEntity("parcel/2", revision="0.9.0")
    async with subject.opened() as older, subject.opened() as newer:
        await append_all(older, first.create(context={"text": "a"}), second.create(context={"text": "a"}))
        await _indexes(newer).declare_indexes((TEXT,))
        await append_all(older, second.step("written", {"text": "b"}, key="w1"))
        while getattr(await _indexes(newer).build_index("parcel", "text", limit=1), "state", None) != "ready":
            pass
        await append_all(older, second.step("written", {"text": "c"}, key="w2"))
        await append_all(newer, first.step("written", {"text": "c"}, key="w2"))
        expect([[], [], ["parcel/1", "parcel/2"]], [await _names(newer, {"text": each}) for each in "abc"])
        for each in ("parcel/1", "parcel/2"):
            await _check_verified(older, each)
        while await _indexes(newer).drop_index("parcel", "text", limit=1) is not None:
            pass
        await append_all(older, second.step("written", {"text": "d"}, key="w3"))
        await _check_verified(older, "parcel/2")


CASES = (
    a_step_writes_the_keys_of_the_fields_that_it_changes,
    a_condition_finds_what_a_comparison_of_values_finds,
    rows_are_in_the_order_of_the_values,
    rows_have_the_context_on_request,
    an_index_is_built_while_entities_change,
    an_index_of_a_kind_without_entities_is_ready,
    a_removed_index_is_gone,
    an_unknown_field_is_refused,
    a_field_keeps_its_keys_when_its_type_changes,
)
SHARED = (a_step_of_another_handle_keeps_the_index,)


def _indexes(store: Store) -> FieldIndexes:
    indexes = store.field_indexes
    if indexes is None:
        raise AssertionError("the store has no indexes on fields")
    return indexes


async def _names(store: Store, where: Mapping[str, Any], state: str | None = None) -> list[str]:
    return [each.entity for each in await list_all(store, EntityQuery(kind="parcel", state=state, where=where))]


async def _check_verified(store: Store, entity: str) -> None:
    """No derived row of the entity or of the store differs from its snapshot."""
    if store.verification is not None:
        expect((), await store.verification.differences(entity), f"differences of {entity}")
        expect((), await store.verification.differences(), "differences")


async def _create_entities(store: Store, count: int) -> list[SampleEntity]:
    """Entities with different values, some of which have changed and moved."""
    samples = [SampleEntity(f"parcel/{number}") for number in range(count)]
    for number, each in enumerate(samples):
        await append_all(store, each.create(context={"text": TEXTS[number % len(TEXTS)]}))
        for note in range(number % 3):
            await append_all(store, each.step("noted", key=f"note-{note}"))
        if number % 4 == 1:
            await append_all(store, each.step("written", {"text": TEXTS[number * 3 % len(TEXTS)]}, key="written"))
        if number % 5 == 2:
            await append_all(store, each.step("shipped", key="shipped"))
    return samples


def _context(sample: SampleEntity) -> dict[str, Any]:
    assert sample.snapshot is not None
    return sample.snapshot.context


def _matches(sample: SampleEntity, where: Mapping[str, Any], state: str | None) -> bool:
    assert sample.snapshot is not None
    is_there = state is None or any(each.id == state for each in sample.kernel.active(sample.snapshot))
    context = _context(sample)
    return is_there and all(
        key_range(field, wanted, FORMS[field]).matches(context[field]) for field, wanted in where.items()
    )
