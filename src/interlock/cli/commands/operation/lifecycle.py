"""`interlock lifecycle`: what the processes of a named lifecycle do, and the drain that stops them together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from interlock.cli import exit_codes
from interlock.cli.options import common, duration_ms, example, json_option, pass_terminal
from interlock.cli.output.terminal import Terminal
from interlock.cli.output.values import count_text, json_text
from interlock.errors import InterlockError, UnavailableError

if TYPE_CHECKING:
    from interlock.shm.lifecycle.drain import CloseReport, Participant
    from interlock.shm.lifecycle.status import LifecycleStatus


@example("interlock lifecycle show", "interlock lifecycle drain checkout --timeout 1m")
@click.group(invoke_without_command=True)
@common
@click.pass_context
def lifecycle(context: click.Context) -> None:
    """A lifecycle in shared memory connects processes of one machine that stop together.

    `interlock run --lifecycle NAME`, `DrainMiddleware(app, name=NAME)` and `Lifecycle` of `interlock.shm` join one.
    """
    if context.invoked_subcommand is None:
        raise click.UsageError("missing command: drain or show")


@example("interlock lifecycle show", "interlock lifecycle show checkout --json")
@lifecycle.command
@click.argument("name", required=False)
@json_option
@common
@pass_terminal
def show(terminal: Terminal, name: str | None, *, as_json: bool) -> int:
    """Prints the phase of a lifecycle and its processes with their permits; without NAME, all lifecycles of this user.

    Nothing is joined or changed.
    """
    from interlock.shm.lifecycle.status import lifecycle_names, lifecycle_status  # not imported for `--help`

    if name is not None:
        status = lifecycle_status(name)
        if as_json:
            terminal.data(json_text(_status_json(status)))
        else:
            for line in _lines(status):
                terminal.report(line)
        return exit_codes.OK
    rows: list[dict[str, Any]] = []
    texts: list[str] = []
    for each in lifecycle_names():
        try:
            status = lifecycle_status(each)
        except InterlockError as error:  # of an earlier boot, or of another release
            rows.append({"name": each, "code": error.code, "error": str(error)})
            texts.append(f"{each}  {error}")
        else:
            rows.append(_status_json(status))
            texts.append(_summary(status))
    if as_json:
        terminal.data(json_text(rows))
    for text in () if as_json else texts or ["no lifecycles"]:
        terminal.report(text)
    return exit_codes.OK


@example("interlock lifecycle drain checkout", "interlock lifecycle drain checkout --timeout 1m")
@lifecycle.command
@click.argument("name")
@click.option("--timeout", metavar="DURATION", default="30s", show_default=True, help="How long to wait.")
@json_option
@common
@pass_terminal
def drain(terminal: Terminal, name: str, *, timeout: str, as_json: bool) -> int:
    """Refuses new work in all processes of a lifecycle, and waits until work in progress has ended.

    If the timeout expires first, the processes continue draining; the exit code is 7, and the output names who holds
    permits. The command may be interrupted and repeated.
    """
    from interlock.shm.lifecycle.asgi import drain_workers  # not imported for `--help`

    report = drain_workers(name, timeout=duration_ms(timeout, "--timeout") / 1000)
    if as_json:
        terminal.data(json_text(_report_json(name, report)))
    if not report.closed:
        raise _open_error(name, report)
    if not as_json:
        died = count_text(len(report.reclaimed), "process", "processes")
        terminal.report(f"{name} is closed" + (f"; {died} had died with permits" if report.reclaimed else ""))
    return exit_codes.OK


def _open_error(name: str, report: CloseReport) -> UnavailableError:
    if report.waits_for_cleanup:
        why = "every process with a cleanup has left, and only such a process can close it"
        hint = "start a process with a cleanup on this lifecycle"
    elif not report.still_inside:
        why = f"it is {report.phase.name}"
        hint = "a lifecycle that was never started does not drain" if report.phase == 0 else "repeat the command"
    else:
        why = ", ".join(_process_text(each) for each in report.still_inside)
        hint = "it goes on draining: repeat the command to wait, or end the processes"
    return UnavailableError(f"{name} is not closed: {why}", code="lifecycle.not_closed", hint=hint)


def _lines(status: LifecycleStatus) -> list[str]:
    living = [f"  slot {each.slot:<4} {_process_text(each)}" for each in status.participants]
    dead = [f"  slot {each.slot:<4} {_process_text(each)}, died: ignored by a drain" for each in status.died]
    return [_summary(status), *living, *dead]


def _summary(status: LifecycleStatus) -> str:
    processes = count_text(len(status.participants), "process", "processes")
    permits = count_text(status.permits, "permit", "permits")
    return f"{status.name}  {status.phase.name}  {processes}, {permits}"


def _process_text(process: Participant) -> str:
    return f"pid {process.pid}, {count_text(process.permits, 'permit', 'permits')}"


def _status_json(status: LifecycleStatus) -> dict[str, Any]:
    return {
        "name": status.name,
        "phase": status.phase.name,
        "slots": status.slots,
        "permits": status.permits,
        "requires_cleanup": status.requires_cleanup,
        "processes": [_process_json(each) for each in status.participants],
        "died": [_process_json(each) for each in status.died],
    }


def _report_json(name: str, report: CloseReport) -> dict[str, Any]:
    return {
        "name": name,
        "closed": report.closed,
        "phase": report.phase.name,
        "permits": report.permits,
        "processes": [_process_json(each) for each in report.still_inside],
        "died": [_process_json(each) for each in report.reclaimed],
        "waits_for_cleanup": report.waits_for_cleanup,
    }


def _process_json(process: Participant) -> dict[str, int]:
    return {"pid": process.pid, "slot": process.slot, "permits": process.permits}
