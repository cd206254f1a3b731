"""What a runtime needs of a store to keep the definitions of charts: save, read and list them.

Rule 1: a revision is one behaviour; an edition is one text of it, known by the digest of its bytes. Two editions of a
revision differ in descriptions and labels only.
Rule 2: saving is idempotent, and durable when it returns. It is never part of the write of a step: an entry that names
a revision is written afterwards, so every process that sees the entry can read the definition.
Rule 3: the sequence numbers of a kind rise with each new edition. The order of a revision is its lowest number: that of
its first edition.
Rule 4: the first edition decides under which name entries of a revision are written (`written_name`). `names` are other
names that entries may have, such as those of earlier releases.
Rule 5: an edition is outdated if it was first saved after one with a higher label, such as `1.4` after `2.0`: a process
served an old text that the store had not seen. It is kept, because entries may name it, but it is not the newest.
Rule 6: a store does not understand definitions. It returns None for a body that is missing or does not fit its digest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Protocol

from msgspec import Struct

from interlock.errors import UsageError
from interlock.evolve.labels import is_lower
from interlock.model.limits import DEFINITION_STORED_BYTES_MAX, EDITIONS_MAX

_REVISION = re.compile(r"[a-z][a-z0-9]{0,7}\.[0-9a-f]{8,64}")


def body_digest(body: bytes) -> str:
    """Return the digest of a definition's bytes: 32 hex digits of blake2b."""
    return blake2b(body, digest_size=16).hexdigest()


class Definition(Struct, frozen=True, kw_only=True):
    """A definition to save: its kind, the name of its behaviour, and its canonical JSON.

    Raises UsageError for a name that no scheme of behaviour names gives, and for a body that is too large.
    """

    kind: str
    revision: str
    body: bytes
    label: str | None = None
    names: tuple[str, ...] = ()
    written_name: str = ""

    def __post_init__(self) -> None:
        if not _REVISION.fullmatch(self.revision):
            hint = "expected a name such as b1.8f9a1e1ecd3ea5d01792"
            raise UsageError(f"invalid revision {self.revision!r:.80}", code="definition.revision", hint=hint)
        if len(self.body) > DEFINITION_STORED_BYTES_MAX:
            message = f"the definition of `{self.kind[:80]}` has more than {DEFINITION_STORED_BYTES_MAX:,} bytes"
            raise UsageError(message, code="definition.size")

    @property
    def digest(self) -> str:
        """The digest of its body."""
        return body_digest(self.body)


class Edition(Struct, frozen=True):
    """A saved edition of a revision: its sequence number, when it was saved, and the names of the revision."""

    kind: str
    revision: str
    digest: str
    sequence: int
    label: str | None
    saved_ms: int
    written_name: str
    names: tuple[str, ...] = ()


class StoredDefinition(Struct, frozen=True):
    """The edition of a revision to use, the newest whose body is intact, and that body; None if none is intact."""

    edition: Edition
    body: bytes | None

    @property
    def definition(self) -> Definition | None:
        """The definition as it can be saved in another store; None if no body is intact."""
        if self.body is None:
            return None
        edition = self.edition
        return Definition(
            kind=edition.kind,
            revision=edition.revision,
            body=self.body,
            label=edition.label,
            names=edition.names,
            written_name=edition.written_name,
        )


class Definitions(Protocol):
    """The definitions of a store."""

    async def save_definition(self, definition: Definition, *, now_ms: int) -> Edition:
        """Save a definition and its names; return the edition, which may have been saved before.

        A damaged body is replaced. Raises UnavailableError when that cannot be written.
        """

    async def read_definitions(self, kind: str, name: str) -> tuple[StoredDefinition, ...]:
        """Return the revisions of a kind that a name means, in their order; empty when it is unknown.

        The name of a behaviour means one revision. Another name may mean several: older releases gave one name to
        different behaviours.
        """

    async def list_definitions(self, kind: str | None = None) -> tuple[Edition, ...]:
        """Return all editions, of one kind or of all, sorted by kind and sequence."""


# The rules that all stores share, on the editions of one kind


def find_edition(editions: Iterable[Edition], definition: Definition) -> Edition | None:
    """Return the edition with the body of a definition, if it has all of its names; else None."""
    for each in editions:
        if (each.revision, each.digest) == (definition.revision, definition.digest):
            return each if set(definition.names) <= set(each.names) else None
    return None


def next_edition(editions: Iterable[Edition], definition: Definition, *, last: int = 0, now_ms: int) -> Edition:
    """Return the edition to write for a definition: the one that exists, with further names, or a new one.

    `last` is a sequence number that was given before, if the store remembers one apart from its editions.
    """
    known = sorted(editions, key=lambda each: each.sequence)
    own = [each for each in known if each.revision == definition.revision]
    names = tuple(sorted({*definition.names, *(name for each in own for name in each.names)}))
    written_name = own[0].written_name if own else definition.written_name or definition.revision
    same = next((each for each in own if each.digest == definition.digest), None)
    if same is not None and same.sequence:
        sequence, saved_ms = same.sequence, same.saved_ms
    else:
        sequence, saved_ms = max([last, *(each.sequence for each in known)]) + 1, now_ms
    return Edition(
        definition.kind,
        definition.revision,
        definition.digest,
        sequence,
        definition.label,
        saved_ms,
        written_name,
        names,
    )


def outdated_editions(editions: Iterable[Edition]) -> tuple[Edition, ...]:
    """Return the editions of one kind that were outdated when they were first saved."""
    highest: Edition | None = None
    found: list[Edition] = []
    for each in sorted(editions, key=lambda each: each.sequence):
        if highest is not None and is_lower(each.label, highest.label) and highest.saved_ms <= each.saved_ms:
            found.append(each)
        elif highest is None or not is_lower(each.label, highest.label):
            highest = each
    return tuple(found)


def newest_edition(editions: Iterable[Edition]) -> Edition | None:
    """Return the edition of a kind that was saved last and is not outdated; None if there is none."""
    known = tuple(editions)
    outdated = outdated_editions(known)
    return max((each for each in known if each not in outdated), key=lambda each: each.sequence, default=None)


def surplus_editions(editions: Iterable[Edition], revision: str) -> tuple[Edition, ...]:
    """Return the editions of a revision beyond `EDITIONS_MAX`: the oldest, but never the first."""
    own = sorted((each for each in editions if each.revision == revision), key=lambda each: each.sequence)
    return tuple(own[1 : 1 + max(0, len(own) - EDITIONS_MAX)])


def editions_of_name(editions: Iterable[Edition], name: str) -> tuple[tuple[Edition, ...], ...]:
    """Return the editions of each revision that a name means: revisions in their order, newest edition first.

    Outdated editions of a revision come last.
    """
    known = tuple(editions)
    outdated = outdated_editions(known)
    found: dict[str, list[Edition]] = {}
    aliased: dict[str, list[Edition]] = {}
    ordered = sorted(known, key=lambda each: (each not in outdated, each.sequence))
    order = {each.revision: each.sequence for each in sorted(known, key=lambda each: -each.sequence)}
    for each in ordered:
        if each.revision == name:
            found.setdefault(each.revision, []).insert(0, each)
        elif name in each.names:
            aliased.setdefault(each.revision, []).insert(0, each)
    revisions = (found or aliased).items()
    return tuple(tuple(each) for name, each in sorted(revisions, key=lambda item: order[item[0]]))
