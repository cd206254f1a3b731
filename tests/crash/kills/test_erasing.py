"""kill -9 between the pool of keys, the entries and the erasure: no entity without a key, no erasure half way."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.errors import NotFoundError
from interlock.ports.trust.data_keys import DataKey, DestroyedKey
from interlock.ports.work import WorkQuery
from interlock.trust.keyrings import FileKeyring
from tests.crash.kills import erasing
from tests.support.eventually import eventually
from tests.support.postgres_server import store_or_skip

SCRIPT = Path(erasing.__file__)
ROOT = SCRIPT.parents[3]
STORES = ("sqlite:///{}/shop.db", "file:{}/shop", "postgres")


@pytest.mark.parametrize("address", STORES, ids=("sqlite", "files", "postgres"))
async def test_an_erasure_that_was_begun_is_finished_and_every_entity_has_its_key(address: str, tmp_path: Path) -> None:
    url = store_or_skip() if address == "postgres" else address.format(tmp_path)
    FileKeyring.create(tmp_path / "keyring.json")
    keyring = f"file:{tmp_path / 'keyring.json'}"
    kills = killed(url, keyring)
    assert kills >= 12, "before and after each change of keys, journal and work"

    async with interlock.open(url, charts=[interlock.loads(erasing.MEMBER)], keyring=keyring) as runtime:
        assert runtime.vault is not None
        erased, living = 0, 0
        for number in range(kills + 1):
            entity = f"member/{number}"
            try:
                entries = await runtime.journal(entity)
            except NotFoundError:
                continue  # it was killed before the first entry
            found = entries[0].event.data["context"]["_personal"]
            if entries[-1].event.name == "_erase":
                erased += 1

                async def is_destroyed(kid: str = found) -> bool:
                    assert runtime.vault is not None
                    return isinstance(await runtime.vault.keys.find_key(kid), DestroyedKey)

                await eventually(is_destroyed, f"the key of {entity}")
                await eventually(partial(_has_no_work, runtime, entity), f"the work of {entity}")
            else:
                living += 1
                assert isinstance(await runtime.vault.keys.find_key(found), DataKey)
                assert (await runtime.state(entity)).context["email"] == erasing.EMAIL
            assert (await runtime.verify(entity)).problem is None

    assert (erased > 2, living > 2) == (True, True)


async def _has_no_work(runtime: Any, entity: str) -> bool:
    return not (await runtime.store.work.list_work(WorkQuery(entity=entity))).rows


def killed(address: str, keyring: str) -> int:
    """Return how many processes were killed before one finished."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, str(SCRIPT), address, keyring]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": paths}, timeout=900
    )
    kills, code = map(int, done.stdout.split())
    assert code == 0, done.stderr
    return kills
