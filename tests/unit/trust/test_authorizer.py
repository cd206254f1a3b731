"""The public suite on the authorizers that the package has, and what the runtime makes of other ones."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.errors import DeniedError, NotFoundError, UsageError
from interlock.ports.trust.authorizer import ALLOWED, Allow, AuthorizationRequest, Decision, Deny
from interlock.testing.authorizer_suite import AUTHORIZER_CASES, CHART
from interlock.trust.authorization import ChartAuthorizer

CLERK = {"id": "ada", "kind": "user", "roles": ["clerk"]}


class Waiting:
    """An authorizer that asks a service."""

    is_async = True

    async def decide(self, request: AuthorizationRequest, /) -> Decision:
        """Return the decision of the chart, later."""
        return request.by_chart()


@pytest.mark.parametrize("case", AUTHORIZER_CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("authorizer", [ChartAuthorizer, Waiting])
async def test_our_authorizers_pass_the_suite(case: Any, authorizer: Any) -> None:
    await case(authorizer())


async def test_the_suite_finds_an_authorizer_that_is_wrong() -> None:
    class Forgetful(ChartAuthorizer):
        """Denies every second time."""

        count = 0

        def decide(self, request: AuthorizationRequest, /) -> Decision:
            self.count += 1
            return Deny("odd") if self.count % 2 else request.by_chart()

    class Closed(ChartAuthorizer):
        def decide(self, request: AuthorizationRequest, /) -> Decision:
            return Deny("")

    class Undeclared(Waiting):
        is_async = False

    first, second, third, _ = AUTHORIZER_CASES
    for case, wrong in ((first, Closed()), (second, Forgetful()), (third, Closed()), (first, Undeclared())):
        with pytest.raises(AssertionError):
            await case(wrong)


class Recorded:
    """Records each request, and denies some."""

    is_async = False

    def __init__(self, *denied: tuple[str, bool]) -> None:
        self.asked: list[tuple[str, str | None, int | None]] = []
        self.denied = denied

    def decide(self, request: AuthorizationRequest, /) -> Decision:
        """Return Deny for these actions without or with a snapshot."""
        seen = request.snapshot
        self.asked.append((request.action, request.entity, None if seen is None else seen.version))
        return Deny("mine") if (request.action, seen is not None) in self.denied else ALLOWED


def opened(authorizer: Any, url: str = "memory:") -> Any:
    return interlock.open(url, charts=[interlock.loads(CHART)], work=False, authorizer=authorizer)


async def test_it_decides_in_place_of_the_chart_before_and_after_the_load() -> None:
    asked = Recorded()
    async with opened(asked) as papers:
        await papers.create("paper/1", principal={"id": "eve"})
        assert "applied" == (await papers.send("paper/1", "paper.signed", principal={"id": "eve"})).outcome
        await papers.state("paper/1", reader={"id": "eve"})

    assert [
        ("create", "paper/1", None),
        ("send", "paper/1", None),
        ("send", "paper/1", 1),
        ("read", "paper/1", None),
        ("read", "paper/1", 2),
    ] == asked.asked


async def test_a_denial_before_the_load_has_no_version_and_one_after_it_has() -> None:
    for denied, version in ((("send", False), 0), (("send", True), 1)):
        async with opened(Recorded(denied)) as papers:
            await papers.create("paper/1")
            receipt = await papers.send("paper/1", "paper.signed", principal=CLERK)
            rehearsed = await papers.dry_run("paper/1", "paper.signed", principal=CLERK)
            assert ("denied", "mine", version) == (receipt.outcome, receipt.reason, receipt.version)
            assert ("denied", "mine", version) == (rehearsed.outcome, rehearsed.reason, rehearsed.version)
            assert 1 == (await papers.state("paper/1")).version


async def test_a_reader_that_it_denies_by_the_entity_finds_nothing() -> None:
    async with opened(Recorded(("read", True))) as papers:
        await papers.create("paper/1")
        with pytest.raises(NotFoundError):
            await papers.state("paper/1", reader=CLERK)
    async with opened(Recorded(("read", False))) as papers:
        with pytest.raises(DeniedError):
            await papers.list(interlock.EntityQuery(kind="paper"), reader=CLERK)


async def test_it_limits_lists_by_indexed_fields() -> None:
    class Own(Recorded):
        def decide(self, request: AuthorizationRequest, /) -> Decision:
            return Allow({"owner": str((request.principal or {}).get("id"))})

    text = CHART.replace("default: ada}", "default: ada, index: true}")
    async with interlock.open("memory:", charts=[interlock.loads(text)], authorizer=Own(), work=False) as papers:
        for number, owner in enumerate(("ada", "bob"), start=1):
            await papers.create(f"paper/{number}", {"owner": owner})
        page = await papers.list(interlock.EntityQuery(kind="paper"), reader={"id": "bob"})
        assert ["paper/2"] == [each.entity for each in page.rows]
        with pytest.raises(DeniedError):
            await papers.counts("paper", reader={"id": "bob"})


async def test_any_other_answer_is_an_error_and_nothing_is_written() -> None:
    class Wrong(Recorded):
        def decide(self, request: AuthorizationRequest, /) -> Any:
            return request.action != "send"

    async with opened(Wrong()) as papers:
        with pytest.raises(UsageError) as caught:
            await papers.create("paper/1", principal=CLERK)
        assert "authorizer.decision" == caught.value.code
        with pytest.raises(NotFoundError):
            await papers.state("paper/1")


async def test_an_error_of_it_allows_nothing() -> None:
    class Broken(Recorded):
        def decide(self, request: AuthorizationRequest, /) -> Decision:
            raise OSError(request.action)

    async with opened(Broken()) as papers:
        await papers.create("paper/1")
        with pytest.raises(OSError, match="send"):
            await papers.send("paper/1", "paper.signed", principal=CLERK)
        assert 1 == (await papers.state("paper/1")).version


def test_one_that_waits_cannot_decide_in_a_transaction(tmp_path: Path) -> None:
    url, charts = f"sqlite:///{tmp_path}/x.db", [interlock.loads(CHART)]
    with interlock.connect(url, charts=charts, authorizer=Waiting()) as papers:
        connection = sqlite3.connect(tmp_path / "x.db")
        with pytest.raises(UsageError) as caught:
            papers.join(connection)
        connection.close()
    assert "join.unsupported" == caught.value.code


def test_it_decides_in_a_transaction_of_the_caller(tmp_path: Path) -> None:
    url, charts, asked = f"sqlite:///{tmp_path}/x.db", [interlock.loads(CHART)], Recorded(("send", False))
    with interlock.connect(url, charts=charts, authorizer=asked) as papers:
        papers.create("paper/1")
        connection = sqlite3.connect(tmp_path / "x.db")
        with connection:
            receipt = papers.join(connection).send("paper/1", "paper.signed", principal=CLERK)
        connection.close()
    assert ("denied", "mine", 0) == (receipt.outcome, receipt.reason, receipt.version)


def test_an_object_without_the_method_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        opened(object())
    assert "authorizer.malformed" == caught.value.code
