"""Living charts under kills: a rolling deployment, and the migration of every entity of a store.

    python -m tests.crash.evolve --entities 1000000 --postgres 200000 --kills 20 --deployment-kills 50

The last line is computed from what was read afterwards.
"""

from __future__ import annotations

import argparse

from tests.crash.migration import storm
from tests.crash.rolling import deployment


def main() -> int:
    """Run both; return 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entities", type=int, default=1_000_000, help="entities on SQLite")
    parser.add_argument("--postgres", type=int, default=200_000, help="entities on PostgreSQL")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--kills", type=int, default=20, help="kills of each migration")
    parser.add_argument("--deployment-kills", type=int, default=50, help="kills of each rolling deployment; 0: none")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    moved = storm.run(storm.Sizes(given.entities, given.postgres, given.clients, given.kills, given.seed))
    _show("migration", moved.facts, moved.problems, moved.skipped)
    kills, lost, locked, wrong = moved.kills, moved.lost, moved.locked, moved.wrong_revision
    is_clean = moved.is_clean
    if given.deployment_kills:
        rolled = deployment.run(deployment.Sizes(kills=given.deployment_kills, seed=given.seed))
        _show("rolling deployment", rolled.facts, rolled.problems, rolled.skipped)
        kills, lost, locked = kills + rolled.kills, lost + rolled.lost + rolled.other, locked + rolled.locked
        wrong += rolled.wrong_revision
        is_clean = is_clean and rolled.is_clean
    print(f"evolve: {moved.migrated} migrated, {kills} kills, {lost} lost, {locked} locked, {wrong} wrong revision")
    return 0 if is_clean else 1


def _show(what: str, facts: dict[str, int], problems: list[str], skipped: list[str]) -> None:
    print(f"{what}: {', '.join(f'{count} {name}' for name, count in sorted(facts.items()))}")
    for each in skipped:
        print(f"SKIPPED {each}")
    for each in problems:
        print(f"  {each}")


if __name__ == "__main__":
    raise SystemExit(main())
