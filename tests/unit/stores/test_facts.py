"""Facts about a store: settings that every process of it follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.errors import CorruptionError, UsageError
from interlock.ports.store import Store
from interlock.ports.store_facts import StoreFacts
from interlock.stores.registry import open_store, store_opener

SHARED = ["sqlite:///{}/s.db", "file://{}/s"]


async def opened(url: str, folder: Path) -> tuple[Store, StoreFacts]:
    """A store, and its facts."""
    address = url.format(folder)
    store = await open_store(address, store_opener(address))
    assert store.facts is not None
    return store, store.facts


@pytest.mark.parametrize("url", ["memory:", *SHARED])
async def test_a_fact_is_set_replaced_and_removed(url: str, tmp_path: Path) -> None:
    store, facts = await opened(url, tmp_path)
    assert {} == dict(await facts.read_facts())
    await facts.save_fact("messages", "a")
    await facts.save_fact("other", "Grüße")
    await facts.save_fact("messages", "b")
    assert {"messages": "b", "other": "Grüße"} == dict(await facts.read_facts())
    await facts.save_fact("messages", None)
    await facts.save_fact("absent", None)
    assert {"other": "Grüße"} == dict(await facts.read_facts())
    await store.close()


@pytest.mark.parametrize("url", SHARED)
async def test_another_process_reads_a_fact(url: str, tmp_path: Path) -> None:
    first, one = await opened(url, tmp_path)
    second, other = await opened(url, tmp_path)
    await one.save_fact("messages", "a")
    assert {"messages": "a"} == dict(await other.read_facts())
    await first.close()
    await second.close()


async def test_tenants_have_their_own_facts(tmp_path: Path) -> None:
    first, one = await opened("sqlite:///{}/s.db?tenant=a", tmp_path)
    second, other = await opened("sqlite:///{}/s.db?tenant=b", tmp_path)
    await one.save_fact("messages", "a")
    assert {} == dict(await other.read_facts())
    await first.close()
    await second.close()


async def test_a_fact_that_a_database_cannot_store_is_refused(tmp_path: Path) -> None:
    store, facts = await opened(SHARED[0], tmp_path)
    with pytest.raises(UsageError):
        await facts.save_fact("messages", "\0")
    await store.close()


async def test_damaged_facts_are_reported(tmp_path: Path) -> None:
    store, facts = await opened(SHARED[1], tmp_path)
    (tmp_path / "s" / "facts.json").write_bytes(b"{")
    with pytest.raises(CorruptionError, check=lambda error: error.code == "store.facts"):
        await facts.read_facts()
    await store.close()
