"""Living charts under kills: a rolling deployment, and the migration of every entity of a store.

    python -m tests.crash.evolve --entities 1000000 --postgres 200000 --kills 20 --deployment-kills 50

The last line is computed from what was read afterwards.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from tests.crash.migration import migration
from tests.crash.rolling import deployment
from tests.crash.storms import Sizes


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
    total = migration.run(Sizes(given.entities, given.postgres, given.clients, given.kills, given.seed))
    total.show("migration")
    is_clean = total.is_clean
    if given.deployment_kills:
        rolled = deployment.run(replace(deployment.SIZES, kills=given.deployment_kills, seed=given.seed))
        rolled.show("rolling deployment")
        is_clean = is_clean and rolled.is_clean
        total.add(rolled)
    print(total.line("evolve"))
    return 0 if is_clean else 1


if __name__ == "__main__":
    raise SystemExit(main())
