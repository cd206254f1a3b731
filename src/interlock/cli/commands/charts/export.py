"""`interlock export`: alert rules of Prometheus and a dashboard of Grafana, made from charts."""

from __future__ import annotations

import shlex

import click

from interlock.cli import exit_codes
from interlock.cli.commands.charts.check import require_sound
from interlock.cli.commands.charts.convert import check_output, input_arguments, write_output
from interlock.cli.input import STDIN, read_source
from interlock.cli.options import common, example, format_option, output_option, pass_terminal, src_option
from interlock.cli.output.terminal import Terminal
from interlock.errors import UsageError
from interlock.model.charts.chart import Chart

_CHECK = click.option(
    "--check", "only_check", is_flag=True, help="Write nothing; exit code 1 if the file of -o is out of date."
)


@example(
    "interlock export prometheus-rules order.interlock.yaml -o order.rules.yml",
    "interlock export grafana order.interlock.yaml -o order.json",
)
@click.group(invoke_without_command=True)
@common
@click.pass_context
def export(context: click.Context) -> None:
    """The files are for other tools. Write them again when a chart changes; --check fails if they are out of date."""
    if context.invoked_subcommand is None:
        raise click.UsageError("missing command: prometheus-rules or grafana")


@example(
    "interlock export prometheus-rules order.interlock.yaml -o order.rules.yml",
    "interlock export prometheus-rules order.interlock.yaml parcel.interlock.yaml -o all.rules.yml --check",
)
@export.command("prometheus-rules")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@_CHECK
@output_option
@format_option
@src_option
@common
@pass_terminal
def prometheus_rules(
    terminal: Terminal,
    files: tuple[str, ...],
    *,
    only_check: bool,
    output: str | None,
    source_format: str | None,
    allow_src: bool,
) -> int:
    """Alerts on entities that are stuck, states that hardly any entity leaves, dead letters, messages that wait, and a
    missing exporter. The thresholds are the `expect` of states; a state without one raises no alert.
    """
    from interlock.observe.metrics.alert_rules import alert_rules, expected_states

    charts = [_chart(terminal, file, source_format, allow_src=allow_src) for file in files]
    for chart in charts:
        if chart.hidden is None and not expected_states(chart):
            message = f": no state of {chart.kind} has an `expect` with a duration, so none raises an alert"
            terminal.message(("warning", "yellow"), message)
    return _write(
        terminal,
        alert_rules(charts),
        output,
        [
            "prometheus-rules",
            *files,
            *input_arguments(source_format, allow_src=allow_src),
        ],
        only_check=only_check,
    )


@example("interlock export grafana order.interlock.yaml -o order.json")
@export.command
@click.argument("file", metavar="FILE")
@_CHECK
@output_option
@format_option
@src_option
@common
@pass_terminal
def grafana(
    terminal: Terminal,
    file: str,
    *,
    only_check: bool,
    output: str | None,
    source_format: str | None,
    allow_src: bool,
) -> int:
    """A dashboard of one kind: entities and time by state, events, effects, timers, work and dead letters.

    Import it into Grafana 10 or newer, and choose the data source there.
    """
    from interlock.observe.metrics.dashboard import dashboard

    chart = _chart(terminal, file, source_format, allow_src=allow_src)
    command = ["grafana", file, *input_arguments(source_format, allow_src=allow_src)]
    return _write(terminal, dashboard(chart), output, command, only_check=only_check)


def _chart(terminal: Terminal, file: str, source_format: str | None, *, allow_src: bool) -> Chart:
    """Return the chart of a file. One with hidden states has no metrics, and a warning says so."""
    _, chart = require_sound(read_source(file, source_format, allow_src=allow_src), terminal)
    if chart.hidden is not None:
        terminal.message(("warning", "yellow"), f": {chart.kind} has hidden states, so it has no metrics")
    return chart


def _write(terminal: Terminal, text: str, output: str | None, command: list[str], *, only_check: bool) -> int:
    if not only_check:
        write_output(terminal, text, output)
        return exit_codes.OK
    if output is None or output == STDIN:
        hint = f"interlock export {shlex.join(command)} -o FILE --check"
        raise UsageError("--check needs the file to compare", code="check.output", hint=hint)
    return check_output(terminal, text.encode(), output, ["interlock", "export", *command, "-o", output])
