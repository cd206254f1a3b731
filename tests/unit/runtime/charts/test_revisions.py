"""Which chart runs an entity: own charts, compatible ones, and definitions that the store has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import interlock
from interlock.assemble.charts import BoundChart, read_text
from interlock.compiler.build import compile_document
from interlock.definition.json.format import canonical_json
from interlock.errors import CorruptionError, NotFoundError, UnavailableError
from interlock.evolve.identity import behaviour_name
from interlock.expression.language import SAFE
from interlock.kernel.step import Kernel
from interlock.model.journal.entry import Receipt
from interlock.model.limits import REVISIONS_CACHED_MAX, REVISIONS_UNKNOWN_MS
from interlock.ports.definitions import Definition, Edition, StoredDefinition, body_digest, newest_edition
from interlock.ports.store import (
    Append,
    AppendResult,
    EntityQuery,
)
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.charts.revisions import compile_stored, make_definition
from interlock.runtime.history.replay import replay
from interlock.runtime.runtime import Runtime
from interlock.runtime.worker.worker import Worker
from interlock.stores.memory import MemoryStore
from interlock.testing.clock import VirtualClock
from tests.unit.runtime.scene import StillClock

LAMP = """
interlock: 1
kind: lamp
revision: 1.0.0
context: {presses: {type: integer, default: 0}}
initial: dark
states:
  dark: {on: {pressed: {target: bright, actions: [{assign: {presses: "= context.presses + 1"}}]}}}
  bright: {on: {pressed: dark}, after: {1m: dark}}
"""
NEWER = LAMP.replace("1.0.0", "2.0.0").replace("presses + 1", "presses + 10")
GUARDED = """
interlock: 1
kind: lamp
revision: 3.0.0
context: {presses: {type: integer, default: 0}}
initial: dark
states:
  dark: {on: {pressed: {target: bright, guard: may_shine, actions: [{assign: count_press}]}}}
  bright: {on: {pressed: dark}}
"""


def lamps(store: MemoryStore, *charts: str | BoundChart, clock: Any = None) -> Runtime:
    """A runtime with these charts."""
    bound = [interlock.loads(each) if isinstance(each, str) else each for each in charts]
    return Runtime(store, ChartRegistry([each.kernel for each in bound]), clock or StillClock())


def guarded(*, extra: str = "") -> BoundChart:
    """The chart whose guard and assign are Python functions."""
    chart = interlock.loads(GUARDED + extra)
    chart.guard("may_shine")(lambda context, event: True)
    chart.assign("count_press")(lambda context, event: {"presses": context["presses"] + 100})
    return chart


def presses(receipt: Receipt) -> int:
    """The counter after a step."""
    assert receipt.snapshot is not None
    count: int = receipt.snapshot.context["presses"]
    return count


async def test_old_and_new_entities_step_in_a_process_that_has_the_newest_chart_only() -> None:
    store = MemoryStore()
    await lamps(store, LAMP).create("lamp/old")
    newest = lamps(store, NEWER)
    await newest.create("lamp/new")

    assert (1, 10) == (
        presses(await newest.send("lamp/old", "pressed")),
        presses(await newest.send("lamp/new", "pressed")),
    )
    assert (1, 10) == ((await newest.state("lamp/old")).context["presses"], 10)
    assert [None, None] == [each.problem async for each in newest.verify_all()]


async def test_an_entry_has_the_name_of_the_behaviour_and_the_store_its_definition() -> None:
    store = MemoryStore()
    lamp = interlock.loads(LAMP)
    await lamps(store, lamp).create("lamp/1")
    (entry,) = [each.entry for each in await store.read("lamp/1")]
    (edition,) = await store.list_definitions()

    assert entry.revision.startswith("b1.")
    assert (entry.revision, "1.0.0", 1) == (edition.revision, edition.label, edition.sequence)
    assert 1 == len(edition.names)
    (found,) = await store.read_definitions("lamp", edition.names[0])
    assert found.body is not None
    assert interlock.loads(found.body, format="json").chart.revision == entry.revision


class _Watched(MemoryStore):
    """A store that records the order of writes, and fails to save definitions on request."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []
        self.saving: Callable[[], None] = lambda: None
        self.reads = 0

    async def append(self, append: Append) -> AppendResult:
        self.writes.append(f"{append.entity} {append.entry.version}")
        return await super().append(append)

    async def save_definition(self, definition: Definition, *, now_ms: int) -> Edition:
        self.saving()
        self.writes.append(f"definition {definition.label}")
        return await super().save_definition(definition, now_ms=now_ms)

    async def read_definitions(self, kind: str, name: str) -> tuple[StoredDefinition, ...]:
        self.reads += 1
        return await super().read_definitions(kind, name)


async def test_a_definition_is_saved_before_the_first_entry_and_once() -> None:
    store = _Watched()
    doors = lamps(store, LAMP, NEWER)
    await asyncio.gather(*(doors.create(f"lamp/{number}") for number in range(3)))
    await doors.send("lamp/1", "pressed")

    assert ["definition 1.0.0", "definition 2.0.0"] == store.writes[:2]
    assert ["lamp/0 1", "lamp/1 1", "lamp/1 2", "lamp/2 1"] == sorted(store.writes[2:])


async def test_nothing_is_appended_when_the_definition_cannot_be_saved() -> None:
    store = _Watched()
    doors = lamps(store, LAMP)

    def fail() -> None:
        raise UnavailableError("no space left", code="store.full")

    store.saving = fail
    with pytest.raises(UnavailableError, check=lambda error: error.code == "store.full"):
        await doors.create("lamp/1")
    assert [] == store.writes
    store.saving = lambda: None
    assert "applied" == (await doors.create("lamp/1")).outcome


async def test_a_process_that_only_steps_an_older_entity_registers_its_newest_chart() -> None:
    """In the order of their first write, which is the order in which entities may move."""
    store = MemoryStore()
    await lamps(store, LAMP).create("lamp/1")
    await lamps(store, NEWER).send("lamp/1", "pressed")

    assert [("1.0.0", 1), ("2.0.0", 2)] == [(each.label, each.sequence) for each in await store.list_definitions()]


async def test_reading_writes_nothing() -> None:
    store = _Watched()
    await lamps(store, LAMP).create("lamp/1")
    store.writes.clear()
    reader = lamps(store, NEWER)
    await reader.state("lamp/1")
    await reader.can("lamp/1")
    await reader.dry_run("lamp/1", "pressed")
    await reader.verify("lamp/1")

    assert [] == store.writes


async def test_a_process_without_charts_reads_everything_and_steps_what_needs_no_code() -> None:
    store = MemoryStore()
    await lamps(store, LAMP).create("lamp/1")
    reader = lamps(store)
    candidates = await reader.can("lamp/1")

    assert ["pressed"] == [each.event for each in candidates]
    assert (await reader.verify("lamp/1")).replayed
    assert 1 == presses(await reader.send("lamp/1", "pressed"))
    with pytest.raises(NotFoundError):
        await reader.create("lamp/2")


async def test_two_texts_of_one_behaviour_are_two_editions_and_lock_nothing() -> None:
    store = MemoryStore()
    described = LAMP.replace("kind: lamp", "kind: lamp\ndescription: A lamp with one button.")
    await lamps(store, LAMP).create("lamp/1")
    receipt = await lamps(store, described).send("lamp/1", "pressed")

    assert 1 == presses(receipt)
    editions = await store.list_definitions("lamp")
    assert ([1, 2], 1) == ([each.sequence for each in editions], len({each.revision for each in editions}))


# Names of earlier releases


def _legacy(text: str) -> Kernel:
    """The kernel of a chart as an earlier release named it: its label and the hash of its content."""
    document = interlock.loads(text).document
    chart = compile_document(document).chart
    assert chart is not None
    return Kernel(chart)


class _OldRelease(MemoryStore):
    """A store of an earlier release until `upgraded`."""

    definitions = None  # type: ignore[assignment]  # until it is upgraded

    def upgraded(self, *, statistics: bool = True) -> MemoryStore:
        """The same data in this release."""
        store = MemoryStore()
        store.__dict__.update(self.__dict__)
        if not statistics:
            store.statistics = None  # type: ignore[assignment]  # as in files
        return store


async def _old_store(*texts: str) -> _OldRelease:
    store = _OldRelease()
    for number, text in enumerate(texts):
        old = Runtime(store, ChartRegistry([_legacy(text)]), StillClock())
        await old.create(f"lamp/{number}")
    return store


async def test_a_store_with_older_names_keeps_them_for_an_unchanged_chart() -> None:
    """So that processes of the earlier release continue during the upgrade."""
    old = await _old_store(LAMP)
    store = old.upgraded()
    doors = lamps(store, LAMP, NEWER)
    for entity in ("lamp/0", "lamp/a"):
        if entity == "lamp/a":
            await doors.create(entity)
        await doors.send(entity, "pressed")
    names = {each.revision for each in (await store.find(EntityQuery(kind="lamp"))).rows}

    assert 1 == len([each for each in names if each.startswith("1.0.0+")])
    assert 1 == len([each for each in names if each.startswith("b1.")])  # of the new chart
    assert [None, None] == [each.problem async for each in doors.verify_all()]


async def test_a_store_that_cannot_count_writes_new_names_and_finds_the_old_ones() -> None:
    store = (await _old_store(LAMP)).upgraded(statistics=False)
    receipt = await lamps(store, LAMP).send("lamp/0", "pressed")

    assert receipt.snapshot is not None
    assert receipt.snapshot.revision.startswith("b1.")
    first, second = [each.entry.revision for each in await store.read("lamp/0")]
    assert (True, True) == (first.startswith("1.0.0+"), second.startswith("b1."))
    assert (await lamps(store).verify("lamp/0")).replayed  # the older name is an alias in the store


async def test_an_older_name_of_two_behaviours_is_ambiguous_without_a_chart() -> None:
    """Earlier releases named `roles: []` on a transition and no roles alike."""
    anyone = LAMP.replace("bright: {on: {pressed: dark}", "bright: {on: {pressed: {target: dark}}")
    nobody = LAMP.replace("bright: {on: {pressed: dark}", "bright: {on: {pressed: {target: dark, roles: []}}")
    assert _legacy(anyone).chart.revision == _legacy(nobody).chart.revision
    store = (await _old_store(anyone, nobody)).upgraded()
    await lamps(store, anyone).send("lamp/0", "pressed")
    await lamps(store, nobody).send("lamp/1", "pressed")
    reader = lamps(store)

    with pytest.raises(UnavailableError, check=lambda error: error.code == "revision.ambiguous"):
        await reader.send("lamp/0", "pressed")
    assert "applied" == (await lamps(store, anyone).send("lamp/0", "pressed")).outcome
    assert "denied" == (await lamps(store, nobody).send("lamp/1", "pressed")).outcome
    assert not (await reader.verify("lamp/0")).replayed


async def test_an_entity_of_an_old_store_without_its_file_says_what_to_do() -> None:
    store = (await _old_store(LAMP)).upgraded()
    newest = lamps(store, NEWER)
    with pytest.raises(UnavailableError) as raised:
        await newest.send("lamp/0", "pressed")

    assert "revision.unknown" == raised.value.code
    assert "1.0.0+" in raised.value.message
    assert "db definitions add" in (raised.value.hint or "")
    definition = make_definition(interlock.loads(LAMP).chart)
    assert definition is not None
    await store.save_definition(definition, now_ms=1)
    with pytest.raises(UnavailableError):  # for a moment it remembers that it is unknown
        await newest.send("lamp/0", "pressed")
    assert isinstance(newest.clock, StillClock)
    newest.clock.time_ms += REVISIONS_UNKNOWN_MS
    assert 1 == presses(await newest.send("lamp/0", "pressed"))


# Functions


async def test_a_stored_definition_uses_the_functions_of_the_charts_of_its_kind() -> None:
    store = MemoryStore()
    old, newest = guarded(), guarded(extra="  broken: {type: final}\n")
    newest.assign("count_press")(lambda context, event: {"presses": context["presses"] + 200})
    older = guarded(extra="  lost: {type: final}\n")
    await lamps(store, old).create("lamp/1")
    receipt = await lamps(store, older, newest).send("lamp/1", "pressed")

    assert 200 == presses(receipt)  # the newest chart's


@pytest.mark.parametrize("newest", [LAMP, NEWER])
async def test_code_is_deployed_before_the_chart_that_names_it_and_stays_after_the_last_one(newest: str) -> None:
    store = MemoryStore()
    await lamps(store, guarded()).create("lamp/1")
    other = interlock.loads(newest)
    other.guard("may_shine", other_revisions=True)(lambda context, event: True)
    other.assign("count_press", other_revisions=True)(lambda context, event: {"presses": 7})

    assert 7 == presses(await lamps(store, other).send("lamp/1", "pressed"))


async def test_a_missing_function_is_refused_before_the_step_and_nothing_is_lost() -> None:
    store = MemoryStore()
    await lamps(store, guarded()).create("lamp/1")
    other = lamps(store, LAMP)

    for call in (other.send, other.dry_run):
        with pytest.raises(UnavailableError) as raised:
            await call("lamp/1", "pressed")
        assert "function.missing" == raised.value.code
        assert "`may_shine`" in raised.value.message
    assert 1 == (await other.state("lamp/1")).version
    assert 100 == presses(await lamps(store, guarded()).send("lamp/1", "pressed"))


async def test_reading_needs_no_functions_and_says_where_replay_would() -> None:
    store = MemoryStore()
    author = lamps(store, guarded())
    for number in (1, 2):
        await author.create(f"lamp/{number}")
    await author.send("lamp/1", "pressed")
    reader = lamps(store)
    replayed, stopped = await reader.verify("lamp/2"), await reader.verify("lamp/1")

    assert (True, None) == (replayed.replayed, replayed.problem)
    assert (False, 2) == (stopped.replayed, stopped.entries)
    assert stopped.problem is not None
    assert ("function.missing", 2, False) == (
        stopped.problem.code,
        stopped.problem.version,
        stopped.problem.is_corruption,
    )
    assert 2 == (await reader.state("lamp/1")).version
    with pytest.raises(UnavailableError, check=lambda error: error.code == "function.missing"):
        await replay(reader.revisions, "lamp/1", None, await reader.journal("lamp/1"))
    assert 1 == (await reader.state("lamp/1", at=1)).version
    assert 1 == len(await reader.can("lamp/2"))


async def test_work_waits_for_a_process_with_the_functions() -> None:
    store, clock = MemoryStore(), VirtualClock()
    with_timer = interlock.loads(
        GUARDED.replace("bright: {", "bright: {after: {1m: {target: dark, guard: may_shine}}, ")
    )
    with_timer.guard("may_shine")(lambda context, event: True)
    with_timer.assign("count_press")(lambda context, event: {"presses": 1})
    author = lamps(store, with_timer, clock=clock)
    await author.create("lamp/1")
    await author.send("lamp/1", "pressed")
    worker = Worker(lamps(store, LAMP, clock=clock), {})
    await worker.start()
    for _ in range(30):
        await clock.advance(10_000)
    waiting = (await author.state("lamp/1")).configuration
    await worker.stop()
    worker = Worker(author, {})
    await worker.start()
    for _ in range(30):
        await clock.advance(10_000)
    await worker.stop()

    assert (("bright",), ("dark",)) == (waiting, (await author.state("lamp/1")).configuration)


# Damage, and definitions of another release


async def _with_stored(change: Callable[[dict[str, Any]], None], *, digest: bool = True) -> tuple[MemoryStore, Runtime]:
    """A store whose definition was changed, with a right digest or a wrong one, and a runtime without charts."""
    store = MemoryStore()
    await lamps(store, LAMP).create("lamp/1")
    ((place, edition),) = store._definitions._editions["lamp"].items()
    content = msgspec.json.decode(store._definitions._bodies[edition.digest])
    change(content)
    body = msgspec.json.encode(content)
    new = Definition(kind="lamp", revision=edition.revision, body=body)
    if digest:
        del store._definitions._editions["lamp"][place]
        await store.save_definition(new, now_ms=1)
        return store, lamps(store)

    class Damaged(MemoryStore):
        async def read_definitions(self, kind: str, name: str) -> tuple[StoredDefinition, ...]:
            return tuple(StoredDefinition(each.edition, None) for each in await super().read_definitions(kind, name))

    damaged = Damaged()
    damaged.__dict__.update(store.__dict__)
    return damaged, lamps(damaged)


def _other_behaviour(content: dict[str, Any]) -> None:
    content["states"]["bright"]["on"] = {}


def _newer_vocabulary(content: dict[str, Any]) -> None:
    content["interlock"] = 2


def _unknown_key(content: dict[str, Any]) -> None:
    content["states"]["bright"]["hovers"] = True


def _other_kind(content: dict[str, Any]) -> None:
    content["kind"] = "torch"


@pytest.mark.parametrize(
    ("change", "digest", "code"),
    [
        (lambda content: None, False, "definition.damaged"),
        (_other_behaviour, True, "definition.damaged"),
        (_other_kind, True, "definition.damaged"),
        (_newer_vocabulary, True, "definition.newer"),
        (_unknown_key, True, "definition.newer"),
    ],
)
async def test_a_definition_that_cannot_be_used_is_an_error_and_a_process_with_the_file_is_unaffected(
    change: Callable[[dict[str, Any]], None], digest: bool, code: str
) -> None:
    store, reader = await _with_stored(change, digest=digest)
    for call in (reader.send, reader.dry_run):
        with pytest.raises(UnavailableError) as raised:
            await call("lamp/1", "pressed")
        assert code == raised.value.code
    verification = await reader.verify("lamp/1")
    assert verification.problem is not None
    assert (code, False, 1) == (verification.problem.code, verification.problem.is_corruption, verification.entries)
    assert 1 == len(await reader.journal("lamp/1"))
    assert 1 == presses(await lamps(store, LAMP).send("lamp/1", "pressed"))


def test_a_definition_that_this_release_does_not_compile_is_of_a_newer_one() -> None:
    reading = read_text(LAMP.replace("pressed: dark", "pressed: nowhere"), format="yaml", source="<test>")
    assert reading.document is not None
    revision = behaviour_name(reading.document)
    body = canonical_json(reading.document)
    edition = Edition("lamp", revision, body_digest(body), 1, None, 0, revision)

    with pytest.raises(UnavailableError) as raised:
        compile_stored(StoredDefinition(edition, body), {}, {}, SAFE)
    assert "definition.newer" == raised.value.code
    assert "nowhere" in raised.value.message


async def test_a_snapshot_with_states_that_its_own_definition_lacks_is_damage() -> None:
    store = MemoryStore()
    await lamps(store, LAMP).create("lamp/1")
    stored = store._entities["lamp/1"]
    stored.snapshot = msgspec.structs.replace(stored.snapshot, configuration=("gone",))

    with pytest.raises(CorruptionError):
        await lamps(store, NEWER).send("lamp/1", "pressed")


# The cache


async def test_concurrent_first_uses_read_and_compile_once() -> None:
    store = _Watched()
    author = lamps(store, LAMP)
    for number in range(8):
        await author.create(f"lamp/{number}")
    store.reads = 0
    newest = lamps(store, NEWER)
    receipts = await asyncio.gather(*(newest.send(f"lamp/{number}", "pressed") for number in range(8)))

    assert [1] * 8 == [presses(each) for each in receipts]
    assert 1 == store.reads


async def test_a_cancelled_first_use_does_not_cancel_the_others() -> None:
    store = _Watched()
    await lamps(store, LAMP).create("lamp/1")
    newest = lamps(store, NEWER)
    first = asyncio.ensure_future(newest.can("lamp/1"))
    second = asyncio.ensure_future(newest.can("lamp/1"))
    for _ in range(100):  # until the first of them reads
        await asyncio.sleep(0)
        if store.reads:
            break
    first.cancel()

    assert 1 == len(await second)
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_old_revisions_leave_the_cache_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.runtime.charts.revisions.REVISIONS_CACHED_MAX", 2)
    assert REVISIONS_CACHED_MAX >= 2
    store = MemoryStore()
    for number in range(4):
        await lamps(store, LAMP.replace("presses + 1", f"presses + {number}")).create(f"lamp/{number}")
    newest = lamps(store, NEWER)

    for _ in range(2):
        for number in range(4):
            await newest.send(f"lamp/{number}", "pressed")
            await newest.send(f"lamp/{number}", "pressed")
    assert [2 * number for number in range(4)] == [
        (await newest.state(f"lamp/{number}")).context["presses"] for number in range(4)
    ]
    assert 2 >= len(newest.revisions._stored)


# Children


PARENT = """
interlock: 1
kind: trip
revision: 1.0.0
states:
  waiting:
    invoke: {id: leg, src: {kind: leg, initial: a, states: {a: {on: {go: b}}, b: {type: final}}}, onDone: done}
    on: {halt: done}
  done: {type: final}
"""


WITHOUT_CHILD = """
interlock: 1
kind: trip
revision: 2.0.0
states: {waiting: {on: {halt: done}}, done: {type: final}}
"""


async def test_an_inline_child_runs_on_the_chart_of_its_parents_revision() -> None:
    """The newest chart has no such child. Its definition is saved before its first entry, under its own kind."""
    store, clock = MemoryStore(), VirtualClock()
    await lamps(store, PARENT, clock=clock).create("trip/1")
    without = lamps(store, WITHOUT_CHILD, clock=clock)
    worker = Worker(without, {})
    await worker.start()
    await clock.advance(2_000)
    (child,) = (await store.find(EntityQuery(kind="leg"))).rows
    await without.send(child.entity, "go")
    await clock.advance(2_000)
    await worker.stop()

    assert ("done",) == (await without.state("trip/1")).configuration
    assert ["leg", "trip", "trip"] == [each.kind for each in await store.list_definitions()]
    assert [None, None] == [each.problem async for each in lamps(store).verify_all()]


# A text that the store has not seen, from an earlier release of the chart

STRICT = """
interlock: 1
kind: gate
revision: 2.0.0
upgrade: safe
events: {opened: {roles: [guard]}, closed: {roles: [guard]}}
initial: shut
states:
  shut: {on: {opened: wide}}
  wide: {on: {closed: shut}}
"""
LAX = STRICT.replace("2.0.0", "1.10.0").replace("{roles: [guard]}", "{}")
GUARD = {"id": "gus", "roles": ["guard"]}
VISITOR = {"id": "vera", "roles": ["visitor"]}


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (LAX, "denied"),
        (LAX.replace("1.10.0", "2.1.0"), "applied"),
        (LAX.replace("1.10.0", "2.0.0"), "applied"),
        (LAX.replace("1.10.0", "spring"), "applied"),
    ],
    ids=["lower", "higher", "same", "no-version"],
)
async def test_an_old_text_does_not_bring_its_roles_back(text: str, outcome: str) -> None:
    """Its label is lower than one that the store has; other texts that are new to the store are the newest."""
    store = MemoryStore()
    await lamps(store, STRICT).create("gate/1")
    served = lamps(store, text)
    await served.create("gate/2")
    await served.create("gate/3")

    found = [
        await each.send(f"gate/{number}", "opened", principal=VISITOR) for number, each in ((1, served), (2, served))
    ]
    found.append(await lamps(store, STRICT).send("gate/3", "opened", principal=VISITOR))

    assert [outcome] * 2 == [each.outcome for each in found[:2]]
    assert outcome == found[2].outcome


async def test_an_old_text_moves_no_entity_to_it() -> None:
    """And its own entities move to the newest chart when a process with that steps them."""
    store = MemoryStore()
    old = LAX.replace("wide: {on: {closed: shut}}", "wide: {on: {closed: shut, shut: shut}}")
    strict, served = lamps(store, STRICT), lamps(store, old)
    created = await strict.create("gate/1")
    await served.create("gate/2")
    stayed = await served.send("gate/1", "closed", principal=GUARD)
    moved = await strict.send("gate/2", "closed", principal=GUARD)

    assert created.snapshot is not None
    assert stayed.snapshot is not None
    assert moved.snapshot is not None
    assert created.snapshot.revision == stayed.snapshot.revision == moved.snapshot.revision


async def test_an_edition_that_was_promoted_again_is_the_newest() -> None:
    """It has a later number, and was first saved before the edition with the higher label."""
    first = Edition("gate", "b1.aaaaaaaaaaaaaaaaaaaa", "1", 1, "1.0", 1_000, "")
    second = Edition("gate", "b1.bbbbbbbbbbbbbbbbbbbb", "2", 2, "2.0", 2_000, "")
    again = msgspec.structs.replace(first, sequence=3)

    assert second is newest_edition((first, second))
    assert again is newest_edition((second, again))


@pytest.mark.parametrize(
    ("first", "texts", "warned"), [(STRICT, [LAX], 2), (LAX, [STRICT, LAX], 0)], ids=["old", "known"]
)
async def test_an_old_text_is_reported_at_open(
    first: str, texts: list[str], warned: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Each time, also once it is saved; but not an older chart that the store had before the newer one."""
    store = MemoryStore()
    await lamps(store, first).create("gate/0")
    await lamps(store, texts[0]).create("gate/1")
    caplog.clear()
    for _ in range(2):
        opened = lamps(store, texts[-1])
        await opened.revisions.warn_outdated()
        await opened.create(f"gate/{_ + 2}")

    assert warned == sum("outdated" in each.message for each in caplog.records)
