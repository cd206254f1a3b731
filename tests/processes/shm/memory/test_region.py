"""Regions: complete when visible, checked before they are mapped, never used in two modes."""

import errno
import gc
import os
import pickle
import stat
import struct
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest

from interlock.errors import (
    ConflictError,
    CorruptionError,
    DeniedError,
    InterlockError,
    NotFoundError,
    UnavailableError,
    UsageError,
)
from interlock.shm.memory import region as region_module
from interlock.shm.memory.file import HEADER, boot_id
from interlock.shm.memory.modes import MODES
from interlock.shm.memory.region import AREAS_MAX, SLOTS_MAX, MemoryRegion
from tests.processes.shm.processes import Child, Line, Work
from tests.processes.shm.queues import working_modes
from tests.support.descriptors import opened

Start = Callable[[Work], Child]


def write_bytes(path: Path, offset: int, data: bytes) -> None:
    """Write bytes into the file of a region."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_the_header_has_the_documented_layout(runtime_directory: Path, mode: str) -> None:
    """The layout is a format that other processes and versions read."""
    with MemoryRegion.create("checkout", slots=7, areas_bytes=1000, requires_cleanup=True) as region:
        raw = (runtime_directory / "checkout").read_bytes()
        magic, number, order, slots, flags, epoch, size, boot = struct.unpack_from("<8sBBHIQQ16s", raw)

        assert (b"ILSHM\0\0\1", MODES[region.mode], 1, 7, 1) == (magic, number, order, slots, flags)
        assert (region.epoch, len(raw), boot_id()) == (epoch, size, boot)
        assert HEADER.size == 48
        assert region.slot_line(0) == 128
        assert region.slot_line(6) == 128 + 6 * 64


def test_processes_that_attach_by_name_share_the_words(mode: str) -> None:
    with MemoryRegion.create("checkout") as made, MemoryRegion.attach("checkout") as attached:
        made.word("hits").store(41)
        attached.word("hits").add(1)

        assert 42 == made.word("hits").load()
        assert (made.epoch, made.slots, "checkout") == (attached.epoch, attached.slots, attached.name)


def test_a_region_without_a_name_is_shared_by_its_descriptor(shared: MemoryRegion) -> None:
    """The caller still owns the descriptor."""
    shared.word("hits").store(7)
    other = MemoryRegion.from_fd(shared.fd)
    other.close()

    assert 7 == MemoryRegion.from_fd(shared.fd).word("hits").load()
    assert shared.name is None


def test_a_spawned_process_attaches_by_name(child: Callable[[Work], Child], mode: str) -> None:
    with MemoryRegion.create("checkout") as region:

        def work(line: Line) -> None:
            with MemoryRegion.attach("checkout") as there:
                line.send(there.word("hits").add(5))

        started = child(work)

        assert 0 == started.receive()
        assert 0 == started.wait()
        assert 5 == region.word("hits").load()


def test_a_region_without_a_name_cannot_be_resized() -> None:
    """A truncated file would end every process that accesses it with SIGBUS."""
    with MemoryRegion.create() as region:
        size = os.fstat(region.fd).st_size
        for wrong in (0, size - 1, size + 1):
            with pytest.raises(PermissionError):
                os.ftruncate(region.fd, wrong)


@pytest.mark.parametrize("name", ["", "a/b", "/a", "../a", ".hidden", "-x", "x" * 101, "a\0b", "a b", "a\n", "ä"])
def test_a_name_is_never_a_path(name: str) -> None:
    """Names are file names in a private directory; anything else is refused before a file is touched."""
    calls: list[Callable[[str], object]] = [
        MemoryRegion.create,
        MemoryRegion.attach,
        MemoryRegion.open,
        MemoryRegion.unlink,
    ]
    for call in calls:
        with pytest.raises(UsageError) as caught:
            call(name)
        assert "region.name" == caught.value.code


def test_a_name_in_use_is_refused() -> None:
    """The existing region is unchanged."""
    with MemoryRegion.create("checkout") as region:
        region.word("hits").store(3)
        with pytest.raises(ConflictError) as caught:
            MemoryRegion.create("checkout")

        assert "region.exists" == caught.value.code
        assert 3 == MemoryRegion.attach("checkout").word("hits").load()


def test_an_unknown_name_is_not_found() -> None:
    """Attaching creates nothing."""
    for _ in range(2):
        with pytest.raises(NotFoundError) as caught:
            MemoryRegion.attach("checkout")
        assert "region.unknown" == caught.value.code


def test_creating_a_region_leaves_no_drafts(runtime_directory: Path) -> None:
    """Drafts are removed, also if the name was in use."""
    with MemoryRegion.create("checkout"):
        with pytest.raises(ConflictError):
            MemoryRegion.create("checkout")

        assert ["checkout"] == [path.name for path in runtime_directory.iterdir()]
        assert 0o600 == stat.S_IMODE((runtime_directory / "checkout").stat().st_mode)


@pytest.mark.parametrize(
    ("offset", "data", "error", "code"),
    [
        (0, b"X", CorruptionError, "region.magic"),
        (0, bytes(8), CorruptionError, "region.magic"),
        (7, b"\2", UsageError, "region.layout"),
        (8, b"\0", CorruptionError, "region.size"),
        (8, b"\4", CorruptionError, "region.size"),
        (9, b"\2", UsageError, "region.byte_order"),
        (10, b"\0\0", CorruptionError, "region.size"),
        (24, struct.pack("<Q", 1 << 40), CorruptionError, "region.size"),
        (32, bytes(16), NotFoundError, "region.boot"),
    ],
)
def test_a_damaged_header_is_refused(
    runtime_directory: Path, offset: int, data: bytes, error: type[InterlockError], code: str
) -> None:
    """Each field is checked before the file is mapped."""
    with MemoryRegion.create("checkout"):
        write_bytes(runtime_directory / "checkout", offset, data)
        with pytest.raises(error) as caught:
            MemoryRegion.attach("checkout")

        assert code == caught.value.code
        assert caught.value.hint


@pytest.mark.parametrize("change", [-4096, -1, 1])
def test_a_file_of_another_size_is_refused(runtime_directory: Path, change: int) -> None:
    """Truncated or extended: the header and the file differ."""
    MemoryRegion.create("checkout").close()
    path = runtime_directory / "checkout"
    os.truncate(path, path.stat().st_size + change)
    with pytest.raises(CorruptionError) as caught:
        MemoryRegion.attach("checkout")

    assert "region.size" == caught.value.code


@pytest.mark.parametrize("content", [b"", b"ILSHM", b"hello" * 100])
def test_a_file_that_is_not_a_region_is_refused(runtime_directory: Path, content: bytes) -> None:
    path = runtime_directory / "checkout"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(CorruptionError) as caught:
        MemoryRegion.attach("checkout")

    assert "region.magic" == caught.value.code


def test_a_region_that_other_users_can_write_is_refused(runtime_directory: Path) -> None:
    with MemoryRegion.create("checkout") as region:
        (runtime_directory / "checkout").chmod(0o660)
        with pytest.raises(DeniedError) as by_name:
            MemoryRegion.attach("checkout")
        with pytest.raises(DeniedError) as by_descriptor:
            MemoryRegion.from_fd(region.fd)

        assert "region.owner" == by_name.value.code == by_descriptor.value.code


@pytest.mark.skipif(os.geteuid() != 0, reason="NEEDS ROOT: only root can give a file to another user")
def test_a_region_of_another_user_is_refused(runtime_directory: Path) -> None:
    with MemoryRegion.create("checkout"):
        os.chown(runtime_directory / "checkout", 65534, -1)
        with pytest.raises(DeniedError) as caught:
            MemoryRegion.attach("checkout")

        assert "region.owner" == caught.value.code


def test_a_symbolic_link_is_refused(runtime_directory: Path, tmp_path: Path) -> None:
    with MemoryRegion.create("checkout"):
        (runtime_directory / "other").symlink_to(runtime_directory / "checkout")
        with pytest.raises(DeniedError):
            MemoryRegion.attach("other")


def test_a_directory_that_other_users_can_write_is_refused(runtime_directory: Path) -> None:
    """Names are safe only in a private directory."""
    runtime_directory.chmod(0o755)
    with pytest.raises(DeniedError) as caught:
        MemoryRegion.create("checkout")

    assert "region.directory" == caught.value.code


def test_a_directory_that_cannot_be_created_is_reported(
    runtime_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the directory."""
    monkeypatch.setenv("INTERLOCK_RUNTIME_DIR", str(runtime_directory / "no" / "such"))
    with pytest.raises(UnavailableError) as caught:
        MemoryRegion.create("checkout")

    assert "region.directory" == caught.value.code
    assert "INTERLOCK_RUNTIME_DIR" in str(caught.value)


def test_the_directory_of_the_user_is_created_when_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default a region is in a private directory in the user's runtime directory."""
    monkeypatch.delenv("INTERLOCK_RUNTIME_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with MemoryRegion.create("checkout"):
        assert (tmp_path / "interlock" / "checkout").exists()
        assert 0o700 == stat.S_IMODE((tmp_path / "interlock").stat().st_mode)


def test_descriptors_that_are_not_regions_are_refused(tmp_path: Path) -> None:
    """Pipes, closed descriptors and files without seals."""
    reading, writing = os.pipe()
    plain = os.memfd_create("plain", os.MFD_ALLOW_SEALING)
    os.ftruncate(plain, 65536)
    try:
        with pytest.raises(InterlockError):
            MemoryRegion.from_fd(reading)
        with pytest.raises(DeniedError) as caught:
            MemoryRegion.from_fd(plain)
        assert "region.unsealed" == caught.value.code
        for wrong in (-1, 999_999, 2**40):
            with pytest.raises(UsageError) as refused:
                MemoryRegion.from_fd(wrong)
            assert "region.descriptor" == refused.value.code
    finally:
        for descriptor in (reading, writing, plain):
            os.close(descriptor)


@pytest.mark.parametrize("slots", [0, -1, SLOTS_MAX + 1])
def test_the_number_of_slots_has_limits(slots: int) -> None:
    """The slot of a closer has twelve bits."""
    with pytest.raises(UsageError):
        MemoryRegion.create(slots=slots)


@pytest.mark.parametrize("areas_bytes", [0, -1, 1 << 60])
def test_the_space_for_areas_has_limits(areas_bytes: int) -> None:
    """An invalid size is refused before a file is created."""
    with pytest.raises(UsageError):
        MemoryRegion.create(areas_bytes=areas_bytes)


def test_the_largest_number_of_slots_works(mode: str) -> None:
    with MemoryRegion.create(slots=SLOTS_MAX) as region:
        region.words.store(region.slot_line(SLOTS_MAX - 1), 1)

        assert SLOTS_MAX - 1 == region.words.find_occupied(128, SLOTS_MAX, 0)
        assert SLOTS_MAX == region.words.find_occupied(128, SLOTS_MAX, SLOTS_MAX)


MIXED = [(one, two) for one, two in permutations(working_modes(), 2) if MODES[one] != MODES[two]]  # type: ignore[index]  # names of modes


@pytest.mark.parametrize(("made", "attached"), MIXED)
def test_a_region_is_used_in_one_mode_only(monkeypatch: pytest.MonkeyPatch, made: str, attached: str) -> None:
    """An atomic swap and a swap under a lock do not exclude each other."""
    monkeypatch.setenv("INTERLOCK_SHM", made)
    with MemoryRegion.create("checkout") as region:
        monkeypatch.setenv("INTERLOCK_SHM", attached)
        with pytest.raises(UsageError) as by_name:
            MemoryRegion.attach("checkout")
        with pytest.raises(UsageError) as by_descriptor:
            MemoryRegion.from_fd(region.fd)

        assert "region.mode" == by_name.value.code == by_descriptor.value.code


def test_an_area_is_the_same_for_all_processes(mode: str) -> None:
    """The first caller creates it with its content."""
    with MemoryRegion.create("checkout") as region, MemoryRegion.attach("checkout") as other:
        offset = region.area("box", 100, prepare=lambda at: region.words.store(at, 9))
        refused = other.area("box", 100, prepare=lambda at: other.words.store(at, 1))
        following = other.area("next", 8)

        assert offset == refused
        assert 9 == other.words.load(offset)
        assert 0 == offset % 64
        assert offset + 128 == following


def test_an_area_keeps_its_size() -> None:
    """Two programs with different layouts must not share an area."""
    with MemoryRegion.create() as region:
        region.area("box", 100)
        with pytest.raises(UsageError) as caught:
            region.area("box", 101)

        assert "region.area_size" == caught.value.code


def test_areas_have_limits() -> None:
    """Number, space and names."""
    with MemoryRegion.create(areas_bytes=4096) as region:
        for number in range(AREAS_MAX):
            region.area(f"box{number}", 8)
        for name, size, code in [
            ("more", 8, "region.full"),
            ("", 8, "region.area_name"),
            ("x" * 41, 8, "region.area_name"),
            ("a\0b", 8, "region.area_name"),
            ("big", 0, "region.size"),
        ]:
            with pytest.raises(UsageError) as caught:
                region.area(name, size)
            assert code == caught.value.code
    with MemoryRegion.create(areas_bytes=4096) as region, pytest.raises(UsageError):
        region.area("big", 5000)


def test_an_area_whose_creation_failed_is_created_again() -> None:
    """An unfinished area is not visible and is overwritten."""

    def failing(at: int) -> None:
        region.words.store(at, 123)
        raise RuntimeError

    with MemoryRegion.create() as region:
        with pytest.raises(RuntimeError):
            region.area("box", 64, prepare=failing)

        assert 0 == region.words.load(region.area("box", 64))


def test_areas_created_by_many_processes_do_not_overlap(child: Start, mode: str) -> None:
    with MemoryRegion.create("checkout") as region:
        names = [f"box{number}" for number in range(8)]

        def work(line: Line) -> None:
            there = MemoryRegion.attach("checkout")
            line.recv()
            line.send([there.area(name, 64) for name in names])

        started = [child(work) for _ in range(3)]
        for each in started:
            each.send()
        offsets = [each.receive() for each in started]

        assert offsets[0] == offsets[1] == offsets[2] == [region.area(name, 64) for name in names]
        assert 8 == len(set(offsets[0]))


def test_the_wait_for_a_stopped_process_that_adds_an_area_is_bounded(
    child: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region_module, "LAYOUT_SECONDS_MAX", 0.05)
    with MemoryRegion.create("checkout") as region:

        def work(line: Line) -> None:
            def stuck(_: int) -> None:
                line.send("inside")
                line.recv()

            MemoryRegion.attach("checkout").area("slow", 64, prepare=stuck)

        slow = child(work)
        slow.receive()
        with pytest.raises(UnavailableError) as caught:
            region.area("box", 64)
        assert "region.layout_held" == caught.value.code
        slow.kill()

        assert region.area("box", 64) > 0


def test_processes_that_open_a_name_together_get_one_region(child: Start, mode: str) -> None:
    """One creates it, the others attach."""

    def work(line: Line) -> None:
        line.recv()
        region = MemoryRegion.open("checkout", slots=3)
        line.send(region.epoch)
        line.recv()

    started = [child(work) for _ in range(4)]
    for each in started:
        each.send()
    epochs = {each.receive() for each in started}
    for each in started:
        each.send()

    assert 1 == len(epochs)
    assert {0} == {each.wait() for each in started}


def test_opening_replaces_a_region_of_an_earlier_boot(runtime_directory: Path) -> None:
    MemoryRegion.create("checkout").close()
    write_bytes(runtime_directory / "checkout", 32, bytes(16))
    with MemoryRegion.open("checkout") as region:
        assert region.epoch == MemoryRegion.attach("checkout").epoch


def test_a_with_block_removes_the_name_it_created(runtime_directory: Path) -> None:
    """Attached processes keep the memory."""
    with MemoryRegion.create("checkout") as region:
        with MemoryRegion.attach("checkout"):
            pass
        assert (runtime_directory / "checkout").exists()
        attached = MemoryRegion.attach("checkout")
        region.word("hits").store(5)

    assert [] == list(runtime_directory.iterdir())
    assert 5 == attached.word("hits").load()
    assert not MemoryRegion.unlink("checkout")


def test_a_with_block_does_not_remove_the_name_of_another_region() -> None:
    """Another region may have the name by then."""
    with MemoryRegion.create("checkout"):
        assert MemoryRegion.unlink("checkout")
        second = MemoryRegion.create("checkout")

    assert second.epoch == MemoryRegion.attach("checkout").epoch
    assert second.unlink_name()
    assert not second.unlink_name()


def test_a_forked_child_does_not_remove_its_parents_name(child: Start, runtime_directory: Path) -> None:
    with MemoryRegion.create("checkout") as region:

        def work(line: Line) -> None:
            region.__exit__()

        assert 0 == child(work).wait()
        assert (runtime_directory / "checkout").exists()


def test_a_named_region_is_pickled_as_its_name() -> None:
    """A region without a name is refused with a hint."""
    with MemoryRegion.create("checkout") as region, MemoryRegion.create() as unnamed:
        assert region.epoch == pickle.loads(pickle.dumps(region)).epoch
        with pytest.raises(UsageError) as caught:
            pickle.dumps(unnamed)
        assert "region.unnamed" == caught.value.code


def test_closing_a_region_keeps_memory_in_use_mapped(mode: str) -> None:
    region = MemoryRegion.create()
    word = region.word("hits", initial=1)
    region.close()
    region.close()

    assert 1 == word.add(1)
    assert 2 == word.load()
    with pytest.raises(UsageError) as caught:
        _ = region.fd
    assert "region.closed" == caught.value.code


def test_more_memory_than_the_machine_has_is_refused_without_a_system_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking the kernel for it would end other processes."""

    def asked(descriptor: int, offset: int, size: int) -> None:
        raise AssertionError("the kernel was asked")

    with MemoryRegion.create(areas_bytes=1 << 40) as region:
        monkeypatch.setattr(os, "posix_fallocate", asked)
        with pytest.raises(UnavailableError) as caught:
            region.area("huge", 1 << 39)

        assert "region.memory" == caught.value.code


def test_a_failed_mapping_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on the address space is reported, and no descriptor stays open."""

    def refused(descriptor: int, size: int) -> None:
        raise OSError(errno.ENOMEM, "no room")

    monkeypatch.setattr(region_module, "mmap", refused)
    before = opened()
    for name in (None, "checkout"):
        with pytest.raises(UnavailableError) as caught:
            MemoryRegion.create(name)
        assert "region.memory" == caught.value.code

    assert set() == opened() - before


def test_a_full_file_system_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is reserved when an area is created: later it would be SIGBUS. Nothing stays allocated."""

    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    with MemoryRegion.create() as region:
        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_fallocate", full)
            with pytest.raises(UnavailableError) as caught:
                region.area("box", 4096)
            with pytest.raises(UnavailableError):
                MemoryRegion.create("checkout")

        assert "region.memory" == caught.value.code
        assert region.area("other", 64) == region.area("other", 64)
        with pytest.raises(NotFoundError):
            MemoryRegion.attach("checkout")


def test_regions_leak_no_descriptors(mode: str) -> None:
    """Created, attached, refused, closed and unlinked."""
    MemoryRegion.create("warm").close()  # libraries are loaded once
    before = opened()
    for number in range(3):
        with MemoryRegion.create(f"r{number}") as region, MemoryRegion.attach(f"r{number}") as other:
            region.word("a").add(1)
            other.word("a").add(1)
            assert opened() - before
            with pytest.raises(ConflictError):
                MemoryRegion.create(f"r{number}")
        del region, other
    gc.collect()

    assert set() == opened() - before
