"""Everything that can be wrong with a chart once its names are resolved, and everything that is probably a mistake.

Rule 1: all findings at once: a check never stops another.
Rule 2: what follows from the graph of transitions is asked only when there is no error: it would mislead.
"""

from __future__ import annotations

from interlock.compiler.checks.data import check_content
from interlock.compiler.checks.effect_lints import lint_actions, lint_invokes, lint_sagas
from interlock.compiler.checks.effects import check_effects
from interlock.compiler.checks.events import check_events
from interlock.compiler.checks.graph import Graph
from interlock.compiler.checks.monotonic import check_monotonic
from interlock.compiler.checks.report import Review
from interlock.compiler.checks.sensitive import check_sensitive
from interlock.compiler.checks.state_lints import lint_names, lint_sizes, lint_waiting, lint_ways
from interlock.compiler.checks.states import check_states
from interlock.compiler.checks.targets import check_targets
from interlock.compiler.checks.transitions import (
    lint_choice,
    lint_completion,
    lint_guards,
    lint_loops,
    lint_regions,
    lint_wildcards,
)
from interlock.compiler.resolve import Names
from interlock.model.chart import Chart
from interlock.model.diagnostics import Findings
from interlock.model.document.document import Document


def check(chart: Chart, document: Document, names: Names, findings: Findings) -> None:
    """Adds every finding about a chart; `document` is what the author wrote, `names` what the chart was built from."""
    review = Review(chart, document, names, findings)
    graph = Graph(chart)
    check_states(review, graph)
    check_targets(review, graph)
    check_content(review)
    check_events(review)
    check_effects(review, graph)
    lint_sizes(review)
    lint_names(review, graph)
    lint_guards(review)
    lint_invokes(review, graph)
    lint_actions(review, graph)
    lint_waiting(review, graph)
    if not findings.failed:
        _check_graph(review, graph)


def _check_graph(review: Review, graph: Graph) -> None:
    reachable = graph.reachable()
    check_monotonic(review, graph, reachable)
    check_sensitive(review, graph)
    lint_ways(review, graph, reachable)
    lint_choice(review, graph)
    lint_loops(review, graph)
    lint_regions(review, graph)
    lint_wildcards(review, graph)
    lint_completion(review, graph)
    lint_sagas(review, graph)
