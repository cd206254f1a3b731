"""`interlock audit`: export and verify the audit, write signed checkpoints, and create their key."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import quote

import click

from interlock.buses.registry import open_bus_url
from interlock.cli import exit_codes
from interlock.cli.options import common, duration_ms, example, json_option, pass_terminal, since_time_ms, words
from interlock.cli.output.progress import Progress
from interlock.cli.output.terminal import Terminal, escape_line
from interlock.cli.output.values import count_text, json_line, json_text
from interlock.cli.project import split_words
from interlock.cli.session import check_readable, open_for_reading, open_for_writing, run
from interlock.errors import UsageError
from interlock.model.encoding.codec import to_builtins
from interlock.observe.audit import COLUMNS, AuditFilter, export_audit, time_text
from interlock.observe.audit_proof import AuditProof, verify_audit
from interlock.operate.checkpoints import CheckpointWriter, publish_to_bus, publish_to_file, read_published
from interlock.ports.clock import SystemClock
from interlock.stores.registry import audited_tenants, with_tenant
from interlock.trust.checkpoints import SignedCheckpoint, SigningKey, VerifyingKey

PROBLEMS_SHOWN_MAX = 50
"""Problems that `verify` prints for people; the others are counted."""

FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # noqa: RUF001 - the wide forms are meant
"""Characters that start a formula in a spreadsheet; some read their wide forms, too."""

COVERS_SHOWN_MAX = 10
"""Checkpoints of which `verify` says for people what they still cover: the newest."""


@example(
    "interlock audit export sqlite:///orders.db > audit.jsonl",
    "interlock audit verify sqlite:///orders.db",
)
@click.group
@common
def audit() -> None:
    """Applied attempts are entries of journals; refused attempts and actions of operators are rows of the audit. Hashes
    chain both, and signed checkpoints prove that neither was changed later.
    """


@example(
    "interlock audit export sqlite:///orders.db > audit.jsonl",
    "interlock audit export --format csv --since 30d --kind order",
)
@audit.command
@words("")
@click.option("--format", "form", type=click.Choice(["jsonl", "csv"]), default="jsonl", help="Default: jsonl.")
@click.option("--since", metavar="TIME", help="Start at this time, or this long ago: 2026-11-01T00:00Z, 30d.")
@click.option("--until", metavar="TIME", help="End before this time, or this long ago.")
@click.option("--kind", metavar="KIND", help="Only entities of this kind.")
@click.option("--entity", metavar="KIND/ID", help="Only this entity.")
@click.option("--actor", metavar="ID", help="Only attempts of this principal.")
@common
@pass_terminal
def export(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    form: str,
    since: str | None,
    until: str | None,
    kind: str | None,
    entity: str | None,
    actor: str | None,
) -> int:
    """Prints the attempts in order of time: applied ones from the journals, refused ones and actions of operators from
    the audit.

    When a principal was refused very often, one line has the number of many attempts. Archives are not included: export
    each archive as well.
    """
    url, _ = split_words(words)
    now_ms = SystemClock().now_ms()
    wanted = AuditFilter(
        since_ms=None if since is None else since_time_ms(since, now_ms=now_ms),
        until_ms=None if until is None else since_time_ms(until, now_ms=now_ms),
        kind=kind,
        entity=entity,
        actor=actor,
    )

    async def work() -> None:
        async with open_for_reading(url) as runtime:
            async for row in export_audit(runtime.store, wanted):
                terminal.data(_csv_line(row) if form == "csv" else json_line(row._asdict()))

    if form == "csv":
        terminal.data(_csv_line(COLUMNS))
    run(work())
    return exit_codes.OK


@example(
    "interlock audit verify sqlite:///orders.db",
    "interlock audit verify --public-key 1f0a...c9 --anchors checkpoints.jsonl",
    "interlock audit verify postgresql://db.internal/shop --all-tenants",
)
@audit.command
@words("")
@click.option("--all-tenants", is_flag=True, help="Verify each tenant of the database.")
@click.option("--public-key", metavar="HEX", help="The public key of the checkpoints, as `audit key` printed it.")
@click.option("--anchors", metavar="FILE", help="A file of published checkpoints (see `audit checkpoint --publish`).")
@json_option
@common
@pass_terminal
def verify(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    all_tenants: bool,
    public_key: str | None,
    anchors: str | None,
    as_json: bool,
) -> int:
    """Prints every damaged row and journal, and what is still proven. Exit code 8 if anything is damaged.

    Compares what retention removed with its records, and checkpoints with what is there. Without --public-key it cannot
    detect a journal or an audit that was rewritten from its start. Without --anchors it cannot detect that the latest
    rows were removed, or that the whole store was replaced by an older copy.
    """
    url, _ = split_words(words)
    key = None if public_key is None else VerifyingKey.of(public_key)
    published = () if anchors is None else read_published(Path(anchors))

    async def work(address: str) -> AuditProof:
        async with open_for_reading(address) as runtime:
            with Progress(terminal, "journals") as progress:
                progress.line("verifying")
                now_ms = runtime.clock.now_ms()
                stream = None if runtime.store.audit is None else runtime.store.audit.first_audit_head
                own = tuple(each for each in published if each.checkpoint.stream == stream or not all_tenants)
                return await verify_audit(runtime.store, now_ms=now_ms, key=key, published=own)

    async def tenants() -> tuple[str, ...]:
        await check_readable(url)
        return await audited_tenants(url)

    found: dict[str, AuditProof] = {}
    for tenant in run(tenants()) if all_tenants else (None,):
        proof = run(work(url if tenant is None else with_tenant(url, tenant)))
        found[tenant or ""] = proof
        if tenant is not None and not as_json:
            terminal.report((f"tenant {quote(tenant, safe='') or '(default)'}", "bold"))
        if not as_json:
            _print_proof(terminal, proof, is_signed=key is not None)
    if as_json:
        terminal.data(json_text(to_builtins(found if all_tenants else found[""])))
    elif any(each.found for each in found.values()):
        terminal.message(("hint:", "green"), f" {exit_codes.CORRUPTION_HINT}")
    return exit_codes.CORRUPTION if any(each.found for each in found.values()) else exit_codes.OK


def _print_proof(terminal: Terminal, proof: AuditProof, *, is_signed: bool) -> None:
    for each in proof.problems[:PROBLEMS_SHOWN_MAX]:
        terminal.report(("✗ ", "red"), (each.place, "bold"), f"  {each.code}: {each.message}")
    if proof.found > PROBLEMS_SHOWN_MAX:
        listed = "all" if proof.found == len(proof.problems) else f"{len(proof.problems):,}"
        terminal.report(f"  and {proof.found - PROBLEMS_SHOWN_MAX:,} more; --json lists {listed}")
    rows = count_text(proof.rows, "row", "rows")
    entities = count_text(proof.entities, "entity", "entities")
    entries = count_text(proof.entries, "entry", "entries")
    archived = f", {proof.archived:,} archived" if proof.archived else ""
    checkpoints = count_text(proof.checkpoints, "checkpoint", "checkpoints")
    text = f"{rows} of the audit, {entities} with {entries}{archived}, {checkpoints}: "
    problems = count_text(proof.found, "problem", "problems")
    terminal.report((text + problems, "bold red" if proof.found else "bold"))
    _print_covers(terminal, proof)
    if proof.proven_ms is not None:
        terminal.report(f"  proven by a signed checkpoint: what was there at {time_text(proof.proven_ms)}")
    elif is_signed:
        terminal.report("  no checkpoint proves anything; `interlock audit checkpoint` writes them")
    else:
        terminal.report("  without --public-key the chains show accidents and partial edits only")


def _print_covers(terminal: Terminal, proof: AuditProof) -> None:
    """Say which checkpoints do not cover everything any more that they name, and why."""
    partial = [each for each in proof.covers if each.kept < each.entities or not each.holds]
    for each in partial[-COVERS_SHOWN_MAX:]:
        counts = (("pruned", each.pruned), ("compacted", each.compacted), ("damaged", each.damaged))
        gone = ", ".join(f"{count:,} {word}" for word, count in counts if count)
        text = f"{each.kept:,} of {count_text(each.entities, 'entity', 'entities')}{f' ({gone})' if gone else ''}"
        terminal.report(f"  checkpoint {each.number} {'covers' if each.holds else 'does not hold; it named'} {text}")
    if len(partial) > COVERS_SHOWN_MAX:
        terminal.report(f"  and {len(partial) - COVERS_SHOWN_MAX:,} earlier ones; --json lists them")


@example(
    "interlock audit checkpoint --key /etc/orders/audit.pem --publish checkpoints.jsonl",
    "interlock audit checkpoint --key audit.pem --bus nats://127.0.0.1:4222/audit --every 60s",
)
@audit.command
@words("")
@click.option("--key", "key_file", required=True, metavar="FILE", help="The private key, made by `audit key`.")
@click.option("--publish", metavar="FILE", help="Append each checkpoint to this file; keep it on another machine.")
@click.option("--bus", metavar="URL", help="Publish each checkpoint on this bus.")
@click.option("--every", metavar="DURATION", help="Write one at this interval, such as 60s, until stopped.")
@common
@pass_terminal
def checkpoint(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    key_file: str,
    publish: str | None,
    bus: str | None,
    every: str | None,
) -> int:
    """A checkpoint signs the current state of the audit and of all journals. Later changes to them can then be
    detected.

    Several processes may use --every: one of them writes each checkpoint. Do not keep the key where the database is,
    and publish checkpoints to a place where users of the database cannot change them.
    """
    url, _ = split_words(words)
    if publish is not None and bus is not None:
        raise UsageError("--publish and --bus exclude each other", code="option.conflict", hint="run one process each")
    key = SigningKey.read(Path(key_file))
    every_ms = None if every is None else duration_ms(every, "--every")

    async def nowhere(signed: SignedCheckpoint) -> None:
        """Publish nothing."""

    async def work() -> int:
        async with AsyncExitStack() as stack:
            runtime = await stack.enter_async_context(open_for_writing(url))
            target = nowhere if publish is None else publish_to_file(Path(publish))
            if bus is not None:
                opened = open_bus_url(bus)
                stack.push_async_callback(opened.close)
                target = publish_to_bus(opened)
            writer = CheckpointWriter(runtime.store, runtime.clock, key, publish=target)
            stack.push_async_callback(writer.close)
            if every_ms is not None:
                await writer.run(every_ms=every_ms)
            return len(await writer.write_all())

    try:
        written = run(work())
    except (KeyboardInterrupt, asyncio.CancelledError):
        return exit_codes.OK
    terminal.report(f"{count_text(written, 'checkpoint', 'checkpoints')} written; public key {key.public.text}")
    return exit_codes.OK


@example("interlock audit key /etc/orders/audit.pem")
@audit.command("key")
@click.argument("file", metavar="FILE")
@common
@pass_terminal
def create_key(terminal: Terminal, file: str) -> int:
    """Writes a new private key to FILE, and prints its public key for `interlock audit verify --public-key`."""
    key = SigningKey.create(Path(file))
    terminal.data(f"{key.public.text}\n")
    terminal.message("keep the file secret, and note the public key: `audit verify --public-key` needs it")
    return exit_codes.OK


def _csv_line(fields: Iterable[str]) -> str:
    """Return a line; control characters are escaped, so that a line of the file is one attempt."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(_cell(escape_line(each)) for each in fields)
    return line.getvalue()


def _cell(text: str) -> str:
    """Return the text of a field; senders choose reasons, and a spreadsheet must not run one as a formula."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text
