"""The one encoding of values that are kept or compared: deterministic JSON bytes.

Rule 1: one encoder for everything that is hashed or stored; hash stored bytes, never a re-encoding.
Rule 2: decoding checks types; a snapshot that decodes has the right shape (its states are checked by the kernel).
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from interlock.errors import CorruptionError, Place
from interlock.model.document.document import Document
from interlock.model.document.field import UNSET
from interlock.model.event import Event
from interlock.model.limits import SNAPSHOT_BYTES_MAX
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step

T = TypeVar("T")

_encoder = msgspec.json.Encoder(order="deterministic")
_snapshots = msgspec.json.Decoder(Snapshot)
_events = msgspec.json.Decoder(Event)


def encode(value: Snapshot | Event | Step | Any) -> bytes:
    """The value as deterministic JSON: fields in declared order, free mappings in key order."""
    return _encoder.encode(value)


def plain(value: Snapshot | Event | Step | Any) -> Any:
    """The value as plain Python JSON (dict, list, str, ...), defaults left out."""
    return msgspec.to_builtins(value)


def decode_snapshot(data: bytes | str) -> Snapshot:
    """The snapshot in these bytes. Raises CorruptionError when they are none."""
    return _decoded(_snapshots, data, "snapshot")


def decode_event(data: bytes | str) -> Event:
    """The event in these bytes. Raises CorruptionError when they are none."""
    return _decoded(_events, data, "event")


def _decoded(decoder: msgspec.json.Decoder[T], data: bytes | str, what: str) -> T:
    if len(data) > SNAPSHOT_BYTES_MAX:
        raise CorruptionError(
            f"this {what} has {len(data):,} bytes, more than {SNAPSHOT_BYTES_MAX:,}", code=f"{what}.size"
        )
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise CorruptionError(f"this is no {what}: {error}", code=f"{what}.decode") from error


def content_hash(document: Document) -> str:
    """Twelve hex digits over everything a document says, but not where it says it."""
    return blake2b(_encoder.encode(_content(document)), digest_size=6).hexdigest()


def _content(value: Any) -> Any:
    if is_dataclass(value):
        said = {
            each.name: _content(found)
            for each in fields(value)
            if each.compare
            and (found := getattr(value, each.name)) not in (None, (), UNSET)
            and not isinstance(found, Place)
        }
        return {"": type(value).__name__, **said}
    if isinstance(value, dict):
        return {key: _content(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_content(each) for each in value]
    return value
