"""The search attributes of an entity: the fields of Temporal's lists and counts.

Rule: they are found by name in a namespace, so their types never change. KeywordList has three columns in a SQL
visibility store; this package uses two.
"""

from __future__ import annotations

from collections.abc import Sequence

from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

KIND = SearchAttributeKey.for_keyword("InterlockKind")
REVISION = SearchAttributeKey.for_keyword("InterlockRevision")
STATE = SearchAttributeKey.for_keyword_list("InterlockState")
TAG = SearchAttributeKey.for_keyword_list("InterlockTag")


def attributes(
    kind: str, revision: str, states: Sequence[str], tags: Sequence[str], *, lists: bool
) -> TypedSearchAttributes:
    """Return the attributes of an entity; without `lists`, only its kind, which never changes."""
    pairs: list[SearchAttributePair[str] | SearchAttributePair[Sequence[str]]] = [SearchAttributePair(KIND, kind)]
    if lists:
        pairs.append(SearchAttributePair(REVISION, revision))
        pairs.append(SearchAttributePair(STATE, states))
        if tags:
            pairs.append(SearchAttributePair(TAG, tags))
    return TypedSearchAttributes(pairs)


def quoted(text: str) -> str:
    """Return a text as a literal of a visibility query."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
