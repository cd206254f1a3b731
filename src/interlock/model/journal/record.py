r"""A record: one entry as the bytes of a journal, chained to the record before it.

    {"v":7,"k":"<key>","d":1234,"e":{<entry>},"h":"<32 hex>"}\n

`v` is the version, `k` the key of the event, `d` the number of bytes of the journal that the writer knew to be durable
before this write, `h` the hash over the previous hash and the bytes before `,"h"`. It is both checksum and chain.

Rule 1: stored bytes are hashed, never a re-encoding.
Rule 2: invalid bytes do not raise: `decode_record` returns an `InvalidRecord`, and the caller decides what it means.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec
from msgspec import Struct

from interlock.model.encoding.codec import UNDECODABLE, encode
from interlock.model.journal.entry import Entry

HASH_HEX = 32
_TAIL = len(',"h":""}\n') + HASH_HEX


class JournalRecord(Struct, frozen=True, gc=False):
    """A verified record: its position in the chain, the entry, and its exact bytes."""

    version: int
    key: str
    durable: int
    entry: Entry
    head: str
    line: bytes


class InvalidRecord(Struct, frozen=True):
    """Bytes that are not the next record, and why."""

    reason: str


class _Line(Struct):
    v: int
    k: str
    d: int
    e: Entry
    h: str


_lines = msgspec.json.Decoder(_Line)
_keys = msgspec.json.Encoder()


def chain_start(entity: str, *, tenant: str = "", store_key: bytes = b"") -> str:
    """Return the hash before the first record, which binds the chain to its entity."""
    return blake2b(f"{tenant}\0{entity}".encode(), key=store_key, digest_size=16).hexdigest()


def encode_record(
    entry: Entry, *, durable: int, previous: str, store_key: bytes = b"", entry_json: bytes = b""
) -> JournalRecord:
    """Return the record of an entry after the hash `previous`; `entry_json` is the entry, if it is encoded already."""
    head, line = encode_line(
        entry.version, entry.key, entry_json or encode(entry), durable=durable, previous=previous, store_key=store_key
    )
    return JournalRecord(entry.version, entry.key, durable, entry, head, line)


def encode_line(
    version: int, key: str, entry_json: bytes, *, durable: int, previous: str, store_key: bytes = b""
) -> tuple[str, bytes]:
    """Return the hash and the bytes of the record of an encoded entry."""
    body = b'{"v":%d,"k":%b,"d":%d,"e":%b' % (version, _keys.encode(key), durable, entry_json)
    head = blake2b(previous.encode() + body, key=store_key, digest_size=16).hexdigest()
    return head, b'%b,"h":"%b"}\n' % (body, head.encode())


def decode_record(line: bytes, *, previous: str, version: int, store_key: bytes = b"") -> JournalRecord | InvalidRecord:
    """Return the record in these bytes if it has this version and follows the hash `previous`."""
    if len(line) <= _TAIL or not line.endswith(b'"}\n'):
        return InvalidRecord("the line is cut")
    head = _head(line[:-_TAIL], previous, store_key)
    if line[-_TAIL:] != b',"h":"%b"}\n' % head.encode():
        return InvalidRecord("the hash does not match")
    try:
        found = _lines.decode(line)
    except UNDECODABLE as error:
        return InvalidRecord(f"the record cannot be decoded: {error}")
    if found.v != version or found.e.version != version:
        return InvalidRecord(f"expected version {version}, got {found.v}")
    return JournalRecord(version, found.k, found.d, found.e, head, line)


def _head(body: bytes, previous: str, store_key: bytes) -> str:
    return blake2b(previous.encode() + body, key=store_key, digest_size=16).hexdigest()
