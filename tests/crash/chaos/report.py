"""`make chaos`: orders and machines under all faults at the same time, on every store that processes can share.

Workers are killed or suspended, clocks are wrong, services refuse, hang and respond late, events are repeated and
delayed, and the message broker dies. Every store must pass the same checks. The last line is
`chaos: N entities, 0 stuck, 0 lost, 0 double effects, all sagas settled` when all is well; otherwise the findings are
printed before it, and the exit code is 1.

    make chaos               the long run, twenty minutes: 500 kills on each store
    make chaos KILLS=50      a short one
    make chaos SEED=7        another storm
"""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.crash.chaos.checker import Verdict
from tests.crash.chaos.post import Post
from tests.crash.chaos.storm import Outcome, storm
from tests.support.postgres_server import NoServerError, new_schema

KILLS = int(os.environ.get("KILLS") or 500)
SEED = int(os.environ.get("SEED") or 1)
KILLS_CONTROL = 3
SHOWN = (
    "asked again",
    "refused",
    "undone",
    "late",
    "cut after",
    "paused",
    "dismissed",
    "deaths of the broker",
    "called a person",
)


def main() -> int:
    """Run every storm once."""
    logging.disable(logging.CRITICAL)  # handlers fail on purpose here
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: all processes are ended
    total, failures = Verdict(), list[str]()
    print(
        f"{'store':<12}{'kills':>7}{'inside':>8}{'entities':>10}{'entries':>9}{'found':>7}{'seconds':>9}  what happened"
    )
    for store, address in _addresses().items():
        with tempfile.TemporaryDirectory(prefix="interlock-chaos-") as folder:
            found = _row(store, address, Path(folder), total)
        failures += [f"{store}: {each}" for each in found]
    with tempfile.TemporaryDirectory(prefix="interlock-chaos-") as folder:
        failures += _control(Path(folder))
    for each in failures[:50]:
        print(f"FAILED {each}")
    print(total.line())
    return 1 if failures else 0


def _addresses() -> dict[str, Callable[[Path], str]]:
    return {
        "sqlite": lambda folder: f"sqlite:///{folder}/chaos.db",
        "postgresql": lambda _: new_schema(),
        "files": lambda folder: f"file:{folder}/chaos",
    }


def _row(store: str, address: Callable[[Path], str], folder: Path, total: Verdict) -> list[str]:
    """Print the line of one store; return the findings."""
    print(f"{store:<12}", end="", flush=True)
    started = time.monotonic()
    try:
        outcome = _storm(address(folder), folder, KILLS, post=Post() if Post.is_possible() else None)
    except NoServerError as error:
        print(f"SKIPPED  no server here: {error}")
        return []
    verdict = outcome.verdict
    numbers = f"{outcome.kills:>7,}{outcome.inside:>8,}{verdict.entities:>10,}{verdict.entries:>9,}"
    story = _story(outcome.counts, verdict.messages)
    print(f"{numbers}{len(outcome.found()):>7}{time.monotonic() - started:>9.1f}  {story}")
    total.entities += verdict.entities
    total.stuck += verdict.stuck
    total.lost += verdict.lost
    total.doubles += verdict.doubles
    total.unsettled += verdict.unsettled
    return outcome.found()


def _control(folder: Path) -> list[str]:
    """Check that handlers which ignore their keys are found."""
    print(f"{'a control':<12}", end="", flush=True)
    outcome = _storm(f"sqlite:///{folder}/chaos.db", folder, KILLS_CONTROL, "ignores_key")
    print(f"{outcome.kills:>7}{'':>27}{len(outcome.found()):>7}{'':>9}  handlers that ignore their keys must be found")
    return [] if outcome.verdict.doubles else ["a control: handlers that ignore their keys were not found"]


def _storm(url: str, folder: Path, kills: int, fault: str = "", post: Post | None = None) -> Outcome:
    definitions = folder / "definitions"
    definitions.mkdir()
    return storm(url, definitions, kills=kills, seed=SEED, fault=fault, post=post)


def _story(counts: Counter[str], messages: int) -> str:
    text = f"{messages:,} messages" if Post.is_possible() else "NO BROKER, no message was sent"
    return ", ".join([text, *(f"{counts[word]:,} {word}" for word in SHOWN)])
