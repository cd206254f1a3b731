"""The console as a value: the runtime it shows, who may ask, and what is under way in this process.

Rule: it holds nothing that is not also in the store, but logins, dry runs and streams: those end with the process.
"""

from __future__ import annotations

import asyncio
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import urlsplit

from interlock.errors import DeniedError, UsageError
from interlock.kernel.step import Kernel
from interlock.model.chart import Chart
from interlock.model.diagnostics import suggestion
from interlock.observe.history import HistoryCache
from interlock.observe.population import ChangeMarks
from interlock.ports.clock import Clock
from interlock.ports.store import Store
from interlock.ports.threads import in_thread
from interlock.runtime.builtin_charts import BUILTIN_KINDS
from interlock.runtime.runtime import Runtime
from interlock.web.auth import Authentication, User
from interlock.web.diagrams import diff_svg, svg
from interlock.web.errors import HttpProblem
from interlock.web.jobs.runner import Jobs
from interlock.web.simulation_queue import LabQueue

MAC_BYTES = 16
"""Bytes of a cursor's authentication code: it is the starting value of its encryption, too."""

DRAWINGS_MAX = 256
"""Drawings that are remembered: some tens of kilobytes each."""


class Console:
    """What every request is answered from."""

    def __init__(
        self,
        runtime: Runtime,
        access: Authentication,
        *,
        origins: frozenset[str] = frozenset(),
        read_only: bool = False,
    ) -> None:
        self.runtime = runtime
        self.access = access
        self.origins = origins
        self.read_only = read_only
        self.jobs = Jobs(runtime, keeps=not read_only)
        self.pulse = ChangeMarks(runtime)
        self.past = HistoryCache(runtime)
        self.streams: Counter[str] = Counter()
        self.lab_queue = LabQueue()
        self.closing = asyncio.Event()
        self._secret = runtime.clock.token().encode()
        self._drawings: dict[tuple[str, ...], str] = {}
        self._open: dict[str, bool] = {}

    @property
    def store(self) -> Store:
        """The store of the runtime."""
        return self.runtime.store

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach it by https, so that its cookie goes no other way."""
        return bool(self.origins) and all(each.startswith("https:") for each in self.origins)

    @property
    def cookie(self) -> str:
        """The name of its cookie. By the prefix a browser knows that no other host may have set it; without TLS there
        is the port in it, because cookies know no ports and two consoles of one host would end each other's logins.
        """
        if self.is_secure:
            return "__Host-interlock"
        ports = {urlsplit(each).port for each in self.origins}
        port = ports.pop() if len(ports) == 1 else None
        return "interlock" if port is None else f"interlock-{port}"

    @property
    def clock(self) -> Clock:
        """The clock of the runtime."""
        return self.runtime.clock

    async def close(self) -> None:
        """End streams and jobs."""
        self.closing.set()
        await self.jobs.close()

    # Charts

    def kinds(self) -> tuple[str, ...]:
        """The kinds that this process has a chart of, sorted."""
        return self.runtime.charts.kinds()

    def kernel(self, kind: str, revision: str | None = None) -> Kernel:
        """The chart of a kind. Raises NotFoundError when it is not here."""
        if revision is None:
            return self.runtime.charts.current(kind)
        found = self.runtime.charts.revisions(kind).get(revision)
        if found is None:
            known = ", ".join(self.runtime.charts.revisions(kind)) or "none"
            message = f"no revision {revision[:80]} of `{kind}` here"
            raise HttpProblem(404, "Not found", message, code="revision.unknown", hint=f"here are {known}")
        return found

    def chart_for(self, person: User, kind: str, revision: str | None = None) -> Chart:
        """The chart of a kind that a person may see. Raises HttpProblem."""
        self.check_kind(person, kind)
        return self.kernel(kind, revision).chart

    def may_see(self, person: User, kind: str) -> bool:
        """Whether a person may see a kind at all. One with hidden states needs the right to see them: no list or count
        of it could be shown that does not tell more than it should. Without a chart nobody knows what is hidden.
        """
        if "read:sensitive" in person.rights:
            return True
        found = self._open.get(kind)
        if found is None:
            charts = [each.chart for each in self.runtime.charts.revisions(kind).values()]
            states = (each for chart in charts for each in chart.states)
            found = bool(charts) and not any(each.sensitive is not None and each.sensitive.hidden for each in states)
            if charts:  # or strangers could fill it with names of their own
                self._open[kind] = found
        return found

    def seen_kinds(self, person: User) -> tuple[str, ...]:
        """The kinds with a chart here that a person may see, sorted."""
        return tuple(each for each in self.runtime.charts.every_kind() if self.may_see(person, each))

    def check_kind(self, person: User, kind: str) -> None:
        """Raises HttpProblem for a kind that a person may not see: the same one as for a kind that does not exist.

        Endpoints call this before anything else that depends on the kind, so that no status tells the two apart.
        """
        if not self.may_see(person, kind):
            raise self._unknown_kind(person, kind)

    def _unknown_kind(self, person: User, kind: str) -> HttpProblem:
        """What is said of a kind that is not there, in terms of those that this person may see."""
        seen = [each for each in self.kinds() if self.may_see(person, each)]
        hint = suggestion(kind[:80], seen) or f"the kinds here are {', '.join(seen) or 'none'}"
        return HttpProblem(404, "Not found", f"no kind `{kind[:80]}`", code="kind.unknown", hint=hint)

    def check_writable(self, person: User, kind: str) -> None:
        """Raises HttpProblem as `check_kind` does, and DeniedError for a kind that only the console itself writes."""
        self.check_kind(person, kind)
        if kind in BUILTIN_KINDS:
            raise DeniedError(f"`{kind}` is written by the console itself", code="kind.own")

    async def drawing(self, chart: Chart, other: Chart | None = None) -> str:
        """The drawing of a chart, or of two revisions in one; made once, in a thread, because it takes a while."""
        place = (chart.kind, chart.revision, "" if other is None else other.revision)
        found = self._drawings.get(place)
        if found is None:
            found = await in_thread(lambda: svg(chart) if other is None else diff_svg(chart, other))
            if len(self._drawings) >= DRAWINGS_MAX:
                self._drawings.clear()
            self._drawings[place] = found
        return found

    # Cursors

    def sealed(self, cursor: str | None, about: str) -> str | None:
        """A store's cursor as clients get it: bound to what was asked, so that it cannot be bent to another range, and
        encrypted, because it names the last row that was read, which its reader may not be allowed to see.
        """
        if cursor is None:
            return None
        mac = self._mac(cursor, about)
        return urlsafe_b64encode(mac + self._mixed(cursor.encode(), mac)).decode().rstrip("=")

    def unsealed(self, text: str | None, about: str) -> str | None:
        """The store's cursor in a client's. Raises UsageError when it is not ours, or of another question."""
        if text is None:
            return None
        try:
            raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            mac = raw[:MAC_BYTES]
            cursor = self._mixed(raw[MAC_BYTES:], mac).decode()
        except ValueError:
            raise _foreign() from None
        if not hmac.compare_digest(mac, self._mac(cursor, about)):
            raise _foreign()
        return cursor

    def _mac(self, cursor: str, about: str) -> bytes:
        told = f"{about}\0{cursor}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._secret, b"mac\0" + told, sha256)[:MAC_BYTES]

    def _mixed(self, data: bytes, mac: bytes) -> bytes:
        """The data, encrypted or decrypted: combined with a stream that the secret and the code of the text give.

        The code of the text is the starting value (SIV, RFC 5297): two different texts never share a stream.
        """
        blocks = range(0, len(data), 32)
        stream = b"".join(hmac.digest(self._secret, b"stream\0%b%d" % (mac, at), sha256) for at in blocks)
        return bytes(one ^ other for one, other in zip(data, stream, strict=False))


def _foreign() -> UsageError:
    hint = "begin again without it: cursors end with the server that gave them"
    return UsageError("this cursor is not of this list", code="cursor.foreign", hint=hint)


def principal_of(person: User, reason: str | None) -> Mapping[str, object]:
    """Who sends, with the reason they gave: it is kept in the entry."""
    return dict(person.principal) if not reason else {**person.principal, "reason": reason}
