"""Entities with long entries, much work or many children: responses are limited and lead to the rest."""

from pathlib import Path
from typing import Any

import interlock
from interlock.runtime.charts.registry import ChartRegistry
from interlock.runtime.runtime import Runtime
from interlock.web.api.entity import CHILDREN_MAX, WORK_MAX
from interlock.web.api.views import JOURNAL_BYTES_MAX
from tests.support.eventually import eventually
from tests.unit.web.consoles import make_user, open_console

LOUD = """
interlock: 1
kind: loud
revision: 1.0.0
context: {last: {type: integer, default: 0}}
events: {said: {payload: {text: {type: string, required: true}}}}
initial: open
states:
  open: {expect: {within: forever}, on: {said: {actions: [ACTIONS]}}}
"""

PARENT = """
interlock: 1
kind: parent
revision: 1.0.0
context: {items: {type: array, default: []}}
events: {begun: {}}
initial: idle
states:
  idle: {expect: {within: forever}, on: {begun: busy}}
  busy:
    type: parallel
    expect: {within: forever}
    states:
%s
"""

REGION = "      r%d: {initial: a, states: {a: {invoke: {id: i%d, type: chart, src: child}, expect: {within: forever}}}}"

CHILD = """
interlock: 1
kind: child
revision: 1.0.0
initial: waiting
states:
  waiting: {%sexpect: {within: forever}}
"""


async def test_journal_page_is_limited_in_bytes_and_paging_returns_every_entry() -> None:
    chart = interlock.loads(LOUD.replace("ACTIONS", '{assign: {last: "= len(event.data.text)"}}'))
    async with open_console(charts=(chart,)) as client:
        await client.runtime.create("loud/1")
        for number in range(2, 26):
            await client.runtime.send("loud/1", "said", {"text": chr(96 + number % 26) * 100_000})
        newest = await client.get("journal/loud/1?limit=100")
        oldest = await client.json("journal/loud/1?limit=100&after=0")
        seen: list[int] = []
        before = 26
        while before > 1:
            page = await client.json(f"journal/loud/1?before={before}&limit=100")
            seen = [*(each["version"] for each in page["entries"]), *seen]
            before = seen[0]

    found = [each["version"] for each in newest.json()["entries"]]
    assert len(newest.content) <= JOURNAL_BYTES_MAX + 1_000
    assert (found[0] > 1, found) == (True, list(range(found[0], 26)))
    assert list(range(1, 1 + len(oldest["entries"]))) == [each["version"] for each in oldest["entries"]]
    assert list(range(1, 26)) == seen


async def test_work_of_an_entity_is_limited_and_marked_as_incomplete(tmp_path: Path) -> None:
    chart = interlock.loads(LOUD.replace("ACTIONS", ", ".join(["tell"] * (WORK_MAX + 1))))
    async with open_console(f"sqlite:///{tmp_path}/o.db", charts=(chart,)) as client:
        await client.runtime.create("loud/1")
        none = await client.json("entity/loud/1")
        await client.runtime.send("loud/1", "said", {"text": "a"})
        page = await client.json("entity/loud/1")
        rest = await client.json("work?entity=loud/1&limit=200")

    assert (0, False) == (len(none["work"]), none["work_more"])
    assert (WORK_MAX, True, WORK_MAX + 1) == (len(page["work"]), page["work_more"], len(rest["rows"]))


def family(count: int, *, secret: str = "") -> tuple[Any, Any]:
    """Return the charts of a parent with this number of children."""
    regions = "\n".join(REGION % (number, number) for number in range(count))
    return interlock.loads(PARENT % regions), interlock.loads(CHILD % secret)


async def test_entity_lists_its_children_with_their_states() -> None:
    async with open_console(charts=family(2), work=True) as client:
        await client.runtime.create("parent/1")
        await client.runtime.send("parent/1", "begun")

        async def with_children() -> Any:
            page = await client.json("entity/parent/1")
            return page if len(page["children"]) == 2 else None

        page = await eventually(with_children)
        child = await client.json(f"entity/{page['children'][0]['entity']}")

    assert [("i0", ["waiting"]), ("i1", ["waiting"])] == [
        (each["invoke"], each["configuration"]) for each in page["children"]
    ]
    assert ("parent/1", ()) == (child["parent"], tuple(child["children"]))


async def test_children_of_an_entity_are_limited() -> None:
    async with open_console(charts=family(CHILDREN_MAX + 5)) as client:
        await client.runtime.create("parent/1")
        await client.runtime.send("parent/1", "begun")
        asked: list[str] = []
        real = client.runtime.state

        async def state(entity: str, **named: Any) -> Any:
            asked.append(entity)
            return await real(entity, **named)

        client.runtime.state = state  # type: ignore[method-assign]  # the real one is called by it
        page = await client.json("entity/parent/1")

    assert (CHILDREN_MAX + 5, []) == (len(page["invokes"]), page["children"])
    assert CHILDREN_MAX == sum(each.startswith("child/") for each in asked)


async def test_hidden_and_unrelated_entities_are_not_listed_as_children() -> None:
    hidden = family(1, secret="sensitive: true, ")
    async with open_console(charts=hidden, who=make_user(rights=("read",))) as client:
        await client.runtime.create("parent/1")
        await client.runtime.send("parent/1", "begun")
        unseen = await client.json("entity/parent/1")
    async with open_console(charts=family(1)) as client:
        await client.runtime.create("parent/1")
        await client.runtime.send("parent/1", "begun")
        asked: list[str] = []
        real = client.runtime.state

        async def state(entity: str, **named: Any) -> Any:
            asked.append(entity)
            return await real(entity, **named)

        client.runtime.state = state  # type: ignore[method-assign]  # the real one is called by it
        await client.json("entity/parent/1")
        stranger = next(each for each in asked if each.startswith("child/"))
        child = client.runtime.charts.for_new_entity("child")  # another process may not know who invokes it
        await Runtime(client.runtime.store, ChartRegistry([child]), client.runtime.clock).create(stranger)
        page = await client.json("entity/parent/1")

    assert ([], []) == (unseen["children"], page["children"])
