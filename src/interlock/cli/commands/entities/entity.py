"""`interlock create`, `send`, `show`, `can`: one entity in a store."""

from __future__ import annotations

import click

from interlock.cli import exit_codes
from interlock.cli.input import read_json, read_json_object
from interlock.cli.options import (
    chart_option,
    common,
    example,
    json_option,
    parse_principal,
    pass_terminal,
    principal_option,
    reader_option,
    words,
)
from interlock.cli.output import entity as output
from interlock.cli.output.terminal import Line, Terminal
from interlock.cli.output.values import age_text, json_text, time_text
from interlock.cli.output.work import attention_lines
from interlock.cli.project import load_charts, load_known_charts, load_optional_charts, split_words
from interlock.cli.readers import is_masked, state_for
from interlock.cli.session import (
    chart_suggestion,
    kind_suggestion,
    open_for_reading,
    open_for_writing,
    open_or_create,
    run,
)
from interlock.effects.unsupported_work import runs_effects, work_requested
from interlock.errors import UnavailableError
from interlock.model.charts.chart import Chart
from interlock.model.encoding.codec import to_builtins
from interlock.model.journal.entry import Receipt
from interlock.model.snapshot import Snapshot
from interlock.observe.acceptance import Acceptance, acceptances, every_role, masked_acceptance
from interlock.ports.delivery import CHART_MISSING_CODES
from interlock.ports.store import PAGE_MAX, EntityQuery, Loaded
from interlock.ports.work import WorkQuery
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.charts.upgrades import UpgradePreview
from interlock.runtime.history.replay import At
from interlock.runtime.request_checks import check_entity, check_new_entity
from interlock.runtime.runtime import Runtime

_CODES = {"rejected": exit_codes.REJECTED, "denied": exit_codes.DENIED}

_KEY = click.option("--key", metavar="KEY", help="The idempotency key: an event with a known key is a duplicate.")


_REASON = click.option("--reason", metavar="TEXT", help="The reason, kept in the journal.")


@example(
    "interlock create order/A-1 --context '{\"amount\": 4990}'",
    "interlock create sqlite:///orders.db order/A-2 --context @order.json --chart order.interlock.yaml",
)
@click.command
@words("KIND/ID")
@click.option("--context", metavar="JSON", help="The initial context, - for stdin, or @FILE.")
@_KEY
@_REASON
@principal_option
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
    reason: str | None,
    principal: str | None,
    charts: tuple[str, ...],
    as_json: bool,
) -> int:
    """Creates the store if it does not exist.

    With a known --key the result is a duplicate; a second entity with the same id is rejected.
    """
    url, (entity,) = split_words(words, "KIND/ID")
    assert entity is not None
    initial = read_json_object(context, "--context")
    bound = load_charts(charts)
    ChartRegistry(each.kernel for each in bound).for_new_entity(check_entity(entity))  # before a store is created
    check_new_entity(entity)

    async def work() -> tuple[Receipt, bool]:
        async with open_or_create(url, bound) as runtime:
            sender = parse_principal(principal)
            receipt = await runtime.create(entity, initial, key=key, principal=sender, reason=reason)
            return receipt, runs_effects(runtime.store)

    receipt, is_run = run(work())
    code = _print_receipt(terminal, receipt, "create", as_json=as_json)
    _warn_of_unsupported_work(terminal, receipt, is_run=is_run)
    if url.startswith("memory:"):
        terminal.message(("warning", "yellow"), ": memory: is discarded when the command exits")
    return code


@example(
    'interlock send order/A-1 payment.confirmed \'{"id": "p-1"}\' --key req-77',
    "interlock send order/A-1 order.cancelled --principal ada:support --dry-run",
)
@click.command
@words("KIND/ID EVENT [PAYLOAD]")
@_KEY
@click.option("--expected", type=click.IntRange(min=0), metavar="VERSION", help="Send only if it is at this version.")
@principal_option
@click.option("--trace", metavar="ID", help="A trace id, stored with the entry.")
@_REASON
@click.option("--dry-run", is_flag=True, help="Print what would happen, and write nothing.")
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
    reason: str | None,
    dry_run: bool,
    charts: tuple[str, ...],
    as_json: bool,
) -> int:
    """Prints the receipt. PAYLOAD is JSON, - for stdin, or @FILE.

    Without --chart it uses the definition in the store, unless that names Python functions.

    Exit code 0 if the event was applied, ignored or a duplicate; 2 if the chart does not know the event, or its payload
    is invalid; 3 if the entity is not at version --expected; 4 if the event was denied; 5 if the chart rejected it.
    """
    url, (entity, event, payload) = split_words(words, "KIND/ID", "EVENT", "PAYLOAD", optional=1)
    assert entity is not None
    assert event is not None
    if dry_run and not (expected is None and trace is None and reason is None):
        raise click.UsageError("--dry-run cannot be used with --expected, --trace or --reason")
    data, sender = read_json(payload, "PAYLOAD"), parse_principal(principal)
    bound = load_optional_charts(charts)

    async def work() -> tuple[Receipt, Chart | None, bool]:
        async with open_for_writing(url, bound) as runtime:
            if dry_run:
                receipt = await runtime.dry_run(entity, event, data, key=key, principal=sender)
            else:
                receipt = await runtime.send(
                    entity, event, data, key=key, expected=expected, principal=sender, trace=trace, reason=reason
                )
            return receipt, await _chart_of(runtime, receipt), runs_effects(runtime.store)

    with kind_suggestion(entity, bound), chart_suggestion(bound):
        receipt, chart, is_run = run(work())
    code = _print_receipt(terminal, receipt, event, chart=chart, as_json=as_json, dry=dry_run)
    _warn_of_unsupported_work(terminal, receipt, is_run=is_run)
    return code


@example("interlock show order/A-1", "interlock show order/A-1 --at 2026-11-15T12:00:00Z")
@click.command
@words("KIND/ID")
@click.option("--at", metavar="VERSION|TIME", help="Show it at a version, or at a time such as 2026-11-15T12:00:00Z.")
@click.option("--all", "all_states", is_flag=True, help="Show inactive states too.")
@reader_option
@chart_option
@json_option
@common
@pass_terminal
def show(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    at: str | None,
    all_states: bool,
    principal: str | None,
    charts: tuple[str, ...],
    as_json: bool,
) -> int:
    """Prints active states, context, timers, invokes, and work that failed or is overdue.

    Exit code 7 if the definition of its revision cannot be read: then only the content of the snapshot is printed.
    """
    url, (entity,) = split_words(words, "KIND/ID")
    assert entity is not None
    bound = load_known_charts(charts)

    async def work() -> tuple[Snapshot, str | None, str, list[Line], UnavailableError | None]:
        async with open_for_reading(url, bound) as runtime:
            moment = None if at is None else _parse_at(at)
            snapshot, is_masked = await state_for(runtime, entity, parse_principal(principal), at=moment)
            note = f"  as at {at}"
            if at is None:
                note = "" if is_masked else await _entered_note(runtime, snapshot)
            now_ms, label, missing = runtime.clock.now_ms(), None, None
            try:
                kernel = await runtime.revisions.for_reading(snapshot.kind, snapshot.revision)
            except UnavailableError as error:
                if error.code not in CHART_MISSING_CODES:
                    raise
                missing, lines = error, [*output.raw_lines(snapshot, now_ms=now_ms)]
            else:
                active, label, all_ = {each.id for each in kernel.active(snapshot)}, kernel.chart.label, all_states
                lines = [*output.entity_lines(kernel.chart, snapshot, active=active, now_ms=now_ms, all_states=all_)]
            if not is_masked:
                holds = runtime.entities.holds
                await holds.refresh()
                of_kind = holds.of_kind(snapshot.kind) if at is None else None
                lines = [*output.hold_lines(snapshot, of_kind), *lines]
            if at is None and runtime.store.work is not None and not is_masked:
                page = await runtime.store.work.list_work(WorkQuery(entity=entity))
                lines += attention_lines(entity, page.rows, now_ms)
            return snapshot, label, note, lines, missing

    with kind_suggestion(entity, bound):
        snapshot, label, note, lines, missing = run(work())
    if as_json:
        terminal.data(json_text(to_builtins(snapshot)))
    else:
        terminal.report(*output.head_line(snapshot, note, label=label))
        for line in lines:
            terminal.report(*line)
    if missing is None:
        return exit_codes.OK
    terminal.failure(missing.message, missing.hint)
    return exit_codes.UNAVAILABLE


@example("interlock can order/A-1", "interlock can order/A-1 --principal ada:support")
@click.command
@words("KIND/ID")
@principal_option
@chart_option
@json_option
@common
@pass_terminal
def can(
    terminal: Terminal, words: tuple[str, ...], *, principal: str | None, charts: tuple[str, ...], as_json: bool
) -> int:
    """Prints each accepted event with its target. For the others it prints the guard that is false, with the values
    that it read, or the states that accept the event.

    With --principal it also prints the events that this sender may not send; the default sender has every role. If the
    next event would first move the entity to a newer chart (`upgrade: safe`), the events are those of that chart.
    """
    url, (entity,) = split_words(words, "KIND/ID")
    assert entity is not None
    sender, bound = parse_principal(principal), load_known_charts(charts)

    async def work() -> tuple[Snapshot, str | None, tuple[Acceptance, ...], UpgradePreview | None]:
        async with open_for_reading(url, bound) as runtime:
            lens = None
            if await is_masked(runtime, entity, sender):
                assert sender is not None
                kernel, snapshot, lens = await runtime.shown(entity, sender)
                now, preview = snapshot, None
            else:
                now = await runtime.state(entity)
                snapshot, preview = await runtime.mover.preview_upgrade(now, runtime.clock.now_ms())
                kernel = await runtime.revisions.for_preview(snapshot, needs_functions=False)
            policy = await runtime.revisions.policy(kernel)
            roles = {*every_role(kernel.chart), *(role for each in policy.events.values() for role in each.roles or ())}
            now_ms, anyone = runtime.clock.now_ms(), {"roles": sorted(roles)}
            found = acceptances(kernel, snapshot, sender or anyone, policy, time_ms=now_ms)
            if lens is not None:
                found = tuple(masked_acceptance(each, lens.names) for each in found)
            return now, await runtime.revisions.label(now.kind, now.revision), found, preview

    with kind_suggestion(entity, bound):
        snapshot, label, events, preview = run(work())
    if as_json:
        head = {"entity": snapshot.entity, "version": snapshot.version, "configuration": snapshot.configuration}
        upgrade = {} if preview is None else {"upgrade": to_builtins(preview)}
        terminal.data(json_text({**head, **upgrade, "events": to_builtins(events)}))
        return exit_codes.OK
    terminal.report(*output.head_line(snapshot, label=label), "  ", ("● ", "green"), ", ".join(snapshot.configuration))
    if snapshot.ended is not None:
        terminal.report(f"  {output.ENDED}")
        return exit_codes.OK
    for line in output.upgrade_lines(preview):
        terminal.report(*line)
    for line in output.acceptance_lines(events):
        terminal.report(*line)
    return exit_codes.OK


def _print_receipt(
    terminal: Terminal, receipt: Receipt, event: str, *, as_json: bool, chart: Chart | None = None, dry: bool = False
) -> int:
    """Print a receipt and return the exit code of its outcome."""
    if as_json:
        terminal.data(json_text(to_builtins(receipt)))
    else:
        for line in output.receipt_lines(receipt, event, chart=chart, dry=dry):
            terminal.report(*line)
    return _CODES.get(receipt.outcome, exit_codes.OK)


def _warn_of_unsupported_work(terminal: Terminal, receipt: Receipt, *, is_run: bool) -> None:
    """Warn about effects that stay in the journal because the store does not run them."""
    names = () if is_run else work_requested(receipt.effects)
    if names:
        terminal.message(("warning", "yellow"), f": this store does not run effects: {', '.join(names)}")


async def _chart_of(runtime: Runtime, receipt: Receipt) -> Chart | None:
    """The chart that decided about the event, if it is loaded."""
    found = receipt.snapshot
    if found is not None:
        return await runtime.revisions.chart(found.kind, found.revision)
    kind = receipt.entity.partition("/")[0]
    return runtime.charts.for_new_entity(kind).chart if kind in runtime.charts.kinds() else None


async def _entered_note(runtime: Runtime, snapshot: Snapshot) -> str:
    """Since when the entity has been in its state."""
    kind, _, prefix = snapshot.entity.partition("/")
    page = await runtime.store.find(EntityQuery(kind=kind, prefix=prefix, limit=PAGE_MAX))
    found = next((each.entered_ms for each in page.rows if each.entity == snapshot.entity), None)
    if found is None:  # more than a page of ids start with this one: use the time of its last entry
        loaded = await runtime.store.load(snapshot.entity)
        found = loaded.time_ms if isinstance(loaded, Loaded) else runtime.clock.now_ms()
    return f"  since {time_text(found)} ({age_text(runtime.clock.now_ms() - found)})"


def _parse_at(text: str) -> At:
    """A version (all digits) or a time."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 20 else text
