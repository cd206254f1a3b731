"""Draft a mapping for each earlier revision of a store."""

from __future__ import annotations

from interlock.evolve.carry import Carrier
from interlock.evolve.mapping.draft import draft_mapping
from interlock.runtime.runtime import Runtime


async def draft_mappings(runtime: Runtime, kind: str) -> dict[str, tuple[str, int]]:
    """Return a mapping to the newest chart of this process for each revision of the store before it.

    By the name of the revision: the text of the mapping, and the number of its questions. Revisions that no living
    entity has are left out where the store counts.
    """
    target = runtime.charts.for_new_entity(kind).chart
    statistics = runtime.store.statistics
    counts = None if statistics is None else await statistics.count_states(kind)
    used = None if counts is None else {each.revision for each in counts if each.entities}
    found: dict[str, tuple[str, int]] = {}
    for edition in await runtime.revisions.editions(kind):
        names = {edition.revision, *edition.names}
        if target.is_revision(edition.revision) or edition.revision in found or (used is not None and not names & used):
            continue
        carrier = await runtime.entities.upgrades.forward_carrier(kind, edition.revision, is_preview=True)
        if isinstance(carrier, Carrier):
            text, questions = draft_mapping(carrier, edition.revision)
            found[edition.revision] = (text, len(questions))
    return found
