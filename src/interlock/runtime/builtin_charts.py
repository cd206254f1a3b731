"""Charts of the package's own: what it keeps in a store beside the user's entities, as entities of its own kinds.

Rule 1: every runtime knows them, so that whatever holds such an entity can be shown, verified and archived like any
other; none lists them among its kinds, and no user's chart may have their names.
Rule 2: their events need the role `CONSOLE_ROLE`, which no chart of a user names: only the package sends them.
Rule 3: a later edition says that it is compatible with the former ones: jobs outlive releases.
See ADR 0027.
"""

from __future__ import annotations

from functools import cache

from interlock.errors import InternalError
from interlock.kernel.step import Kernel

JOB_KIND = "interlock-job"
"""The kind of jobs of the console: a bulk, or a check of everything."""

CONSOLE_ROLE = "interlock.console"

BUILTIN_KINDS = frozenset({JOB_KIND})

JOB = """
interlock: 1
kind: interlock-job
revision: 1.0.0
compatible: ">=1 <2"
description: A job of the console. Whoever runs it is its owner; what another one says of it is refused.
context:
  task: {type: object, required: true}
  owner: {type: string, required: true}
  noted_ms: {type: integer, required: true}
  progress: {type: object, default: {}}
  shown: {type: object, default: {}}
  page: {type: object, nullable: true}
  error: {type: string, nullable: true}
events:
  job.page: &told
    roles: [interlock.console]
    payload: {owner: {type: string, required: true}, progress: {type: object, required: true},
              page: {type: object, nullable: true}, shown: {type: object, nullable: true},
              error: {type: string, nullable: true}}
  job.done: *told
  job.failed: *told
  job.interrupted: *told
  job.paused: &asked {roles: [interlock.console]}
  job.cancelled: *asked
  job.resumed: {roles: [interlock.console], payload: {owner: {type: string, required: true}}}
initial: underway
states:
  underway:
    sensitive: true
    expect: {within: forever}
    on:
      job.page: {guard: &mine "= event.data.owner == context.owner", actions: [&note {assign: {
        noted_ms: "= event.time_ms",
        progress: "= event.data.progress",
        page: "= event.data.page if event.data.page != null else context.page",
        shown: "= event.data.shown if event.data.shown != null else context.shown",
        error: "= event.data.error"}}]}
      job.done: {guard: *mine, target: done, actions: [*note]}
      job.failed: {guard: *mine, target: failed, actions: [*note]}
      job.interrupted: {guard: *mine, target: interrupted, actions: [*note]}
      job.paused: {target: paused, actions: [&heard {assign: {noted_ms: "= event.time_ms"}}]}
      job.cancelled: {target: cancelled, actions: [*heard]}
      job.resumed: {actions: [&taken {assign: {noted_ms: "= event.time_ms", owner: "= event.data.owner"}}]}
  paused:
    sensitive: true
    expect: {within: forever}
    on: &resting
      job.resumed: {target: underway, actions: [*taken]}
      job.cancelled: {target: cancelled, actions: [*heard]}
  interrupted:
    sensitive: true
    expect: {within: forever}
    on: *resting
  done: {type: final, sensitive: true}
  failed: {type: final, sensitive: true}
  cancelled: {type: final, sensitive: true}
"""


def builtin_kernel(kind: str) -> Kernel | None:
    """The chart of an own kind; None for any other."""
    return _job() if kind == JOB_KIND else None


@cache
def _job() -> Kernel:
    # Imported when it is needed: a runtime that meets no job reads no YAML for it.
    from interlock.compiler.build import compile_document
    from interlock.definition.yaml.format import FORMAT

    reading = FORMAT.read(JOB, source=f"<{JOB_KIND}>")
    chart = None if reading.document is None else compile_document(reading.document).chart
    if chart is None:
        raise InternalError(f"the chart of `{JOB_KIND}` does not compile", code="own.chart")
    return Kernel(chart)
