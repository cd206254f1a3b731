"""Cases of the store suite for a store that keeps facts about itself (`ports.facts.Facts`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from interlock.errors import UsageError
from interlock.model.limits import FACT_BYTES_MAX
from interlock.ports.facts import Facts
from interlock.testing.store_suite.subject import StoreSubject, expect


@asynccontextmanager
async def _facts(subject: StoreSubject) -> AsyncIterator[Facts]:
    async with subject.opened() as store:
        if store.facts is None:
            raise AssertionError(f"a {type(store).__name__} keeps no facts")
        yield store.facts


async def a_fact_is_written_and_read(subject: StoreSubject) -> None:
    """By its name; other names have nothing."""
    async with _facts(subject) as store:
        expect(None, await store.read_fact("epoch"), "a fact that was never written")
        expect(True, await store.write_fact("epoch", "Grüße \U0001f600", expected=None))
        expect(("Grüße \U0001f600", None), (await store.read_fact("epoch"), await store.read_fact("epochs")))


async def a_fact_changes_only_from_the_expected_value(subject: StoreSubject) -> None:
    """It is created once, and swapped only by a writer that knows its value."""
    async with _facts(subject) as store:
        expect(False, await store.write_fact("epoch", "1", expected="0"), "a swap of a fact that does not exist")
        expect(True, await store.write_fact("epoch", "1", expected=None))
        expect(False, await store.write_fact("epoch", "2", expected=None), "a second creation")
        expect(False, await store.write_fact("epoch", "2", expected="0"), "a swap from another value")
        expect("1", await store.read_fact("epoch"))
        expect(True, await store.write_fact("epoch", "2", expected="1"))
        expect("2", await store.read_fact("epoch"))


async def one_of_several_writers_wins(subject: StoreSubject) -> None:
    """Each value is written once, by one of them."""
    async with _facts(subject) as store:
        for number in range(5):
            before = str(number) if number else None
            writes = [store.write_fact("epoch", str(number + 1), expected=before) for _ in range(8)]
            expect(1, sum(await asyncio.gather(*writes)), "writers that won")
        expect("5", await store.read_fact("epoch"))


async def invalid_facts_are_refused(subject: StoreSubject) -> None:
    """Names are ASCII in lower case; values have a limit."""
    async with _facts(subject) as store:
        long = "1" * (FACT_BYTES_MAX + 1)
        for name, value in (("", "1"), ("../x", "1"), ("Epoch", "1"), ("x" * 101, "1"), ("x", long)):
            try:
                await store.write_fact(name, value, expected=None)
            except UsageError:
                continue
            raise AssertionError(f"the fact {name[:20]!r} was accepted")


async def facts_outlive_the_process(subject: StoreSubject) -> None:
    """A store that is opened again has them."""
    async with _facts(subject) as store:
        await store.write_fact("epoch", "1", expected=None)
    async with _facts(subject) as store:
        expect("1", await store.read_fact("epoch"))


CASES = (
    a_fact_is_written_and_read,
    a_fact_changes_only_from_the_expected_value,
    one_of_several_writers_wins,
    invalid_facts_are_refused,
)
DURABLE = (facts_outlive_the_process,)
