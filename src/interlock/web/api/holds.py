"""Hold and resume an entity or a kind, and list what is held.

Rule 1: a user holds and sees only kinds that they may see; one whose hidden states they may not see, they hold never.
Rule 2: only a user with the right `operate` sees why something is held, here and in the journal.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from interlock.errors import UsageError
from interlock.runtime.holds.operator import Hold
from interlock.runtime.request_checks import check_entity
from interlock.web.api.views import may_see_hold_reasons
from interlock.web.api.work import Done
from interlock.web.http.console import reader_of
from interlock.web.http.endpoint import Endpoint, RequestContext

_NEVER_HELD = ("hold.unsupported", "hold.builtin")
"""Why an entity cannot be held at all: its store, or its kind."""

Reason = Annotated[str, Meta(min_length=1, max_length=500)]


class HoldsQuery(Struct, frozen=True):
    """Of one kind, of one entity (its own hold and that of its kind), or of all."""

    kind: str | None = None
    entity: str | None = None


class HoldBody(Struct, frozen=True):
    """What to hold: an entity, or all entities of a kind; and why."""

    reason: Reason
    entity: str | None = None
    kind: str | None = None


class ResumeBody(Struct, frozen=True):
    """Whose hold ends, and what it did to timers with a deadline."""

    entity: str | None = None
    kind: str | None = None
    reason: Reason | None = None
    timers: Literal["deadline", "shift"] = "deadline"


class HoldsView(Struct, frozen=True):
    """What is held: first kinds, then entities. `may_hold`: the requested entity can be held, or is held."""

    holds: tuple[Hold, ...]
    now_ms: int
    may_hold: bool = True


async def list_holds(request: RequestContext) -> HoldsView:
    """Return what is held, of the kinds that the user may see."""
    console, kind, entity = request.console, request.query.kind, request.query.entity
    if entity is not None:
        return await _holds_of(request, entity)
    if kind is not None:
        console.check_kind(request.user, kind)
    found = await console.runtime.holds(kind)
    shown = tuple(_for_user(request, each) for each in found if _may_see(request, each))
    return HoldsView(shown, console.clock.now_ms())


async def _holds_of(request: RequestContext, entity: str) -> HoldsView:
    console, kind = request.console, check_entity(entity)
    if request.query.kind is not None:
        raise UsageError("name either an `entity` or a `kind`", code="hold.what")
    now_ms = console.clock.now_ms()
    if console.sees_covers(request.user, kind):
        return HoldsView((), now_ms, may_hold=False)
    await console.runtime.permissions.check_reader(entity, reader_of(request.user))
    try:
        found = await console.runtime.holds_of(entity)
    except UsageError as error:
        if error.code not in _NEVER_HELD:
            raise
        return HoldsView((), now_ms, may_hold=False)
    return HoldsView(tuple(_for_user(request, each) for each in found), now_ms)


def _for_user(request: RequestContext, hold: Hold) -> Hold:
    """A hold; without its reason for a user who is not an operator, as the error for a held entity."""
    return hold if may_see_hold_reasons(request.user) else replace(hold, reason=None)


def _may_see(request: RequestContext, hold: Hold) -> bool:
    kind = hold.name.partition("/")[0]
    is_visible = request.may_see(kind) if hold.is_kind else request.may_see_entity(hold.name)
    return is_visible and not request.console.sees_covers(request.user, kind)


async def hold(request: RequestContext) -> Hold:
    """Hold an entity or a kind."""
    body, runtime = request.body, request.console.runtime
    if _checked(request):
        return await runtime.hold(body.entity, reason=body.reason, principal=request.user.principal)
    return await runtime.hold_kind(body.kind, reason=body.reason, principal=request.user.principal)


async def resume(request: RequestContext) -> Done:
    """End a hold; `done` is false if there was none."""
    body, runtime = request.body, request.console.runtime
    who = request.user.principal
    if _checked(request):
        return Done(await runtime.resume(body.entity, reason=body.reason, principal=who, timers=body.timers))
    return Done(await runtime.resume_kind(body.kind, reason=body.reason, principal=who, timers=body.timers))


def _checked(request: RequestContext) -> bool:
    """Whether the request names an entity; otherwise it names a kind. Raises UsageError, or as `check_kind`."""
    body = request.body
    if (body.entity is None) == (body.kind is None):
        raise UsageError("name either an `entity` or a `kind`", code="hold.what")
    kind = body.kind if body.entity is None else check_entity(body.entity)
    request.console.check_kind(request.user, kind)
    request.console.check_writable(request.user, kind)
    return body.entity is not None


ENDPOINTS = (
    Endpoint(
        method="GET", path="/holds", summary="List what is held", handler=list_holds, query=HoldsQuery, answer=HoldsView
    ),
    Endpoint(
        method="POST",
        path="/hold",
        summary="Hold an entity or a kind",
        handler=hold,
        right="operate",
        body=HoldBody,
        answer=Hold,
    ),
    Endpoint(
        method="POST",
        path="/resume",
        summary="Resume an entity or a kind",
        handler=resume,
        right="operate",
        body=ResumeBody,
        answer=Done,
    ),
)
