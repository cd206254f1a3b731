"""Replay recorded histories against the charts of this process: before a deployment, in a test.

Temporal's replayer compares commands: a changed guard that leads elsewhere with the same effects passes. So the answers
to the recorded Updates are computed again and compared, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from interlock.engines.temporal.host import Host, Hosting
from interlock.engines.temporal.wire import CONVERTER, SEND, Answer
from interlock.engines.temporal.workflow import InterlockWorkflow
from interlock.model.encoding.codec import encode

if TYPE_CHECKING:
    from typing import Any

    from interlock.kernel.step import Kernel

PROBLEM_CHARS_MAX = 500


class ReplayReport(Struct, frozen=True):
    """The result of a replay: the entity, the recorded answers that were compared, and the first problem, or None."""

    entity: str
    answers: int
    problem: str | None = None


async def replay_histories(
    histories: AsyncIterator[WorkflowHistory] | Iterable[WorkflowHistory], kernels: tuple[Kernel, ...]
) -> tuple[ReplayReport, ...]:
    """Return what a replay of each history gives with these charts."""
    if isinstance(histories, Iterable):
        return tuple([await _replay(each, kernels) for each in histories])
    return tuple([await _replay(each, kernels) async for each in histories])


async def _replay(history: WorkflowHistory, kernels: tuple[Kernel, ...]) -> ReplayReport:
    answers: dict[str, Answer] = {}
    recorded = _recorded_answers(history)
    with ThreadPoolExecutor(1, thread_name_prefix="interlock-replay") as threads:
        replayer = Replayer(
            workflows=[InterlockWorkflow],
            workflow_runner=UnsandboxedWorkflowRunner(),
            workflow_task_executor=threads,
            data_converter=CONVERTER,
            interceptors=[Hosting(Host(kernels, on_answer=answers.__setitem__))],
        )
        result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    if result.replay_failure is not None:
        return ReplayReport(history.workflow_id, len(answers), str(result.replay_failure)[:PROBLEM_CHARS_MAX])
    for update_id, before in recorded.items():
        now = answers.get(update_id)
        if now is None or encode(now) != encode(before):
            return ReplayReport(history.workflow_id, len(answers), _difference(update_id, before, now))
    return ReplayReport(history.workflow_id, len(recorded))


def _recorded_answers(history: WorkflowHistory) -> dict[str, Answer]:
    """Return the answers to the events of callers that a history has, by the id of the Update."""
    ids: dict[int, str] = {}
    found: dict[str, Answer] = {}
    for event in history.events:
        accepted = event.workflow_execution_update_accepted_event_attributes
        if accepted.accepted_request.input.name == SEND:
            ids[event.event_id] = accepted.accepted_request.meta.update_id
        completed: Any = event.workflow_execution_update_completed_event_attributes
        update_id = ids.get(completed.accepted_event_id)
        if update_id is not None and completed.outcome.HasField("success"):
            found[update_id] = msgspec.json.decode(completed.outcome.success.payloads[0].data, type=Answer)
    return found


def _difference(update_id: str, before: Answer, now: Answer | None) -> str:
    """Return how an answer differs, without payloads."""
    return f"the event with the key `{update_id}` {_shown(before)}; now it {_shown(now)}"


def _shown(answer: Answer | None) -> str:
    if answer is None:
        return "is not reached"
    if answer.receipt is None:
        return f"raised {'' if answer.error is None else answer.error.code}"
    snapshot = answer.receipt.snapshot
    states = "" if snapshot is None else f" in {', '.join(snapshot.configuration)}"
    return f"was {answer.receipt.outcome} at version {answer.receipt.version}{states}"
