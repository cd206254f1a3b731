"""Definitions in memory: the reference for the other stores."""

from __future__ import annotations

from msgspec.structs import replace

from interlock.ports.definitions import (
    Definition,
    Edition,
    StoredDefinition,
    editions_of_name,
    find_edition,
    next_edition,
    surplus_editions,
)


class DefinitionTable:
    """The editions of each kind, and their bodies by digest."""

    def __init__(self) -> None:
        self._editions: dict[str, dict[tuple[str, str], Edition]] = {}
        self._bodies: dict[str, bytes] = {}

    def save(self, definition: Definition, *, now_ms: int) -> Edition:
        """Save a definition; return its edition."""
        editions = self._editions.setdefault(definition.kind, {})
        found = find_edition(editions.values(), definition)
        if found is not None:
            return found
        saved = next_edition(editions.values(), definition, now_ms=now_ms)
        for place, each in editions.items():  # the names belong to the revision
            if each.revision == saved.revision:
                editions[place] = replace(each, names=saved.names)
        editions[saved.revision, saved.digest] = saved
        self._bodies[saved.digest] = definition.body
        for each in surplus_editions(editions.values(), saved.revision):
            del editions[each.revision, each.digest]
        return saved

    def read(self, kind: str, name: str) -> tuple[StoredDefinition, ...]:
        """Return the revisions that a name means."""
        found = editions_of_name(self._editions.get(kind, {}).values(), name)
        return tuple(StoredDefinition(each[0], self._bodies[each[0].digest]) for each in found)

    def list_editions(self, kind: str | None) -> tuple[Edition, ...]:
        """Return all editions, of one kind or of all."""
        kinds = sorted(self._editions) if kind is None else [kind]
        return tuple(
            each
            for name in kinds
            for each in sorted(self._editions.get(name, {}).values(), key=lambda each: each.sequence)
        )
