"""One changed byte of an audit is named, wherever it is. `make audit-bytes` does it with 100,000 entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.model.audit import AuditRow
from interlock.stores.files.audit import segment_name
from interlock.stores.files.store import FileStore
from interlock.trust.audit_chain import verify_chain
from tests.crash import audit_bytes

ROWS = 30


async def test_one_changed_byte_is_named(tmp_path: Path) -> None:
    assert [] == await audit_bytes.run(tmp_path, entries=400, positions=97)


@pytest.mark.parametrize("segment_bytes", [10**6, 900])
async def test_one_changed_byte_of_a_file_is_named(tmp_path: Path, segment_bytes: int) -> None:
    """Every byte of every segment in turn, also of the line that seals it."""
    store = FileStore(tmp_path / "x", segment_bytes_max=segment_bytes)
    for number in range(ROWS):
        await store.append_audit((AuditRow("door/1", "opened", "denied", "roles", number, actor=f"p{number}"),))
    folder = tmp_path / "x" / "audit"
    not_named, changed = [], 0
    last = max(each.name for each in folder.iterdir())
    for file in sorted(folder.iterdir()):
        file.chmod(0o600)
        data = file.read_bytes()
        for offset in range(0, len(data), 7):
            forged = bytearray(data)
            forged[offset] ^= 1
            file.write_bytes(forged)
            report = await verify_chain(store)
            first = int(file.name[6:26])
            row = first + data[:offset].count(b"\n")
            row -= data.splitlines()[row - first].startswith(b'{"seal"')  # it belongs to the row before
            changed += 1
            is_end = offset == len(data) - 1 and file.name == last  # without it the line looks unfinished
            if is_end if report.broken is None else (row <= report.broken <= row + 1 and report.damaged <= 2):
                continue
            not_named.append((file.name, offset, report))
        file.write_bytes(data)
    whole = await verify_chain(store)
    await store.close()

    assert [] == not_named
    assert (ROWS, None) == (whole.linked, whole.broken)
    assert changed > 500


async def test_a_segment_that_was_removed_is_named(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "x", segment_bytes_max=900)
    for number in range(ROWS):
        await store.append_audit((AuditRow("door/1", "opened", "denied", "roles", number, actor=f"p{number}"),))
    names = sorted(each.name for each in (tmp_path / "x" / "audit").iterdir())
    modes = {(tmp_path / "x" / "audit" / each).stat().st_mode & 0o777 for each in names[:-1]}
    (tmp_path / "x" / "audit" / names[1]).unlink()
    report = await verify_chain(store)
    await store.close()

    assert (names[0], {0o400}) == (segment_name(1), modes)
    assert (int(names[1][6:26]), "missing") == (report.broken, report.damage)
