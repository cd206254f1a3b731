"""All checks of a chart whose names are resolved, in order.

Rule 1: all diagnostics are reported together: a check never stops another.
Rule 2: checks on the graph of transitions run only if there is no error, because they would mislead.
"""

from __future__ import annotations

from interlock.compiler.checks.access import check_access
from interlock.compiler.checks.data import check_data
from interlock.compiler.checks.effects import check_effects, lint_actions, lint_invokes, lint_sagas
from interlock.compiler.checks.events import check_events
from interlock.compiler.checks.graph import Graph
from interlock.compiler.checks.monotonic import check_monotonic
from interlock.compiler.checks.personal import check_personal
from interlock.compiler.checks.report import CheckReport
from interlock.compiler.checks.sensitive import check_sensitive
from interlock.compiler.checks.states import check_states, lint_names, lint_reachability, lint_sizes, lint_waiting
from interlock.compiler.checks.transitions import (
    check_targets,
    lint_choice,
    lint_completion,
    lint_guards,
    lint_loops,
    lint_regions,
    lint_wildcards,
)
from interlock.compiler.resolve import NameResolver
from interlock.model.charts.chart import Chart
from interlock.model.diagnostics import Diagnostics
from interlock.model.document.document import Document


def run_checks(chart: Chart, document: Document, names: NameResolver, diagnostics: Diagnostics) -> bool:
    """Add every diagnostic about a chart; `document` is as the author wrote it, `names` has the states of sagas.

    Returns whether the hidden states of the chart, if any, are covered (`checks.sensitive`).
    """
    report = CheckReport(chart, document, names, diagnostics)
    graph = Graph(chart)
    check_states(report, graph)
    check_targets(report, graph)
    check_data(report)
    check_events(report, graph)
    check_access(report)
    check_personal(report)
    check_effects(report, graph)
    lint_sizes(report)
    lint_names(report, graph)
    lint_guards(report)
    lint_invokes(report, graph)
    lint_actions(report, graph)
    lint_waiting(report, graph)
    return not diagnostics.has_errors and _run_graph_checks(report, graph)


def _run_graph_checks(report: CheckReport, graph: Graph) -> bool:
    reachable = graph.reachable()
    check_monotonic(report, graph, reachable)
    is_covered = check_sensitive(report, graph)
    lint_reachability(report, graph, reachable)
    lint_choice(report, graph)
    lint_loops(report, graph)
    lint_regions(report, graph)
    lint_wildcards(report, graph)
    lint_completion(report, graph)
    lint_sagas(report, graph)
    return is_covered
