"""`state.json`: valid as a whole or not at all, bounded, and enough to list an entity."""

from hashlib import blake2b

from msgspec.structs import replace

from interlock.model.event import Event
from interlock.model.journal.entry import Entry
from interlock.model.journal.record import JournalRecord
from interlock.model.snapshot import Snapshot
from interlock.ports.store import Append
from interlock.stores.files.journal.line_formats import Position
from interlock.stores.files.journal.recent_keys import RecentKeys, Times
from interlock.stores.files.journal.snapshot_file import (
    KnownConfigurations,
    ListFacts,
    StoredSnapshot,
    decode_snapshot_file,
    encode_snapshot_file,
)

SNAPSHOT = Snapshot("order", "order/1", 3, "r1", ("a", "b"), {"total": 5})
KEPT = StoredSnapshot(
    SNAPSHOT,
    Position(3, 600, "0" * 32),
    ListFacts(1, 3, {"a": 1, "b": 2}, ("open",)),
    RecentKeys([("z", 1), ("a", 2), ("m", 3)]).encode(),
)


def entry(after: tuple[str, ...], time_ms: int) -> Entry:
    """An entry that leads to a configuration at a time."""
    return Entry(4, Event("moved", time_ms=time_ms), "applied", (), after, "r1", "k")


def test_a_snapshot_file_is_decoded_with_its_keys_in_order() -> None:
    """Keys keep their order: the oldest is the first to be forgotten."""
    found = decode_snapshot_file(encode_snapshot_file(KEPT), "order/1")

    assert KEPT == found
    assert found is not None
    assert ["z", "a", "m"] == list(found.recent_keys())


def test_the_times_of_keys_are_stored_only_when_there_are_any() -> None:
    """The file of a short journal is as in earlier releases; that of a long one has a field that they ignore."""
    kept = replace(KEPT, times=Times(900, ((64, 1_000), (128, 2_000))))
    data = encode_snapshot_file(kept)

    assert kept == decode_snapshot_file(data, "order/1")
    assert b'"times":{"forgotten_ms":900,"entries":[[64,1000],[128,2000]]}' in data
    assert b"times" not in encode_snapshot_file(KEPT)


def test_every_flipped_byte_invalidates_the_file() -> None:
    """The file has its own hash; damaged, it proves nothing."""
    data = encode_snapshot_file(KEPT)
    flipped = [data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :] for place in range(len(data))]

    assert set() == {each for each in flipped if decode_snapshot_file(each, "order/1") is not None}


def test_truncated_empty_and_foreign_files_are_ignored() -> None:
    """Half a file, another entity's, or one with another store key."""
    data = encode_snapshot_file(KEPT)

    assert [None] * 4 == [
        decode_snapshot_file(data[: len(data) // 2], "order/1"),
        decode_snapshot_file(b"", "order/1"),
        decode_snapshot_file(data, "order/2"),
        decode_snapshot_file(data, "order/1", store_key=b"secret"),
    ]


def test_the_snapshot_of_an_unknown_entity_can_be_read() -> None:
    """It gives the id of a directory whose name was cut."""
    assert KEPT == decode_snapshot_file(encode_snapshot_file(KEPT), None)


def test_bytes_with_a_valid_hash_and_another_format_are_ignored() -> None:
    """A later format is not guessed."""
    other = encode_snapshot_file(KEPT).replace(b'"format":1', b'"format":2')
    body = other[: -len(',"h":""}\n') - 32]

    rehashed = b'%b,"h":"%b"}\n' % (body, blake2b(body, digest_size=16).hexdigest().encode())
    empty = b"{"
    hashed = b'%b,"h":"%b"}\n' % (empty, blake2b(empty, digest_size=16).hexdigest().encode())

    assert (None, None) == (decode_snapshot_file(rehashed, "order/1"), decode_snapshot_file(hashed, "order/1"))


def test_states_keep_the_time_they_were_entered() -> None:
    """A state that stays active keeps its time; one that is entered again gets the entry's."""
    append = Append("order", "order/1", 3, entry(("b", "c"), 9), SNAPSHOT, ("root", "b", "c"), ("late",))
    facts = KnownConfigurations().after_append(KEPT.facts, append)

    assert ListFacts(1, 9, {"root": 9, "b": 2, "c": 9}, ("late",)) == facts


def test_another_process_s_entry_is_understood_by_its_configuration() -> None:
    """A known configuration has its compound states and tags; an unknown one its atomic states."""
    shapes = KnownConfigurations()
    shapes.learn("r1", ("c",), ListFacts(1, 1, {"root": 1, "c": 1}, ("open",)))
    known, unknown = (
        shapes.after_record(None, JournalRecord(4, "k", 0, entry(after, 9), "h", b"")) for after in (("c",), ("d",))
    )

    assert (ListFacts(9, 9, {"root": 9, "c": 9}, ("open",)), ListFacts(9, 9, {"d": 9}, ())) == (known, unknown)
