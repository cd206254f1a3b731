"""Every limit of the pure rooms, each with the reason for its number.

A loop, queue or size without a bound is a defect; the bounds stand here so that nobody has to hunt for them.
"""

from __future__ import annotations

MICROSTEPS_MAX = 1_000
"""Microsteps in one step: ends eventless and raise loops. XState has no such limit by default; SCXML names none."""

INTERNAL_EVENTS_MAX = 1_000
"""Internal events queued in one step; with the microsteps it bounds what one journal entry can cause."""

EFFECTS_MAX = 1_000
"""Effects of one step: one journal entry must stay small."""

TIMERS_MAX = 1_000
"""Pending timers of one entity: they live in its snapshot."""

DELAY_MS_MAX = 1_000 * 365 * 86_400_000
"""Milliseconds of a delay (1,000 years): longer than any use, and a due time stays far inside 64-bit columns."""

DEFERRED_MAX = 64
"""Events kept back by `unhandled: defer`: they live in the snapshot with their payloads."""

INVOKES_MAX = 256
"""Active invokes of one entity."""

FOREACH_ITEMS_MAX = 10_000
"""Items one `foreach` walks."""

EVALUATIONS_MAX = 100_000
"""Expression evaluations in one step: an evaluation takes up to 10 microseconds, so a step ends within a second."""

EVALUATION_WORK = 100
"""Units of work of one evaluation. A unit takes about 0.1 microseconds, or builds 8 bytes."""

WORK_MAX = EVALUATIONS_MAX * EVALUATION_WORK
"""Units of work in one step: evaluations, and the items and characters that they walk or build. About one second, and
at most about 80 MB built, garbage included."""

STEP_BYTES_MAX = 8_388_608
"""Bytes that a step may hold while it runs (8 MiB): context, timers, queued events, effects and output, with shared
values counted each time. A value counts up to four bytes for each byte of its JSON, so everything that fits into a
snapshot and an entry fits into this with room to spare."""

VALUE_BYTES_MAX = 4_194_304
"""Bytes of one value, counted in the same way (4 MiB): what has more does not fit into a snapshot of 1 MiB."""

UNMEASURED_MAX = 8
"""Values that a step keeps before their bytes are counted: most steps keep fewer, and counting takes time."""

STATES_MAX = 2_000
"""States of a chart: bounds compile time. Hand-written charts stay under 100."""

TRANSITIONS_MAX = 20_000
"""Transitions of a chart."""

DEPTH_MAX = 32
"""Levels of nested states: keeps recursion over a chart far below the interpreter's own limit."""

CONTENT_DEPTH_MAX = 64
"""Levels of `if`, `foreach` and guards inside one another. Python's own limits begin at 100 levels of indentation."""

FOREACH_DEPTH_MAX = 16
"""Levels of `foreach` inside one another: Python takes 20 blocks of code within blocks, and ours need a few."""

NAME_BYTES_MAX = 256
"""Bytes of an event name or state id: they are keys of rows and labels of metrics."""

ENTITY_ID_BYTES_MAX = 200
"""Bytes of an entity id or key: they are primary keys, and file names after escaping."""

SNAPSHOT_BYTES_MAX = 1_048_576
"""Bytes of an encoded snapshot (1 MiB): one row, one read."""

PAYLOAD_BYTES_MAX = 131_072
"""Bytes of an event's encoded payload (128 KiB), so that an entry with its effects stays under 256 KiB."""

PAYLOAD_DEPTH_MAX = 32
"""Nesting of an event's payload."""

VALUES_MAX = 100_000
"""Values in one tree: a list that holds itself twice, forty times over, is small in memory and 2^40 when encoded."""

VALUE_DEPTH_MAX = 64
"""Nesting of a value in the context."""

STRING_LENGTH_MAX = 1_000_000
"""Characters of a string, items of a list."""

INTEGER_BITS_MAX = 256
"""Bits of an integer: beyond 64 other readers of the JSON may lose digits, beyond 256 arithmetic costs."""

DEFINITION_BYTES_MAX = 1_048_576
"""Bytes of a definition's text (1 MiB), checked before any parser sees it."""

DEFINITION_DEPTH_MAX = 96
"""Nesting of a definition's text: a state takes two levels, charts go 32 deep, actions need the rest."""

SCXML_DEPTH_MAX = 64
"""Nesting of elements in SCXML."""

ALIASES_MAX = 100
"""Aliases in a YAML definition."""

EXPANDED_NODES_MAX = 50_000
"""Values of a definition after its aliases are expanded: what an alias bomb is measured by."""

INTEGER_DIGITS_MAX = 80
"""Digits of a number in a definition: 256 bits have 78; the standard parser is quadratic in digits."""

PLANS_MAX = 4_096
"""Memoised plans of a chart: 6 regions of 4 states and 6 events would make 24,576, about 300 bytes each."""

ENTRY_BYTES_MAX = 262_144
"""Bytes of an encoded entry (256 KiB): one write, one row."""

KEY_BYTES_MAX = 200
"""Bytes of an idempotency key: keys are primary keys of rows."""

KEY_WINDOW_MS = 2_592_000_000
"""How long a key is remembered at least: 30 days (in files: the last 10,000 of an entity). Longer than any queue keeps
a message for its retries (14 days is common), and the only part of a store that would grow with events and not with
entities. Stripe keeps keys for a day."""

CONFLICT_RETRIES_MAX = 16
"""Lost swaps before a driver gives up: with full jitter, sixteen in a row mean that others starve this caller."""

BACKOFF_MS_MIN = 2
"""First upper bound of the wait after a lost swap; it doubles each time."""

BACKOFF_MS_MAX = 500
"""Cap of the wait after a lost swap."""

SNAPSHOTS_CACHED_MAX = 10_000
"""Snapshots a runtime keeps in memory. A stale one costs one conflict, never a wrong step."""

ATTEMPTS_MAX = 50
"""Attempts at one effect, those counted that ended with their worker: what kills every worker must end some time."""

FAILURE_TEXT_LENGTH_MAX = 500
"""Characters of an error's message or hint that are stored: enough to read, and a thousand failures stay small."""

FAILURE_CODE_LENGTH_MAX = 200
"""Characters of an error's code: codes are compared by charts and shown in lists. Ours have fewer than 40."""

LEASE_MS = 30_000
"""How long work stays with whoever took it up, unless renewed: a worker that died holds it up for that long at most."""

LEASE_MS_MAX = 600_000
"""The longest lease that may be asked for: ten minutes. It is renewed long before that, so nothing needs more; and a
lease that ends later than this from now was taken under a wrong clock, and is not valid."""

CLOCK_AHEAD_MS_MAX = 60_000
"""How far a recorded time may be ahead of a clock that is right. Hosts kept by NTP differ by milliseconds, and without
it by seconds; beyond a minute the clock that stamped it was wrong."""

AHEAD_ENTITIES_MAX = 10_000
"""Entities stamped in the future that a worker looks at in one go, and remembers to have looked at."""

LEASE_MS_MIN = 100
"""The shortest lease that may be asked for: it is renewed at a third, and a busy machine must not miss that."""

LOOK_MS_MAX = 1_000
"""How long work that another process left may lie unseen: each look is one read of an index."""

RUNNING_MAX = 64
"""Handlers that one runtime runs side by side, and sends it delivers: beyond that they wait, in the store."""

MESSAGE_ATTEMPTS_MAX = 20
"""Failed deliveries of one row of an outbox before it is a dead letter and the next one goes: about a quarter hour."""

SEND_BACKOFF_MS_MAX = 60_000
"""The longest wait before a send or a message that failed is tried again: what was away is found within a minute."""

MESSAGE_BYTES_MAX = 1_048_576
"""Bytes of a message that is taken in (1 MiB): what NATS and Kafka carry by default. Ours have an entry's and a bit."""

CHILD_DEPTH_MAX = 16
"""Charts that invoke charts: one that invokes itself would not end."""

MAILBOX_MAX = 1_000
"""Senders that wait for one entity in one process: at a thousand steps a second, a second's worth. Akka's default has
no bound."""

PASSED_OVER_MAX = 64
"""Turns that go past somebody who waits for an entity: then whoever waits longest is next, whatever came later."""

DETAILS_BYTES_MAX = 16_384
"""Bytes of what a heartbeat tells (16 KiB): a cursor or a page number, kept again with every renewal of a lease."""

STOP_MS_MAX = 5_000
"""How long a cancelled coroutine may take to end: one that swallows its cancellation is then left to itself."""

THREADS_MAX = 256
"""Threads of handlers of one runtime, those counted that were given up and still run: no more are begun beyond that."""

ALIVE_MS = 10_000
"""How often a worker notes that it is alive: a small write, and the most by which a downtime can seem too long."""

DOWNTIME_MS_MIN = 30_000
"""Silence of all workers that counts as downtime: three notes are missing. A quick restart is none."""

DOWNTIMES_MAX = 1_000
"""Downtimes that a store remembers: one a day for almost three years. Timers set before the oldest count that as up."""

RECONCILE_PAGE = 64
"""Entities that a reconciler lists at once: few enough that most have not moved on when their turn comes."""

RECONCILE_PASS_MAX = 10_000
"""Entities that one pass of a reconciler looks at; the next pass goes on behind them."""

RECONCILE_RUNNING_MAX = 16
"""Calls of a reconciler's function side by side, unless it says otherwise: they ask a service that others use, too."""

RECONCILE_RATE = 50
"""Calls of a reconciler's function per second, unless it says otherwise."""

RECONCILE_TIMEOUT_MS = 30_000
"""How long one call of a reconciler's function may take, unless it says otherwise."""

RECONCILE_BACKOFF_MS_MIN = 1_000
"""First wait after a failed look at an entity; it doubles each time."""

RECONCILE_BACKOFF_MS_MAX = 600_000
"""Cap of that wait: ten minutes."""

RECONCILE_FAILING_MAX = 10_000
"""Entities whose failures a reconciler remembers: beyond that the one that failed longest ago is forgotten."""

FORK_WAIT_MS_MAX = 2_000
"""How long a fork waits until no thread is inside SQLite: longer than a slow disk takes to flush a batch. After that
the child is forked all the same, and refuses to use SQLite."""

FORK_PAUSE_US = 500
"""How long a fork waits before it looks again: about as long as a short transaction takes."""

REPLACED_TRIES_MAX = 3
"""How often a database is opened whose file is replaced at that very moment: once is chance, three times is a fault."""

HTTP_CONNECTIONS_MAX = 1_000
"""Connections to one HTTP server: at 48 KiB for an unfinished head each, 48 MB in all. A server with fewer descriptors
has fewer connections."""

HTTP_DESCRIPTORS_RESERVED = 256
"""Descriptors that connections leave to the rest of the process: stores, threads, and a burst of accepted connections.
A process with few descriptors reserves half of them."""

HTTP_ACCEPTS_MAX = 32
"""Connections that are accepted in a row before a request is looked at: an eighth of the reserved descriptors."""

HTTP_BACKLOG_MAX = 1_024
"""Connections that the kernel queues for the server. A full queue costs a new client a second; one of this length is
accepted within a tenth of that."""

HTTP_HEAD_BYTES_MAX = 32_768
"""Bytes of a request's head (32 KiB), and of what follows a chunked body. nginx allows the same by default."""

HTTP_FIELDS_MAX = 100
"""Header fields of a request. Browsers send about 20; Apache allows the same by default."""

HTTP_HEAD_MS_MAX = 10_000
"""How long a client may take for the head of a request, and until it sends the first byte."""

HTTP_BODY_MS_MAX = 30_000
"""How long a client may take for the body of a request: the largest body arrives in time at 9 kB a second."""

HTTP_IDLE_MS_MAX = 30_000
"""How long a connection may stay open between two requests."""

HTTP_STALL_MS_MAX = 60_000
"""How long a client may read nothing of a response that waits for it. Streams send a heartbeat every 15 seconds."""

HTTP_UNREAD_BYTES_MAX = 67_108_864
"""Bytes of responses that all clients together have not read yet (64 MiB): the connection with the most of them is
closed first. One response has a few MiB at most."""

HTTP_LINGER_MS_MAX = 2_000
"""How long the rest of a request is read and discarded once it has its response: the client may still be sending."""

HTTP_PIPELINE_MAX = 32
"""Requests that a client may send on one connection ahead of their responses: each costs some kilobytes."""

HTTP_LOGIN_BYTES_MAX = 4_096
"""Bytes of a request's body where no login is needed (4 KiB): a key has 68 characters."""

LOG_REPEAT_MS = 10_000
"""How long the server does not log the same kind of trouble again; it is counted instead."""

LOGINS_MAX = 1_000
"""Logins of a server at once; beyond that a login of the person with the most of them ends."""

LOGINS_PERSON_MAX = 20
"""Logins of one person at once: a few browsers on a few machines. The one that was used longest ago makes room."""

STREAMS_MAX = 4
"""Live streams of one login: a browser has six connections to a server, and pages need the others."""

STREAMS_PERSON_MAX = 64
"""Live streams of one person, by keys and logins together: a quarter of all."""

STREAMS_SHARE = 4
"""Live streams that one person may have once three quarters of all are taken, so that others still get some."""

STREAMS_ALL_MAX = 256
"""Live streams of a server: a quarter of its connections."""

JOBS_MAX = 50
"""Jobs that a server remembers: the oldest ended one makes room."""

JOBS_RUNNING_MAX = 4
"""Jobs that run at once on a server: they share one event loop with all requests."""

JOBS_RUNNING_PERSON_MAX = 3
"""Jobs of one person that run at once, so that one is left for others."""

JOBS_OPEN_MAX = 40
"""Jobs that run or are paused on a server: fewer than it remembers."""

JOBS_OPEN_PERSON_MAX = 10
"""Jobs of one person that run or are paused on a server: a quarter of all."""

LAB_RUNNING_MAX = 2
"""Simulations that a server plays at once: with the size of each this bounds their memory."""

LAB_WAITING_MAX = 16
"""Simulations that wait for their turn: at some hundred milliseconds each, seconds."""

LAB_WAITING_PERSON_MAX = 4
"""Simulations of one person that are played or wait: a quarter of all."""

LAB_BYTES_MAX = 4_194_304
"""Bytes of what a simulation tells (4 MiB): a thousand steps of an ordinary chart have 1 MB."""
