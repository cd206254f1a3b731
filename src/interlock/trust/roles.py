"""The roles that a principal has now: names, and roles with an end, `{"name": ..., "until": ...}`.

Rule 1: an end is compared with the clock where a request enters: charts, permits and journals see only names.
Rule 2: a role counts while the clock is before its end.
"""

from __future__ import annotations

from datetime import datetime

from interlock.errors import UsageError

CODE = "principal.malformed"


def active_roles(roles: object, *, now_ms: int) -> list[str]:
    """Return the names of the roles that have not ended.

    Raises UsageError (`principal.malformed`) for anything but a list of names and of mappings with `name` and `until`.
    A text would count as the list of its letters, which no chart names.
    """
    if isinstance(roles, str):
        hint = f'write {{"roles": [{roles[:60]!r}]}}'
        message = f"the `roles` of the principal must be a list of names, got the text {roles[:60]!r}"
        raise UsageError(message, code=CODE, hint=hint)
    if roles is None:
        return []
    if not isinstance(roles, list | tuple):
        raise _malformed(roles)
    found: dict[str, None] = {}
    for each in roles:
        if isinstance(each, str):
            found[each] = None
        elif _end_ms(each) > now_ms:
            found[each["name"]] = None
    return list(found)


def _end_ms(role: object) -> int:
    if not isinstance(role, dict) or set(role) != {"name", "until"} or not isinstance(role["name"], str):
        raise _malformed(role)
    until = role["until"]
    try:
        end = until if isinstance(until, datetime) else datetime.fromisoformat(until)
        if end.tzinfo is None:
            raise ValueError
    except (TypeError, ValueError):
        message = f"the end of the role `{role['name'][:60]}` must be a time with a time zone, got {until!r:.60}"
        raise UsageError(message, code=CODE, hint="such as 2027-01-01T00:00:00Z") from None
    return int(end.timestamp() * 1000)


def _malformed(roles: object) -> UsageError:
    message = f"the `roles` of the principal must be a list of names, got {roles!r:.60}"
    hint = 'write {"roles": ["clerk"]}, or {"name": "clerk", "until": "2027-01-01T00:00:00Z"} for a role that ends'
    return UsageError(message, code=CODE, hint=hint)
