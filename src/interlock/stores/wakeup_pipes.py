"""Wake-ups between the processes of one host: a named pipe for each worker, and a lock that it holds while it runs.

    <store>-wakeups/<boot id>-<tenant>/<owner>.lock    locked (shared) by the worker, and by processes of its pool
                                       <owner>.pipe    one byte per signal: the lanes that may have work
                                       <owner>.life    the worker keeps both ends open; its death is a hang-up

Rule 1: a sender never waits. It opens pipes without blocking: a full pipe has been rung already, and a pipe without a
reader belongs to a dead worker.
Rule 2: signals are coalesced: the first is sent immediately, those of the next milliseconds together.
Rule 3: a worker is dead when its lock is free. A process that finds this takes the lock, releases the claims of the
dead worker, and removes its files. If it dies meanwhile, the lock is free again.
Rule 4: a lock file gets its name only when it is locked, so a new worker never looks dead.
Rule 5: the folder belongs to one boot of one kernel: a lock says nothing about processes of other hosts.
Rule 6: a reader that follows the feed has the same files, under a name that starts with `feed-`. It gets only the
signals of entries, which workers do not get, and is not watched: a sender that finds it dead removes its files.
Rule 7: whatever the file system refuses, the store works without signals: the poll finds the work.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import platform
import stat
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from threading import Lock

from interlock.model.journal.work import LANES, Lane
from interlock.ports.clock import SystemClock
from interlock.ports.fork import after_fork
from interlock.ports.wakeups import FOLLOWER_SECONDS, OnWakeup

FOLDER_SUFFIX = "-wakeups"
"""The folder next to a store, `orders.db-wakeups`."""

RING_SECONDS = 0.005
"""The least time between two signals of a process: a worker that was just woken is looking already."""

WATCHED_MAX = 64
"""How many other workers a worker watches, the next ones by name: so each is watched by as many."""

SETTLED_SECONDS = 1.0
"""For how long after a change the folder is listed each time: two changes may have one time stamp."""

LOCK_TRIES, LOCK_TRY_SECONDS = 8, 0.01
"""How often, and after which wait, doubled each time, the lock of a dead worker is tried: the system closes the files
of a dead process one after the other."""

ALL_LANES = frozenset(LANES)

FOLLOWER = "feed-"
"""How the names of readers start that follow the feed."""

ENTRIES = 1 << 6
"""The bit of a signal that says: there are new entries."""

_JOINED = 1 << 7
"""The bit of a signal that says: a worker has joined, look whom to watch."""
_READ_BYTES = 4_096
_PIPE, _LIFE, _LOCK, _NEW = ".pipe", ".life", ".lock", ".new"
_BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")

ReleaseClaims = Callable[[str], Awaitable[int]]
"""Makes the claims of an owner due immediately, and returns how many there were."""

_log = logging.getLogger("interlock.stores")


def encode_lanes(lanes: Iterable[Lane]) -> int:
    """Return lanes as the bits of a number."""
    return sum(1 << LANES.index(each) for each in set(lanes))


def decode_lanes(bits: int) -> frozenset[Lane]:
    """Return the lanes that are the bits of a number; other bits are ignored."""
    return frozenset(each for number, each in enumerate(LANES) if bits >> number & 1)


class SignalSchedule:
    """Coalesces signals: the first is sent immediately, those of the next `seconds` together at their end.

    For one event loop.
    """

    def __init__(self, seconds: float, send: Callable[[int], None]) -> None:
        self._seconds = seconds
        self._send = send
        self._bits = 0
        self._sent = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def add(self, bits: int) -> None:
        """Send these bits, now or soon."""
        loop = asyncio.get_running_loop()
        self._bits |= bits
        if self._timer is not None:
            return
        wait = self._sent + self._seconds - loop.time()
        if wait <= 0:
            self._sent = loop.time()
            self.flush()
        else:
            self._timer = loop.call_later(wait, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._sent = asyncio.get_running_loop().time()
        self.flush()

    def flush(self) -> None:
        """Send what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        bits, self._bits = self._bits, 0
        if bits:
            self._send(bits)


class WakeupPipes:
    """The signals of one store and tenant, in one process."""

    def __init__(self, store: Path, tenant: str, release: ReleaseClaims) -> None:
        scope = blake2b(tenant.encode(), digest_size=6).hexdigest()
        self._above = Path(f"{store}{FOLDER_SUFFIX}")
        self.folder = self._above / f"{boot_id()}-{scope}"
        self._release = release
        self._process = os.getpid()
        self._members: dict[str, _Member] = {}
        self._owners: frozenset[str] = frozenset()
        self._changed_ns: int | None = None
        self._seen = 0.0
        self._is_settled = False
        self._is_closing = False
        self._has_followers = False
        self._looked = float("-inf")
        self._schedules: dict[asyncio.AbstractEventLoop, SignalSchedule] = {}
        self._burials: dict[str, asyncio.Task[None]] = {}
        self._guard = Lock()

    # Sending

    def ring(self, lanes: frozenset[Lane]) -> None:
        """Wake the workers of other processes."""
        self._ring(encode_lanes(lanes))

    def ring_entries(self) -> None:
        """Wake the readers of other processes that follow the feed, if there are any."""
        now = asyncio.get_running_loop().time()
        if now >= self._looked + FOLLOWER_SECONDS:
            self._looked = now
            self._has_followers = any(is_follower(each) and each not in self._members for each in self._list_owners())
        if self._has_followers:
            self._ring(ENTRIES)

    def _ring(self, bits: int) -> None:
        loop = asyncio.get_running_loop()
        schedule = self._schedules.get(loop)
        if schedule is None:
            with self._guard:
                for each in [each for each in self._schedules if each.is_closed()]:
                    del self._schedules[each]
                schedule = self._schedules[loop] = SignalSchedule(RING_SECONDS, self._send)
        schedule.add(bits)

    def _send(self, bits: int) -> None:
        for owner in self._list_owners():
            own_bits = bits & ENTRIES if is_follower(owner) else bits & ~ENTRIES
            if own_bits and owner not in self._members and not self._write(owner, bytes((own_bits,))):
                self._bury(owner)

    def _write(self, owner: str, byte: bytes) -> bool:
        """Write to the pipe of a worker. False when the worker is dead."""
        try:
            pipe = os.open(self.folder / f"{owner}{_PIPE}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            return error.errno != errno.ENXIO  # ENOENT: its files are being removed
        try:
            if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
                return True
            os.write(pipe, byte)
        except BlockingIOError:
            return True
        except OSError as error:
            return error.errno != errno.EPIPE
        finally:
            os.close(pipe)
        return True

    def _list_owners(self) -> frozenset[str]:
        """Return the workers that have a lock file. A listing is kept once the folder has not changed for a while."""
        try:
            changed_ns = self.folder.stat().st_mtime_ns
            now = asyncio.get_running_loop().time()
            if changed_ns != self._changed_ns:
                self._changed_ns, self._seen = changed_ns, now
                self._is_settled = False
            if not self._is_settled:
                locks = (each for each in self.folder.iterdir() if each.suffix == _LOCK)
                self._owners = frozenset(each.stem for each in locks)
                self._is_settled = now >= self._seen + SETTLED_SECONDS
        except OSError:
            self._owners, self._changed_ns = frozenset(), None
        return self._owners

    async def arrive(self) -> bool:
        """Whether signals arrive: always, where the folder can be used; otherwise there is the poll."""
        return True

    # Listening

    async def listen(self, owner: str, on_wakeup: OnWakeup) -> _Member | None:
        """Call a function at each signal, until closed; watch the other workers. None when the folder is unusable."""
        try:
            member = _Member(self, owner, on_wakeup)
        except OSError as error:
            facts = {"folder": str(self.folder), "error": error.strerror}
            _log.info("no wake-ups between processes; work of other processes is found by polling", extra=facts)
            return None
        self._members[owner] = member
        if not is_follower(owner):
            member.watch_others()
            self._ring(_JOINED)
        return member

    async def follow(self, on_entries: Callable[[], None]) -> _Member | None:
        """Call a function when another process writes entries, until closed. None when the folder is unusable."""
        return await self.listen(f"{FOLLOWER}{SystemClock().token()}", lambda _: on_entries())

    def remove(self, member: _Member) -> None:
        """Forget a member that has signed off."""
        self._members.pop(member.owner, None)
        for each in (self.folder, self._above):
            with suppress(OSError):  # other workers are still there
                each.rmdir()

    # Dead workers

    def is_member(self, owner: str) -> bool:
        """Whether it is a worker of this process."""
        return owner in self._members

    def owners(self) -> frozenset[str]:
        """Return the workers that have a lock file, listed now."""
        self._changed_ns = None
        return self._list_owners()

    def check(self, owner: str) -> None:
        """Release the claims of a worker if it is dead."""
        self._bury(owner)

    def _bury(self, owner: str) -> None:
        if owner in self._burials or owner in self._members:
            return
        task = asyncio.get_running_loop().create_task(self._release_dead(owner))
        self._burials[owner] = task
        task.add_done_callback(lambda _: self._burials.pop(owner, None))

    async def _release_dead(self, owner: str) -> None:
        lock = await self._lock_dead(owner)
        if lock is None:
            return
        try:
            try:
                released = await self._release(owner)
            except Exception as error:  # noqa: BLE001 - whatever a store raises: the leases expire, as on other hosts
                _log.warning("the work of a dead worker cannot be released", exc_info=error, extra={"owner": owner})
                return
            remove_files(self.folder, owner)
        finally:
            os.close(lock)
        if is_follower(owner):
            return
        _log.warning("a worker of this host has died", extra={"owner": owner, "claims_released": released})
        for member in tuple(self._members.values()):
            member.on_wakeup(ALL_LANES)
        if released:
            self._ring(encode_lanes(LANES))

    async def _lock_dead(self, owner: str) -> int | None:
        """Return the lock of a worker that is dead; None when it runs, or another process has removed it."""
        path = self.folder / f"{owner}{_LOCK}"
        for number in range(LOCK_TRIES):
            if self._is_closing:
                return None
            try:
                lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:
                return None
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_same_file(lock, path):
                    return lock
            except OSError:  # held: by the worker, or by a process that releases its claims
                pass
            os.close(lock)
            await asyncio.sleep(LOCK_TRY_SECONDS * 2**number)
        return None

    async def close(self) -> None:
        """Send what waits, and finish what is in progress."""
        if os.getpid() != self._process:
            return  # everything belongs to the process that was forked
        self._is_closing = True
        schedule = self._schedules.pop(asyncio.get_running_loop(), None)
        if schedule is not None:
            schedule.flush()
        for member in tuple(self._members.values()):
            await member.close()
        if self._burials:
            await asyncio.gather(*self._burials.values(), return_exceptions=True)


class _Member:
    """One worker of this process: its files, and the workers that it watches."""

    def __init__(self, pipes: WakeupPipes, owner: str, on_wakeup: OnWakeup) -> None:
        self.owner = owner
        self.on_wakeup = on_wakeup
        self._pipes = pipes
        self._loop = asyncio.get_running_loop()
        self._files: list[int] = []
        self._watched: dict[str, int] = {}
        folder = pipes.folder
        make_private_folder(folder.parent)
        make_private_folder(folder)
        try:
            # The lock is opened first: when a process dies, its files are closed in the order of their numbers, mostly.
            new = folder / f"{owner}{_NEW}"
            self._lock = self._open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR)
            fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            for suffix in (_PIPE, _LIFE):
                os.mkfifo(folder / f"{owner}{suffix}", 0o600)
            self._pipe = self._open(folder / f"{owner}{_PIPE}", os.O_RDWR | os.O_NONBLOCK)
            self._open(folder / f"{owner}{_LIFE}", os.O_RDWR | os.O_NONBLOCK)
            new.rename(folder / f"{owner}{_LOCK}")
        except BaseException:
            self._close_files()
            remove_files(folder, owner)
            raise
        after_fork(self, _Member._close_files)
        self._loop.add_reader(self._pipe, self._on_signal)

    def _open(self, path: Path, flags: int) -> int:
        file = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._files.append(file)
        return file

    @property
    def held_file(self) -> str | None:
        """The file that is locked while the worker runs."""
        return str(self._pipes.folder / f"{self.owner}{_LOCK}")

    def _on_signal(self) -> None:
        bits = 0
        with suppress(BlockingIOError):
            for each in os.read(self._pipe, _READ_BYTES):
                bits |= each
        if bits & _JOINED:
            self.watch_others()
        lanes = decode_lanes(bits)
        if lanes or bits & ENTRIES:
            self.on_wakeup(lanes)

    # The other workers

    def watch_others(self) -> None:
        """Watch the workers that follow this one by name, and release the claims of those that are dead already."""
        owners = self._pipes.owners()
        others = sorted(each for each in owners if not self._pipes.is_member(each) and not is_follower(each))
        following = [*(each for each in others if each > self.owner), *(each for each in others if each < self.owner)]
        chosen = following[:WATCHED_MAX]
        for owner in set(self._watched) - set(chosen):
            self._stop_watching(owner)
        for owner in chosen:
            if owner not in self._watched and not self._watch(owner):
                self._pipes.check(owner)

    def _watch(self, owner: str) -> bool:
        """Watch a worker; False when it may be dead. Its end is seen only if it lived when the pipe was opened."""
        folder = self._pipes.folder
        try:
            life = os.open(folder / f"{owner}{_LIFE}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        if not is_held(folder / f"{owner}{_LOCK}"):
            os.close(life)
            return False
        self._watched[owner] = life
        self._loop.add_reader(life, self._on_hang_up, owner)
        return True

    def _on_hang_up(self, owner: str) -> None:
        self._stop_watching(owner)
        self._pipes.check(owner)

    def _stop_watching(self, owner: str) -> None:
        life = self._watched.pop(owner)
        self._loop.remove_reader(life)
        os.close(life)

    async def close(self) -> None:
        """Sign off: remove the files while they are locked, so that no process considers this worker dead."""
        if not self._files:
            return
        for owner in tuple(self._watched):
            self._stop_watching(owner)
        self._loop.remove_reader(self._pipe)
        remove_files(self._pipes.folder, self.owner)
        self._close_files()
        self._pipes.remove(self)

    def _close_files(self) -> None:
        """Close the files: in a forked child only its copies, which do not release the lock of the parent."""
        files, self._files = self._files, []
        for each in (*files, *self._watched.values()):
            with suppress(OSError):
                os.close(each)
        self._watched = {}


def is_follower(owner: str) -> bool:
    """Whether this is the name of a reader that follows the feed, and not of a worker."""
    return owner.startswith(FOLLOWER)


@contextmanager
def hold_worker_lock(path: str | None) -> Iterator[None]:
    """Hold the lock of a worker for a block, in another process that runs its handlers, if it is still there."""
    files: list[int] = []
    try:
        if path is not None:
            with suppress(OSError):
                lock = Path(path)
                files.append(os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))
                fcntl.flock(files[0], fcntl.LOCK_SH | fcntl.LOCK_NB)
                files.append(os.open(lock.with_suffix(_LIFE), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW))
        yield
    finally:
        for each in files:
            os.close(each)


def make_private_folder(folder: Path) -> None:
    """Create a folder for this user alone. Raises OSError when it exists and is open to others: it may be a trap."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "the folder belongs to others", str(folder))


def is_held(path: Path) -> bool:
    """Whether a process holds the lock of a file."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def is_same_file(file: int, path: Path) -> bool:
    """Whether a path still leads to an open file."""
    try:
        found, named = os.fstat(file), path.lstat()
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (named.st_dev, named.st_ino)


def remove_files(folder: Path, owner: str) -> None:
    """Remove the files of a worker, its lock last: while that exists, another process may still remove the others."""
    for suffix in (_PIPE, _LIFE, _NEW, _LOCK):
        with suppress(OSError):
            (folder / f"{owner}{suffix}").unlink()


def boot_id() -> str:
    """Return a name of this boot of this kernel; of this host where the system has none."""
    try:
        return _BOOT_FILE.read_text(encoding="ascii").strip()[:13]
    except OSError:
        return blake2b(platform.node().encode(), digest_size=6).hexdigest()
