"""The vocabulary: roles, approvals, and who may create and read."""

from __future__ import annotations

from interlock.definition.shapes import Key, ListOf, Number, Record, Shape
from interlock.definition.vocabulary.names import DURATION, EVENT, EXPRESSION, FIELD, NAME
from interlock.model.document.document import Access, Approvals

ROLES = ListOf(item=NAME, what="a list of roles")

_ACCESS_KEYS = (
    Key(name="roles", shape=ROLES, identity="out", order="free", description="One of these roles is needed."),
    Key(
        name="permit",
        shape=EXPRESSION,
        identity="out",
        order="kept",
        description="A policy that reads `principal`, `entity`, and `event.data.context` or, for reading, `context`.",
    ),
    Key(
        name="owner",
        shape=FIELD,
        identity="out",
        order="kept",
        description="The indexed context field with the id of the principal who may read it without a role.",
    ),
)

ACCESS_SHAPES: dict[str, Shape] = {
    "create": Record(what="who may create entities", makes=Access, keys=_ACCESS_KEYS[:2]),
    "read": Record(what="who may read entities", makes=Access, keys=_ACCESS_KEYS),
    "approvals": Record(
        what="a mapping of approvals",
        makes=Approvals,
        keys=(
            Key(
                name="of",
                shape=EVENT,
                identity="in",
                order="kept",
                description="The event by which users approve.",
                required=True,
            ),
            Key(
                name="count",
                shape=Number(whole=True, min=1),
                identity="out",
                order="kept",
                description="How many different users must have sent it; 1 by default.",
            ),
            Key(
                name="not",
                field="without",
                shape=ListOf(item=EVENT, what="a list of events"),
                identity="in",
                order="free",
                description="The approval of a user who sent one of these events does not count.",
            ),
            Key(
                name="since",
                shape=EVENT,
                identity="in",
                order="kept",
                description="Only approvals after the last event of this name count.",
            ),
            Key(
                name="within",
                shape=DURATION,
                identity="out",
                order="kept",
                description="How long an approval counts; without it, until it is used.",
            ),
        ),
    ),
}
"""The named shapes of this module."""
