"""Entity ids: `kind/id`, where the id may contain further slashes."""

from __future__ import annotations


def split_entity(entity: str) -> tuple[str, str]:
    """Return the kind of an entity and its id within the kind.

    >>> split_entity("order/eu/A-1")
    ('order', 'eu/A-1')
    """
    kind, _, name = entity.partition("/")
    return kind, name


def kind_of(entity: str) -> str:
    """Return the kind of an entity.

    >>> kind_of("order/eu/A-1")
    'order'
    """
    return entity.partition("/")[0]
