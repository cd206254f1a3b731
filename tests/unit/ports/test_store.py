"""What a store gets, and what it reports about itself."""

from __future__ import annotations

from msgspec.structs import replace

from interlock.model.encoding.codec import encode
from interlock.stores.memory import MemoryStore
from interlock.testing.store_suite.samples import SampleEntity


def test_an_append_encodes_its_entry_and_its_snapshot_once() -> None:
    append = SampleEntity("parcel/1").create()

    assert (encode(append.entry), encode(append.snapshot)) == (append.entry_json, append.snapshot_json)
    assert append.entry_json is append.entry_json
    assert append.snapshot_json is append.snapshot_json


def test_a_changed_append_does_not_keep_the_bytes_of_the_old_one() -> None:
    sample = SampleEntity("parcel/1")
    first, second = sample.create(), sample.step(key="k")
    old = first.entry_json, first.snapshot_json
    changed = replace(first, entry=second.entry, snapshot=second.snapshot)

    assert (second.entry_json, second.snapshot_json) == (changed.entry_json, changed.snapshot_json)
    assert old != (changed.entry_json, changed.snapshot_json)


async def test_a_record_contains_the_bytes_of_its_append() -> None:
    append = SampleEntity("parcel/1").create()
    store = MemoryStore()
    await store.append(append)
    (record,) = await store.read("parcel/1")

    assert append.entry_json in record.line
