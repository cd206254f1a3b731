"""`interlock create`, `send`, `show`, `can`: one entity on a store."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from interlock.cli import exit_codes
from interlock.cli.commands.effects import troubled_lines
from interlock.cli.input import STDIN, read_bytes
from interlock.cli.options import common, example, json_option, pass_terminal
from interlock.cli.output import values
from interlock.cli.output.scene import Line
from interlock.cli.output.terminal import Terminal
from interlock.cli.play import NOT_JSON
from interlock.cli.session import chart_option, known_kind, loaded_charts, opened, run, split_words, words
from interlock.effects.unsupported_work import work_requested
from interlock.errors import UsageError
from interlock.model.chart import Chart
from interlock.model.codec import plain
from interlock.model.event import Event
from interlock.model.journal.entry import Receipt
from interlock.model.limits import PAYLOAD_BYTES_MAX
from interlock.model.snapshot import Snapshot
from interlock.ports.store import PAGE_MAX, EntityQuery, Loaded
from interlock.ports.work import WorkQuery, WorkStore
from interlock.runtime.chart_registry import ChartRegistry
from interlock.runtime.history.replay import At
from interlock.runtime.request_checks import check_entity, check_new_entity
from interlock.runtime.runtime import Runtime
from interlock.trust.authorization import Authorizer

_CODES = {"rejected": exit_codes.REJECTED, "denied": exit_codes.DENIED}

_KEY = click.option("--key", metavar="KEY", help="The idempotency key: the same one again is a duplicate.")
_PRINCIPAL = click.option("--principal", metavar="ID[:ROLE,...]", help="Who sends: an id, and the roles after a colon.")


@example(
    "interlock create order/A-1 --context '{\"amount\": 4990}'",
    "interlock create sqlite:///orders.db order/A-2 --context @order.json --chart order.interlock.yaml",
)
@click.command(short_help="Begin an entity on a store.")
@words("KIND/ID")
@click.option("--context", metavar="JSON", help="The context to begin with, - for stdin, or @FILE.")
@_KEY
@_PRINCIPAL
@chart_option
@json_option
@common
@pass_terminal
def create(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    context: str | None,
    key: str | None,
    principal: str | None,
    charts: tuple[str, ...],
    as_json: bool,
) -> int:
    """Begin an entity on a store, which is made when it is not there.

    The same --key again is a duplicate; another entity of this id is rejected.
    """
    url, (entity,) = split_words(words, "KIND/ID")
    assert entity is not None
    given = _json(context, "--context")
    if given is not None and not isinstance(given, dict):
        raise UsageError("--context is not a JSON object", code="context.type", hint="""write '{"amount": 5}'""")
    bound = loaded_charts(charts)
    ChartRegistry(each.kernel for each in bound).for_new_entity(
        check_entity(entity)
    )  # before a store is made for nothing
    check_new_entity(entity)

    async def work() -> tuple[Receipt, bool]:
        async with opened(url, bound, create=True) as runtime:
            receipt = await runtime.create(entity, given, key=key, principal=_principal(principal))
            return receipt, isinstance(runtime.store, WorkStore)

    receipt, keeps_work = run(work())
    code = _told(terminal, receipt, "create", as_json=as_json)
    _tell_unperformed(terminal, receipt, keeps_work=keeps_work)
    if url.startswith("memory:"):
        terminal.message(("memory: ends with this command, and so does what was kept in it", "yellow"))
    return code


@example(
    'interlock send order/A-1 payment.confirmed \'{"id": "p-1"}\' --key req-77',
    "interlock send order/A-1 order.cancelled --principal ada:support --dry-run",
)
@click.command(short_help="Give an event to an entity.")
@words("KIND/ID EVENT [PAYLOAD]")
@_KEY
@click.option("--expected", type=click.IntRange(min=0), metavar="VERSION", help="Only if it is at this version.")
@_PRINCIPAL
@click.option("--trace", metavar="ID", help="A trace id, kept with the entry.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@chart_option
@json_option
@common
@pass_terminal
def send(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    key: str | None,
    expected: int | None,
    principal: str | None,
    trace: str | None,
    dry_run: bool,
    charts: tuple[str, ...],
    as_json: bool,
) -> int:
    """Give an event to an entity, and print the receipt. PAYLOAD is JSON, - for stdin, or @FILE.

    Ends with 0 when it was applied, ignored or a duplicate, with 5 when the chart rejected it, with 4 when it was
    denied, with 3 when the entity is not at --expected.
    """
    url, (entity, event, payload) = split_words(words, "KIND/ID", "EVENT", "PAYLOAD", optional=1)
    assert entity is not None
    assert event is not None
    if dry_run and (expected is not None or trace is not None):
        raise click.UsageError("--dry-run takes no --expected and no --trace")
    data, who, bound = _json(payload, "PAYLOAD"), _principal(principal), loaded_charts(charts)

    async def work() -> tuple[Receipt, Chart | None, bool]:
        async with opened(url, bound) as runtime:
            if dry_run:
                receipt = await runtime.dry_run(entity, event, data, key=key, principal=who)
            else:
                receipt = await runtime.send(
                    entity, event, data, key=key, expected=expected, principal=who, trace=trace
                )
            return receipt, _chart(runtime, receipt), isinstance(runtime.store, WorkStore)

    with known_kind(entity, bound):
        receipt, chart, keeps_work = run(work())
    code = _told(terminal, receipt, event, chart=chart, as_json=as_json, dry=dry_run)
    _tell_unperformed(terminal, receipt, keeps_work=keeps_work)
    return code


@example("interlock show order/A-1", "interlock show order/A-1 --at 2026-11-15T12:00:00Z")
@click.command(short_help="Show an entity: its states, context and timers, now or then.")
@words("KIND/ID")
@click.option("--at", metavar="VERSION|TIME", help="As it was: a version, or a time such as 2026-11-15T12:00:00Z.")
@click.option("--all", "whole", is_flag=True, help="Show the states that are not active too.")
@chart_option
@json_option
@common
@pass_terminal
def show(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    at: str | None,
    whole: bool,
    charts: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show an entity: its active states, its context, what it waits for, and since when; and of what it left to do,
    what does not go on by itself.
    """
    url, (entity,) = split_words(words, "KIND/ID")
    assert entity is not None
    bound = loaded_charts(charts, imports=False)

    async def work() -> tuple[Snapshot, str, list[Line]]:
        async with opened(url, bound) as runtime:
            snapshot = await runtime.state(entity, at=None if at is None else _at(at))
            note = await _since(runtime, snapshot) if at is None else f"  as at {at}"
            chart = runtime.charts.for_snapshot(snapshot).chart
            now_ms = runtime.clock.now_ms()
            lines = [*values.entity_lines(chart, snapshot, now_ms=now_ms, whole=whole)]
            if at is None and isinstance(runtime.store, WorkStore):
                page = await runtime.store.works(WorkQuery(entity=entity))
                lines += troubled_lines(entity, page.rows, now_ms)
            return snapshot, note, lines

    with known_kind(entity, bound):
        snapshot, note, lines = run(work())
    if as_json:
        terminal.data(values.json_text(plain(snapshot)))
        return exit_codes.OK
    terminal.report(*values.head_line(snapshot, note))
    for line in lines:
        terminal.report(*line)
    return exit_codes.OK


@example("interlock can order/A-1", "interlock can order/A-1 --principal ada:support")
@click.command(short_help="Say which events an entity accepts now, and why not the others.")
@words("KIND/ID")
@_PRINCIPAL
@chart_option
@json_option
@common
@pass_terminal
def can(
    terminal: Terminal, words: tuple[str, ...], *, principal: str | None, charts: tuple[str, ...], as_json: bool
) -> int:
    """Say which events an entity accepts now; of the others, which guard said no and what it read.

    With --principal also which events that sender may not send at all.
    """
    url, (entity,) = split_words(words, "KIND/ID")
    assert entity is not None
    who, bound = _principal(principal), loaded_charts(charts, imports=False)

    async def work() -> tuple[Any, ...]:
        async with opened(url, bound) as runtime:
            snapshot = await runtime.state(entity)
            kernel = runtime.charts.for_snapshot(snapshot)
            return kernel.chart, snapshot, kernel.candidates(snapshot)

    with known_kind(entity, bound):
        chart, snapshot, candidates = run(work())
    denied: list[str] = []
    if who is not None:
        policy = Authorizer(chart)
        denied = [name for name in policy.events if policy.role_refusal(Event(name, principal=who)) is not None]
    if as_json:
        terminal.data(values.json_text(values.can_json(chart, snapshot, candidates, denied)))
        return exit_codes.OK
    terminal.report(*values.head_line(snapshot), "  ", ("● ", "green"), ", ".join(snapshot.configuration))
    for line in values.can_lines(chart, snapshot, candidates, denied):
        terminal.report(*line)
    return exit_codes.OK


def _told(
    terminal: Terminal, receipt: Receipt, event: str, *, as_json: bool, chart: Chart | None = None, dry: bool = False
) -> int:
    """Print a receipt, and give the code of its outcome."""
    if as_json:
        terminal.data(values.json_text(plain(receipt)))
    else:
        for line in values.receipt_lines(receipt, event, chart=chart, dry=dry):
            terminal.report(*line)
    return _CODES.get(receipt.outcome, exit_codes.OK)


def _tell_unperformed(terminal: Terminal, receipt: Receipt, *, keeps_work: bool) -> None:
    """Say so where what a step asks for stands in the journal, and nobody will ever do it."""
    deeds = () if keeps_work else work_requested(receipt.effects)
    if deeds:
        told = f"this store keeps no work: nobody performs the {', '.join(deeds)} of this step"
        terminal.message((told, "yellow"))


def _chart(runtime: Runtime, receipt: Receipt) -> Chart | None:
    """The chart by which an event was judged, where it can still be told."""
    found = receipt.snapshot
    if found is not None:
        return runtime.charts.for_revision(found.kind, found.revision).chart
    kind = receipt.entity.partition("/")[0]
    return runtime.charts.for_new_entity(kind).chart if kind in runtime.charts.kinds() else None


async def _since(runtime: Runtime, snapshot: Snapshot) -> str:
    """Since when the entity is where it is, for the line at the top."""
    kind, _, own = snapshot.entity.partition("/")
    page = await runtime.store.find(EntityQuery(kind=kind, prefix=own, limit=PAGE_MAX))
    found = next((each.entered_ms for each in page.rows if each.entity == snapshot.entity), None)
    if found is None:  # more than a page of ids begin like this one: the time of its last entry is near enough
        loaded = await runtime.store.load(snapshot.entity)
        found = loaded.time_ms if isinstance(loaded, Loaded) else runtime.clock.now_ms()
    return f"  since {values.time_text(found)} ({values.age_text(runtime.clock.now_ms() - found)})"


def _at(text: str) -> At:
    """A version or a time. A version is all digits."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 20 else text


def _principal(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    name, colon, roles = text.partition(":")
    if not name:
        raise UsageError("--principal has no id", code="principal.malformed", hint="write --principal ada:support")
    held = [each for each in roles.split(",") if each]
    return {"id": name, "roles": held} if colon else {"id": name}


def _json(text: str | None, what: str) -> Any:
    """A value given as JSON, on stdin or in a file."""
    if text is None:
        return None
    said: str | bytes = text
    if text == STDIN:
        said = sys.stdin.buffer.read(PAYLOAD_BYTES_MAX * 2)  # more is refused by its size, wherever it was cut
    elif text.startswith("@"):
        said = read_bytes(Path(text[1:]))
    try:
        return msgspec.json.decode(said)
    except NOT_JSON as error:
        hint = """write it like '{"id": "p-1"}', and a text with its own quotes: '"yes"'"""
        raise UsageError(f"{what} is not JSON: {error}", code="payload.json", hint=hint) from None
