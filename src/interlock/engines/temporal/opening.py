"""Connect to a Temporal namespace, and run its entities in this process.

Rule 1: opening changes nothing in a namespace but the search attributes that it lacks, and not even those with
`migrate=off`.
Rule 2: one worker per kind, each with its own task queue: a process gets work only for kinds that it has.
Rule 3: workflows run outside Temporal's sandbox: the kernel is pure, and charts were checked when they were loaded. All
workflows of a process share one thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from interlock.engines.temporal.address import Address, parse_address
from interlock.errors import MissingExtraError, UnavailableError, UsageError
from interlock.ports.engine import EngineWorker
from interlock.ports.store import Store
from interlock.stores.registry import open_store as open_store_url
from interlock.stores.registry import without_migrations

try:
    import temporalio as _  # noqa: F401 - whether it is installed
except ImportError as error:
    raise MissingExtraError(
        "the address temporal: needs the Temporal SDK", code="extra.temporal", hint="pip install 'interlock[temporal]'"
    ) from error

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from interlock.engines.temporal.activities import EffectActivities, EntityActivities
from interlock.engines.temporal.host import Host, Hosting
from interlock.engines.temporal.search import KIND, REVISION, STATE, TAG
from interlock.engines.temporal.store import TemporalStore
from interlock.engines.temporal.wire import CONVERTER
from interlock.engines.temporal.workflow import InterlockWorkflow

_CACHED_MAX = 5_000
"""Workflows that a worker keeps in memory: one that it does not keep is restored from its history at its next event."""

_STICKY = timedelta(seconds=2)
"""How long the server waits for the worker that has a workflow in memory: the delay of an answer after a kill."""


async def open_store(url: str) -> Store:
    """Return the entities of a namespace. Raises UsageError, UnavailableError."""
    address = parse_address(url)
    try:
        client = await Client.connect(
            address.target,
            namespace=address.namespace,
            data_converter=CONVERTER,
            tls=address.tls,
            api_key=os.environ.get("TEMPORAL_API_KEY"),
        )
        await _prepare(client, address)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            hint = "create it: temporal operator namespace create"
            message = f"unknown Temporal namespace `{address.namespace}`"
            raise UsageError(message, code="engine.namespace", hint=hint) from error
        raise UnavailableError(f"Temporal refused the call: {error.message}", code="engine.refused") from error
    except RuntimeError as error:
        hint = "check the address, and that the server is running"
        message = f"no Temporal server answers at {address.target}"
        raise UnavailableError(message, code="engine.unreachable", hint=hint) from error
    mirror = None
    if address.journal is not None:
        mirror = await open_store_url(address.journal if address.migrate else without_migrations(address.journal))
    return TemporalStore(client, address, mirror, start_worker)


async def _prepare(client: Client, address: Address) -> None:
    """Add the search attributes that the namespace lacks."""
    needed = {
        KIND.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
        REVISION.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
        STATE.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
        TAG.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    }
    operator = client.operator_service
    found = await operator.list_search_attributes(ListSearchAttributesRequest(namespace=address.namespace))
    missing = {name: each for name, each in needed.items() if name not in found.custom_attributes}
    if not missing:
        return
    names = ", ".join(missing)
    hint = "add them: temporal operator search-attribute create; or open once without migrate=off"
    if not address.migrate:
        message = f"the namespace `{address.namespace}` lacks the search attributes {names}"
        raise UsageError(message, code="engine.attributes", hint=hint)
    try:
        await operator.add_search_attributes(
            AddSearchAttributesRequest(namespace=address.namespace, search_attributes=missing)
        )
    except RPCError as error:
        if error.status != RPCStatusCode.ALREADY_EXISTS:
            message = f"the search attributes {names} cannot be added to `{address.namespace}`: {error.message}"
            raise UsageError(message, code="engine.attributes", hint=hint) from error


async def start_worker(store: TemporalStore, given: EngineWorker) -> Callable[[], Awaitable[None]]:
    """Run the entities and effects of the charts of this process; return what stops that."""
    host, effects = Host(given.kernels), EffectActivities(given)
    entities = EntityActivities(store, host)
    threads = ThreadPoolExecutor(1, thread_name_prefix="interlock-temporal")
    lease = timedelta(milliseconds=given.lease_ms)
    workers = [
        Worker(
            store.client,
            task_queue=store.address.queue_of(kind),
            workflows=[InterlockWorkflow],
            activities=[effects.effect, entities.child, entities.deliver, entities.examine, entities.mirror],
            workflow_runner=UnsandboxedWorkflowRunner(),
            workflow_task_executor=threads,
            interceptors=[Hosting(host)],
            max_cached_workflows=_CACHED_MAX,
            sticky_queue_schedule_to_start_timeout=_STICKY,
            max_heartbeat_throttle_interval=lease / 3,
            default_heartbeat_throttle_interval=lease / 3,
            graceful_shutdown_timeout=timedelta(seconds=10),
        )
        for kind in sorted({each.chart.kind.partition(".")[0] for each in given.kernels})
    ]
    running = [asyncio.ensure_future(each.run()) for each in workers]

    async def stop() -> None:
        await asyncio.gather(*(each.shutdown() for each in workers))
        await asyncio.gather(*running, return_exceptions=True)
        await effects.close()
        threads.shutdown(wait=False)

    return stop
