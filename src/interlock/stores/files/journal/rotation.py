"""Putting a new active segment in the place of a sealed one. Under the entity's lock, in this order:

1. The seal ends `events.log`, and is flushed (`files_journal` writes it, as it writes every line).
2. The next segment is written whole under another name, and flushed.
3. `events.log` gets its sealed name as a second one; the directory is flushed.
4. The next segment is renamed to `events.log`; the directory is flushed.

Rule 1: there is never a moment without `events.log`, and never one in which a record has no name.
Rule 2: steps 2 to 4 may be done again by anybody who holds the lock and finds a seal at the end of `events.log`. The
seal is flushed first: whoever wrote it may have died before its own flush, and a next segment must not testify for
records that are not durable.
Rule 3: a segment without any record is replaced without a sealed name: there is nothing in it to keep. It is sealed all
the same, for a process that has it open must see that it is no longer the active one.
"""

from __future__ import annotations

import contextlib
import errno

from interlock.errors import ConflictError, CorruptionError
from interlock.model.journal.record import InvalidRecord, JournalRecord, decode_record
from interlock.stores.files.journal.durable_io import DurableIO, EntityDirectory
from interlock.stores.files.journal.reading import Active, Chain
from interlock.stores.files.journal.segments import Base, encode_base
from interlock.stores.files.journal.snapshot_file import Position
from interlock.stores.files.journal.tail import corrupt
from interlock.stores.files.names import JOURNAL, NEXT, sealed_name


def following(base: Base, mark: Position, *, durable: int = 0) -> Base:
    """The base of the segment after one that ends at the mark."""
    number = base.number + (mark.version >= base.first)
    return Base(number, mark.version + 1, base.since, base.origin, durable, base.archive, mark.head)


def released(base: Base, mark: Position, archive: str) -> Base:
    """The base of the segment after one that ends at the mark, when all records before it go."""
    after = following(base, mark)
    return Base(after.number, after.first, after.first, after.head, 0, archive, after.head)


def verified(chain: Chain, mark: Position, records: tuple[JournalRecord, ...]) -> bytes:
    """The bytes of records that follow a place, verified link by link.

    Raises ConflictError when they do not begin there, CorruptionError when they do not hang together.
    """
    if records[0].version != mark.version + 1:
        message = f"records of `{chain.entity}` from version {records[0].version} on cannot follow {mark.version}"
        raise ConflictError(message, code="journal.gap", hint="adopt the records in between first")
    head, lines = mark.head, []
    for version, given in enumerate(records, start=mark.version + 1):
        record = decode_record(given.line, previous=head, version=version, store_key=chain.store_key)
        if isinstance(record, InvalidRecord):
            if version == mark.version + 1 > 1:
                raise taken(chain.entity, version)
            message = f"version {version} of `{chain.entity}` cannot be adopted: {record.reason}"
            raise CorruptionError(message, code="journal.chain")
        head = record.head
        lines.append(given.line)
    return b"".join(lines)


def taken(entity: str, version: int) -> ConflictError:
    """The error of a journal that went another way than the one to adopt."""
    message = f"other records of `{entity}` than those from version {version} on stand here"
    return ConflictError(message, code="journal.taken")


def put_in_place(
    shared: DurableIO, address: EntityDirectory, active: Active, mark: Position, base: Base, body: bytes = b""
) -> None:
    """Steps 2 to 4: the segment that begins with this base and these lines is the active one."""
    fs, directory = shared.fs, active.directory
    shared.flushed(address, fs.fdatasync, active.file, address.name)
    temporary = f"{JOURNAL}{NEXT}{fs.unique()}"
    try:
        _write_next(shared, directory, temporary, encode_base(base, store_key=shared.settings.store_key) + body)
        if mark.version >= active.base.first:
            keep_sealed(shared, address, active, mark)
            shared.flushed(address, fs.sync_directory, directory, address.name)
        fs.rename(directory, temporary, JOURNAL)
    except BaseException:
        with contextlib.suppress(OSError):
            fs.unlink(directory, temporary)
        raise
    shared.flushed(address, fs.sync_directory, directory, address.name)


def _write_next(shared: DurableIO, directory: int, temporary: str, data: bytes) -> None:
    fs = shared.fs
    file = fs.create(directory, temporary)
    try:
        if fs.write(file, data) < len(data):
            raise OSError(errno.ENOSPC, "the disk took only a part")
        fs.fsync(file)
    finally:
        fs.close(file)


def keep_sealed(shared: DurableIO, address: EntityDirectory, active: Active, mark: Position) -> None:
    """Step 3. The name may be there already: from a rotation that was cut off after it."""
    fs, name = shared.fs, sealed_name(active.base.first)
    try:
        fs.link(active.directory, JOURNAL, name)
    except FileExistsError:
        file = fs.open_file(active.directory, name)
        try:
            if fs.identity(file) != fs.identity(active.file):
                raise corrupt(address, mark, "another file has the name of this segment", name) from None
        finally:
            fs.close(file)
