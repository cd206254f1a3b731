"""Which keyring a runtime uses, and the vault that it opens with it.

Rule 1: a chart with personal data never runs without keys: `open` raises before anything is stepped.
Rule 2: without personal data and without a keyring there is no vault, and no module of it is imported.
Rule 3: keys that end with the process are only for stores that end with it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from interlock.errors import UsageError
from interlock.model.charts.chart import Chart
from interlock.model.charts.personal_plan import plan_of
from interlock.ports.trust.keyring import KEYRING_VARIABLE

if TYPE_CHECKING:
    from interlock.kernel.step import Kernel
    from interlock.ports.clock import Clock
    from interlock.ports.store import Store
    from interlock.ports.trust.keyring import Keyring
    from interlock.runtime.vault import PersonalVault

_log = logging.getLogger("interlock")


def has_personal_data(chart: Chart) -> bool:
    """Whether a chart, or one that is written inside it, has personal data."""
    return plan_of(chart) is not None or any(has_personal_data(each) for _, each in chart.inline)


async def open_vault(
    store: Store, kernels: Iterable[Kernel], keyring: Keyring | str | None, clock: Clock, *, is_lasting: bool
) -> PersonalVault | None:
    """Return the vault of a runtime; None if it needs none. `is_lasting`: the store outlives this process.

    Raises UsageError (`keyring.missing`, `store.data_keys`), and MissingExtraError without the extra `personal`.
    """
    kind = next((each.chart.kind for each in kernels if has_personal_data(each.chart)), None)
    given = keyring if keyring is not None else os.environ.get(KEYRING_VARIABLE) or None
    if kind is None and given is None:
        return None
    if store.data_keys is None:
        if kind is None:
            return None
        hint = "use memory:, file:, sqlite: or postgresql:"
        message = f"chart `{kind}` has personal data, and this store cannot keep data keys"
        raise UsageError(message, code="store.data_keys", hint=hint)
    from interlock.ports.threads import in_thread
    from interlock.runtime.vault import PersonalVault
    from interlock.trust.keyrings import ProcessKeyring, open_keyring
    from interlock.trust.sealing import check_ciphers

    check_ciphers()
    if isinstance(given, str):
        address = given
        found: Keyring = await in_thread(lambda: open_keyring(address))
    elif given is not None:
        found = given
    elif is_lasting:
        hint = f"create one with `interlock keyring init keyring.json`, and set {KEYRING_VARIABLE}=file:keyring.json"
        raise UsageError(f"chart `{kind}` has personal data, but no keyring is set", code="keyring.missing", hint=hint)
    else:
        _log.info("personal data is sealed with keys of this process", extra={"kind": kind})
        found = ProcessKeyring()
    if is_lasting and not found.is_durable:
        message = "this keyring ends with the process, and the store does not"
        raise UsageError(message, code="keyring.process", hint="use a keyring in a file")
    return PersonalVault(store.data_keys, found, clock)
