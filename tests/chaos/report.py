"""`make chaos`: orders and machines under everything at once, on every store that many processes work on.

Workers are killed or stopped, clocks are wrong, services refuse, fall silent and answer late, events are repeated and
held back, and the broker that messages go to dies in between. Every store is held to the same. The last line
is `chaos: N entities, 0 stuck, 0 lost, 0 double effects, all sagas settled` when all is well; else what was found
stands before it, and the exit code is 1.

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

from tests.chaos.checker import Verdict
from tests.chaos.post import Post
from tests.chaos.storm import Outcome, storm
from tests.support.postgres_server import NoServerError, new_schema

KILLS = int(os.environ.get("KILLS") or 500)
SEED = int(os.environ.get("SEED") or 1)
KILLS_CONTROL = 3
TOLD = (
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
    """Runs every storm once."""
    logging.disable(logging.CRITICAL)  # handlers fail on purpose here, and say so
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: whatever was started is ended
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
    """One store: its line, and what was found."""
    print(f"{store:<12}", end="", flush=True)
    begun = time.monotonic()
    try:
        outcome = _stormed(address(folder), folder, KILLS, post=Post() if Post.is_possible() else None)
    except NoServerError as error:
        print(f"SKIPPED  no server here: {error}")
        return []
    verdict = outcome.verdict
    numbers = f"{outcome.kills:>7,}{outcome.inside:>8,}{verdict.entities:>10,}{verdict.entries:>9,}"
    story = _story(outcome.counts, verdict.messages)
    print(f"{numbers}{len(outcome.found()):>7}{time.monotonic() - begun:>9.1f}  {story}")
    total.entities += verdict.entities
    total.stuck += verdict.stuck
    total.lost += verdict.lost
    total.doubles += verdict.doubles
    total.unsettled += verdict.unsettled
    return outcome.found()


def _control(folder: Path) -> list[str]:
    """A crew whose handlers ignore their keys must be found."""
    print(f"{'a control':<12}", end="", flush=True)
    outcome = _stormed(f"sqlite:///{folder}/chaos.db", folder, KILLS_CONTROL, "ignores_key")
    print(f"{outcome.kills:>7}{'':>27}{len(outcome.found()):>7}{'':>9}  handlers that ignore their keys must be found")
    return [] if outcome.verdict.doubles else ["a control: handlers that ignore their keys were not found"]


def _stormed(url: str, folder: Path, kills: int, fault: str = "", post: Post | None = None) -> Outcome:
    definitions = folder / "definitions"
    definitions.mkdir()
    return storm(url, definitions, kills=kills, seed=SEED, fault=fault, post=post)


def _story(counts: Counter[str], messages: int) -> str:
    told = f"{messages:,} messages" if Post.is_possible() else "NO BROKER HERE, no message was sent"
    return ", ".join([told, *(f"{counts[word]:,} {word}" for word in TOLD)])
