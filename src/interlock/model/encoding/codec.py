"""The encoding of values that are stored or compared: deterministic JSON.

Rule 1: one encoder for everything that is hashed or stored. Stored bytes are hashed, never a re-encoding.
Rule 2: decoding checks types. The kernel checks the states of a decoded snapshot.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from interlock.errors import CorruptionError, SourceLocation
from interlock.model.document.document import Document
from interlock.model.document.field import UNSET
from interlock.model.event import Event
from interlock.model.limits import SNAPSHOT_BYTES_MAX
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step

T = TypeVar("T")

UNDECODABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What decoding JSON raises: for bytes that are not JSON or not of the type, not UTF-8, or nested too deeply."""

_encoder = msgspec.json.Encoder(order="deterministic")
_snapshots = msgspec.json.Decoder(Snapshot)
_events = msgspec.json.Decoder(Event)


def encode(value: Snapshot | Event | Step | Any) -> bytes:
    """Return a value as deterministic JSON: fields in declared order, mappings in key order."""
    return _encoder.encode(value)


def to_builtins(value: Snapshot | Event | Step | Any) -> Any:
    """Return a value as plain Python values (dict, list, str, ...), without defaults."""
    return msgspec.to_builtins(value)


def digested_json(snapshot: Snapshot) -> bytes:
    """Return what the digest of a snapshot is the hash of: its deterministic JSON without `sight`, which is derived.

    Entries of releases without `sight` then have the same digest when they are replayed.
    """
    return encode(snapshot if snapshot.sight is None else replace(snapshot, sight=None))


def snapshot_digest(snapshot_json: bytes) -> str:
    """Return the hash of a snapshot as it is stored, which its entry records: 16 hex digits of BLAKE2b."""
    return blake2b(snapshot_json, digest_size=8).hexdigest()


def decode_snapshot(data: bytes | str) -> Snapshot:
    """Return the snapshot in these bytes. Raises CorruptionError if they are invalid."""
    return _decode(_snapshots, data, "snapshot")


def decode_event(data: bytes | str) -> Event:
    """Return the event in these bytes. Raises CorruptionError if they are invalid."""
    return _decode(_events, data, "event")


def _decode(decoder: msgspec.json.Decoder[T], data: bytes | str, what: str) -> T:
    if len(data) > SNAPSHOT_BYTES_MAX:
        raise CorruptionError(
            f"the {what} has {len(data):,} bytes; the maximum is {SNAPSHOT_BYTES_MAX:,}", code=f"{what}.size"
        )
    try:
        return decoder.decode(data)
    except UNDECODABLE as error:
        raise CorruptionError(f"invalid {what}: {error}", code=f"{what}.decode") from error


SET = "hashed_if_set"
"""Marks a field that is newer than the hash: it is part of it only if it has a value, so that no old name changes."""


def content_hash(document: Document) -> str:
    """Return twelve hex digits over the content of a document, without its positions in the text and without fields
    that are marked as not `hashed`: no step depends on them, and releases that named revisions by this hash had none.
    """
    return blake2b(_encoder.encode(_content(document)), digest_size=6).hexdigest()


def _content(value: Any) -> Any:
    if is_dataclass(value):
        values = {
            each.name: _content(found)
            for each in fields(value)
            if each.compare
            and (each.metadata.get("hashed", True) is True or (SET in each.metadata and getattr(value, each.name)))
            and (found := getattr(value, each.name)) not in (None, (), UNSET)
            and not isinstance(found, SourceLocation)
        }
        return {"": type(value).__name__, **values}
    if isinstance(value, dict):
        return {key: _content(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_content(each) for each in value]
    return value
