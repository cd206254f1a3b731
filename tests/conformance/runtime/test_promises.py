"""A chart that declares itself `compatible` with what it breaks is refused when a runtime is opened, on every store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import interlock
from interlock.errors import DefinitionError
from tests.conformance.runtime.test_upgrades import COMPATIBLE, GONE, NEW, OLD
from tests.support.postgres_server import store_or_skip

pytestmark = pytest.mark.conformance

BROKEN = GONE.replace("upgrade: safe", 'compatible: ">=1 <2"')
STORES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder}/x.db",
    "file": lambda folder: f"file://{folder}/x",
    "postgresql": lambda _: store_or_skip(),
}


@pytest.fixture(params=STORES)
def url(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """An empty store of each kind."""
    return STORES[request.param](tmp_path)


async def opened(url: str, *texts: str) -> None:
    """Open a runtime with these charts, and close it."""
    async with interlock.open(url, charts=[interlock.loads(each) for each in texts], work=False):
        pass


async def created(url: str, text: str, *events: str) -> None:
    """Create an entity, and send it events."""
    async with interlock.open(url, charts=[interlock.loads(text)], work=False) as runtime:
        await runtime.create("ticket/1")
        for event in events:
            (await runtime.send("ticket/1", event)).expect()


async def test_what_a_compatible_chart_breaks_is_named_when_it_is_opened(url: str) -> None:
    await created(url, OLD)
    with pytest.raises(DefinitionError) as alone:
        await opened(url, BROKEN)
    with pytest.raises(DefinitionError) as beside:
        await opened(url, OLD, BROKEN)

    for each in (alone, beside):
        assert {"compatible.broken"} == {found.code for found in each.value.diagnostics}
        assert any("state.removed paid" in found.message for found in each.value.diagnostics)
    await opened(url, OLD)  # what was refused changed nothing
    async with interlock.open(url, charts=[interlock.loads(OLD)], work=False) as runtime:
        assert 1 == (await runtime.state("ticket/1")).version


@pytest.mark.parametrize(
    "text",
    [
        COMPATIBLE,
        NEW,
        BROKEN.replace(">=1 <2", ">=2 <3"),  # another range
        GONE,  # `upgrade: safe` promises nothing: entities that cannot be carried stay
    ],
)
async def test_a_chart_that_keeps_what_it_declares_is_opened(url: str, text: str) -> None:
    await created(url, OLD)
    await opened(url, text)


async def test_a_revision_whose_entities_have_all_ended_cannot_be_broken(url: str) -> None:
    ending = OLD.replace("  paid: {on: {refunded: open}}", "  paid: {type: final}")
    await created(url, ending, "paid")
    await opened(url, BROKEN)


async def test_an_empty_store_is_opened(url: str) -> None:
    await opened(url, BROKEN)
