"""Bundles that are cut, changed, newer or wrong, and what an import needs."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec
import pytest

import interlock
from interlock.assemble.charts import BoundChart, loads
from interlock.errors import ConflictError, NotFoundError, UnavailableError, UsageError
from interlock.runtime.charts.registry import ChartRegistry, child_entity
from interlock.runtime.charts.revisions import Revisions
from interlock.runtime.history import bundle as module
from interlock.runtime.history.bundle import BundleReader, BundleSummary, export_bundle, import_bundle
from interlock.runtime.runtime import Runtime
from interlock.stores.memory import MemoryStore
from tests.support.eventually import eventually
from tests.unit.runtime.scene import StillClock

CHART = """
interlock: 1
kind: job
context: {n: {type: integer, default: 0}}
states:
  a:
    on: {add: {actions: [{assign: count}]}, go: b, run: c}
  b: {after: {1h: a}}
  c: {invoke: {id: child, type: chart, src: {kind: part, states: {x: {}}}}}
"""


def job(step: int = 1) -> BoundChart:
    """The chart, with a function that counts."""
    chart = loads(CHART)
    chart.assign("count")(lambda context, event: {"n": context["n"] + step})
    return chart


def known(*charts: BoundChart, store: MemoryStore | None = None) -> Revisions:
    """The revisions of a store as a process with these charts sees them."""
    return Revisions(ChartRegistry(each.kernel for each in charts), store or MemoryStore(), StillClock())


async def job_lines(*events: str, **options: Any) -> list[bytes]:
    """The bundle of a job after some events."""
    store = MemoryStore()
    runtime = Runtime(store, ChartRegistry([job().kernel]), StillClock())
    await runtime.create("job/1")
    for each in events:
        await runtime.send("job/1", each)
    lines: list[bytes] = []
    await export_bundle(store, "job/1", known(job()), lines.append, now_ms=1, **options)
    return lines


async def imported(lines: list[bytes], *charts: BoundChart, store: MemoryStore | None = None) -> BundleSummary:
    """Import a bundle with these charts."""
    target = store or MemoryStore()
    return await import_bundle(target, BundleReader(lambda: lines), known(*charts, store=target), now_ms=1)


def sealed(lines: list[bytes]) -> list[bytes]:
    """The same lines with a last line that fits: a bundle that was changed on purpose."""
    body = lines[:-1]
    return [*body, msgspec.json.encode({"end": len(body), "hash": blake2b(b"".join(body), digest_size=16).hexdigest()})]


async def code_of(lines: list[bytes], step: int = 1) -> str:
    """The code with which an import fails, and writes nothing of a damaged file."""
    with pytest.raises(interlock.InterlockError) as error:
        await imported(lines, job(step))
    return error.value.code


async def test_what_was_exported_is_imported() -> None:
    lines, store = await job_lines("add", "add", "go"), MemoryStore()
    done = await imported(lines, job(), store=store)
    runtime = Runtime(store, ChartRegistry([job().kernel]), StillClock())

    assert ("job/1", ("job/1",), 4, 1, 0, 1) == (
        done.entity,
        done.entities,
        done.entries,
        done.definitions,
        done.present,
        done.held,
    )
    assert {"n": 2} == (await runtime.state("job/1")).context
    assert (await runtime.verify("job/1")).problem is None


@pytest.mark.parametrize("cut", range(1, 6))
async def test_a_bundle_that_was_cut_is_refused(cut: int) -> None:
    lines = await job_lines("add")
    assert "bundle.damaged" == await code_of(lines[:-cut])


async def test_a_byte_that_was_changed_is_found() -> None:
    lines = await job_lines("add")
    for number in range(1, len(lines)):
        changed = lines.copy()
        changed[number] = changed[number].replace(b"job", b"jab").replace(b'"end":', b'"end":1')
        if changed != lines:
            assert "bundle.damaged" == await code_of(changed), number


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (b"hello\n", "bundle.format"),
        (b'{"kind":"job"}\n', "bundle.format"),
        (b'{"bundle":2,"entity":"job/1"}\n', "bundle.newer"),
    ],
)
async def test_another_file_or_a_newer_bundle_is_named(first: bytes, code: str) -> None:
    assert code == await code_of([first, b"{}\n"])


async def test_an_empty_file_is_not_a_bundle() -> None:
    assert "bundle.format" == await code_of([])


async def test_a_changed_entry_does_not_replay() -> None:
    lines = await job_lines("add", "go")
    assert "bundle.divergence" == await code_of(sealed([each.replace(b'"to":["b"]', b'"to":["a"]') for each in lines]))
    assert "bundle.divergence" == await code_of(
        sealed([each.replace(b'"data":{"context":{}}', b'"data":{"context":{"n":5}}') for each in lines])
    )


@pytest.mark.parametrize("data", [b'{"context":"ab"}', b'{"parent":7}', b'"text"', b'{"context":[["n",5]]}'])
async def test_a_creation_with_invalid_data_is_refused(data: bytes) -> None:
    lines = sealed([each.replace(b'"data":{"context":{}}', b'"data":' + data) for each in await job_lines("add")])

    assert "journal.creation" == await code_of(lines)


async def test_a_bundle_that_is_not_utf8_is_damaged() -> None:
    lines = await job_lines("add")

    assert "bundle.damaged" == await code_of(sealed([*lines[:-2], b'{"journal":"job/\xff"}\n', lines[-1]]))


async def test_other_functions_are_found_by_the_digest() -> None:
    lines = await job_lines("add")
    assert "bundle.divergence" == await code_of(lines, step=2)


async def test_a_missing_function_is_named() -> None:
    lines = await job_lines("add")
    with pytest.raises(UnavailableError, match="count") as error:
        await imported(lines)
    assert "function.missing" == error.value.code


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"1h":"a"', b'"2h":"a"'),
        (b'{"interlock":1,', b'{"interlock":9,'),
        (b'"kind":"job","dialect"', b'"kind":"jib","dialect"'),
    ],
)
async def test_a_definition_that_is_another_one_is_refused(old: bytes, new: bytes) -> None:
    lines = await job_lines("add")
    changed = [each.replace(old, new) if each.startswith(b'{"definition"') else each for each in lines]

    assert changed != lines
    assert "bundle.definition" == await code_of(sealed(changed))


async def test_an_entry_without_its_definition_is_refused() -> None:
    lines = await job_lines("add")
    assert "bundle.definition" == await code_of(sealed([each for each in lines if b'"definition"' not in each]))


async def test_missing_and_odd_lines_are_damage() -> None:
    lines = await job_lines("add", "add", "go")
    assert "bundle.damaged" == await code_of(sealed([each for each in lines if b'"version":4,"event"' not in each]))
    assert "bundle.damaged" == await code_of(sealed([*lines[:2], b"{}\n", *lines[2:]]))
    assert "bundle.damaged" == await code_of(sealed([*lines[:2], b"[]\n", *lines[2:]]))


async def test_an_entity_that_changes_during_the_import_is_a_conflict() -> None:
    class Busy(MemoryStore):
        async def load(self, entity: str, *, key: str | None = None) -> Any:
            return None if key is None else await super().load(entity, key=key)

    lines, store = await job_lines("add"), Busy()
    await imported(lines, job(), store=store)
    with pytest.raises(ConflictError) as error:
        await imported(lines, job(), store=store)
    assert "bundle.exists" == error.value.code


async def test_what_cannot_be_exported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    runtime = Runtime(store, ChartRegistry([job().kernel]), StillClock())
    with pytest.raises(NotFoundError):
        await export_bundle(store, "job/1", known(job()), lambda line: None, now_ms=1)
    await runtime.create("job/1")
    with pytest.raises(UnavailableError) as missing:
        await export_bundle(store, "job/1", known(), lambda line: None, now_ms=1)
    assert "kind.unknown" == missing.value.code
    monkeypatch.setattr(module, "BUNDLE_LINE_BYTES_MAX", 20)
    with pytest.raises(UsageError) as size:
        await export_bundle(store, "job/1", known(job()), lambda line: None, now_ms=1)
    assert "bundle.size" == size.value.code


async def test_an_inline_child_is_part_of_the_bundle_unless_it_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with interlock.open("memory:", charts=[job()]) as runtime:
        await runtime.create("job/1")
        receipt = await runtime.send("job/1", "run")
        (effect,) = receipt.effects
        child = child_entity("part", "child", effect.key)

        async def is_created() -> bool:
            return await runtime.store.load(child) is not None

        await eventually(is_created)
        lines: list[bytes] = []
        found = await export_bundle(runtime.store, "job/1", known(job()), lines.append, now_ms=1)
        alone = await export_bundle(runtime.store, "job/1", known(job()), lambda line: None, now_ms=1, children=False)
        monkeypatch.setattr(module, "BUNDLE_ENTITIES_MAX", 1)
        with pytest.raises(UsageError) as size:
            await export_bundle(runtime.store, "job/1", known(job()), lambda line: None, now_ms=1)

    assert (("job/1", child), ("job/1",), "bundle.size") == (found.entities, alone.entities, size.value.code)
    done = await imported(lines, job())
    assert (("job/1", child), 2, 1) == (done.entities, done.definitions, done.held)
