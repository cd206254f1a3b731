"""The server is killed under load and started again: every acknowledged event must be stored, once.

Rule 1: judged by the journals alone, read from the file once the second server has ended; no server is asked.
Rule 2: a receipt names an entity, a key and a version: that version of that journal must be an entry with that key.
Rule 3: an event in doubt is sent again under its key, so in the end everything that was sent is acknowledged; an entry
that no client sent is as wrong as one that is missing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

import interlock
from bench.http.load import Answer, Question, Scan, hot_entity, own_entity
from bench.http.servers import BEARER, CHART, Sending, prepared, started, store_url
from interlock.model.journal.entry import CREATE
from interlock.ports.store import PAGE_MAX


class Killed(msgspec.Struct, frozen=True, kw_only=True):
    """The events of a load during which the server was killed and started again.

    `in_doubt`: events without an answer when the connection broke; `in_doubt_kept` of them were stored, as the second
    send with the same key showed. `unsent`: entries that no client sent. `damaged`: entities whose journal fails the
    verification. `back_s`: from the first broken connection to the first receipt of a repeated event.
    """

    seconds: float
    acknowledged: int
    in_doubt: int
    in_doubt_kept: int
    lost: int
    doubled: int
    unsent: int
    damaged: int
    back_s: float | None


def killed(
    folder: Path,
    *,
    clients: int,
    seconds: float,
    answers: int | None = None,
    hot: int = 4,
    program: str = "interlock",
) -> Killed:
    """What is left of a load in the middle of which the server was killed; in an empty folder.

    It lasts so many seconds, or until so many answers. Another `program` shows that a bad server is found out.
    Raises PeerUnavailableError when a server does not start or the load meets an answer that it should not.
    """
    prepared(folder, clients, hot)
    first = started(folder, program=program)
    try:
        question = Question(
            port=first.port,
            server_pid=first.pid,
            bearer=BEARER,
            name="kill",
            clients=clients,
            seconds=seconds,
            answers=answers,
            hot=hot,
            resends=True,
        )
        sending = Sending(question)
        try:
            sending.half()
            first.kill()
            second = started(folder, first.port, program=program)
            try:
                answer = sending.answer()
            finally:
                second.end()
        finally:
            sending.end()
    finally:
        first.end()
    return judged(answer, *asyncio.run(_kept(folder, question)))


def judged(answer: Answer, journals: Mapping[str, Sequence[str]], damaged: int) -> Killed:
    """The result of every event, by the keys of the journals in the order of their entries."""
    acknowledged = {scan.key for scan in answer.scans}
    kept = Counter(key for keys in journals.values() for key in keys)
    return Killed(
        seconds=answer.wall_s,
        acknowledged=len(answer.scans),
        in_doubt=len(answer.doubts),
        in_doubt_kept=sum(scan.outcome == "duplicate" for scan in answer.scans),
        lost=sum(not _is_there(scan, journals) for scan in answer.scans),
        doubled=sum(count > 1 for count in kept.values()),
        unsent=len(kept.keys() - acknowledged),
        damaged=damaged,
        back_s=answer.back_s,
    )


def _is_there(scan: Scan, journals: Mapping[str, Sequence[str]]) -> bool:
    """Whether the journal contains the entry of a receipt. Entry 1 is the creation, which is not among the keys."""
    keys, place = journals.get(scan.entity, ()), scan.version - 2
    return 0 <= place < len(keys) and keys[place] == scan.key


async def _kept(folder: Path, question: Question) -> tuple[dict[str, list[str]], int]:
    """The keys of every journal, and how many entities are not proven: a bad link, an entry that replays otherwise."""
    journals: dict[str, list[str]] = {}
    async with interlock.open(store_url(folder), charts=[interlock.load(CHART)], work=False) as parcels:
        for entity in _entities(question):
            keys = journals[entity] = []
            after, entries = 0, await parcels.journal(entity, limit=PAGE_MAX)
            while entries:
                keys += [entry.key for entry in entries if entry.event.name != CREATE]
                after += len(entries)
                entries = await parcels.journal(entity, after=after, limit=PAGE_MAX)
        damaged = sum([proof.problem is not None async for proof in parcels.verify_all()])
    return journals, damaged


def _entities(question: Question) -> Iterable[str]:
    yield from (own_entity(each) for each in range(question.clients))
    yield from (hot_entity(each) for each in range(question.hot))
