"""Every limit, with the reason for its number.

A loop, queue or size without a limit is a defect. All limits are in this module, so that they are easy to find.
"""

from __future__ import annotations

MICROSTEPS_MAX = 1_000
"""Microsteps in one step: stops loops of eventless transitions and raised events. XState and SCXML have no limit."""

INTERNAL_EVENTS_MAX = 1_000
"""Internal events queued in one step: with the microsteps it limits what one entry can cause."""

EFFECTS_MAX = 1_000
"""Effects of one step: one journal entry must stay small."""

TIMERS_MAX = 1_000
"""Pending timers of one entity: they are stored in its snapshot."""

DELAY_MS_MAX = 1_000 * 365 * 86_400_000
"""Milliseconds of a delay (1,000 years): longer than any use, and due times fit into 64-bit columns."""

DEFERRED_MAX = 64
"""Events deferred by `unhandled: defer`: they are stored in the snapshot with their payloads."""

INVOKES_MAX = 256
"""Active invokes of one entity."""

INDEXED_FIELDS_MAX = 8
"""Context fields of a chart that entities are found by: each change of one deletes a row and inserts a row, about 14
microseconds on SQLite and 23 on PostgreSQL."""

FOREACH_ITEMS_MAX = 10_000
"""Items of one `foreach`."""

EVALUATIONS_MAX = 100_000
"""Expression evaluations in one step: an evaluation takes up to 10 microseconds, so a step ends within a second."""

EVALUATION_WORK = 100
"""Units of work of one evaluation. A unit takes about 0.1 microseconds, or builds 8 bytes."""

WORK_MAX = EVALUATIONS_MAX * EVALUATION_WORK
"""Units of work in one step: evaluations, and the items and characters that they read or build. About one second, and
at most about 80 MB of memory, garbage included."""

STEP_BYTES_MAX = 8_388_608
"""Bytes of a step while it runs (8 MiB): context, timers, queued events, effects and output, with shared values counted
each time. A value counts up to four bytes for each byte of its JSON, so everything that fits into a snapshot and an
entry fits into this."""

VALUE_BYTES_MAX = 4_194_304
"""Bytes of one value, counted in the same way (4 MiB): a larger value does not fit into a snapshot of 1 MiB."""

UNMEASURED_MAX = 8
"""Values that a step stores before it measures them: most steps store fewer, and measuring takes time."""

STATES_MAX = 2_000
"""States of a chart: limits compile time. Hand-written charts have fewer than 100."""

TRANSITIONS_MAX = 20_000
"""Transitions of a chart."""

DEPTH_MAX = 32
"""Levels of nested states: keeps recursion over a chart far below the interpreter's own limit."""

CONTENT_DEPTH_MAX = 64
"""Levels of nested `if`, `foreach` and guards. Python allows 100 levels of indentation."""

FOREACH_DEPTH_MAX = 16
"""Levels of nested `foreach`: Python allows 20 nested blocks of code, and generated code needs a few."""

METRIC_SERIES_MAX = 10_000
"""Series of metrics of one process: some megabytes in each Prometheus that reads them. A chart with 50 states and 50
events has about 1,500."""

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
"""Values in one tree: a list that contains another one twice, 40 levels deep, is small in memory and huge in JSON."""

VALUE_DEPTH_MAX = 64
"""Nesting of a value in the context."""

STRING_LENGTH_MAX = 1_000_000
"""Characters of a string, items of a list."""

INTEGER_BITS_MAX = 256
"""Bits of an integer: beyond 64, other readers of the JSON may lose digits; beyond 256, arithmetic is slow."""

DEFINITION_BYTES_MAX = 1_048_576
"""Bytes of a definition's text (1 MiB), checked before any parser sees it."""

DEFINITION_STORED_BYTES_MAX = 4 * 1_048_576
"""Bytes of a definition as canonical JSON (4 MiB): a text of 1 MiB with aliases or few quotes becomes longer."""

EDITIONS_MAX = 100
"""Texts of one revision that a store keeps: the first, which has its order, and the newest ones. They differ only in
descriptions and labels, and a generated description would otherwise fill the store."""

TEXT_FILE_BYTES_MAX = 1_048_576
"""Bytes of a project file or a mapping (1 MiB): the same as a definition."""

DEFINITION_DEPTH_MAX = 96
"""Nesting of a definition's text: a state takes two levels, charts have up to 32, and actions need the others."""

SCXML_DEPTH_MAX = 64
"""Nesting of elements in SCXML."""

ALIASES_MAX = 100
"""Aliases in a YAML definition."""

EXPANDED_NODES_MAX = 50_000
"""Values of a definition after its aliases are expanded: stops alias bombs."""

XML_NODES_MAX = 100_000
"""Elements and attributes of a definition in XML: twice the values of one in JSON, which needs fewer."""

INTEGER_DIGITS_MAX = 80
"""Digits of a number in a definition: 256 bits have 78; the standard parser is quadratic in digits."""

PLANS_MAX = 4_096
"""Cached plans of a chart: 6 regions of 4 states and 6 events would make 24,576, about 300 bytes each."""

ENTRY_BYTES_MAX = 262_144
"""Bytes of an encoded entry (256 KiB): one write, one row."""

KEY_BYTES_MAX = 200
"""Bytes of an idempotency key: keys are primary keys of rows."""

KEY_WINDOW_MS = 2_592_000_000
"""How long a key is remembered at least: 30 days (in files: the last 10,000 of an entity). Queues retry messages for a
shorter time (14 days is common). Without a limit, stores would grow with the number of events. Stripe keeps keys for a
day."""

TRACE_WINDOW_MS = 86_400_000
"""How long after its start a trace is continued: a day. Systems that collect traces expect the spans of a trace within
hours, and a life may last for years; what is caused later starts a new trace with a link."""

RETENTION_BATCH = 64
"""Entities of one batch of retention: one transaction on SQLite, and one entry of the record. More would make senders
wait longer for the writer."""

RETENTION_ROWS = 1_000
"""Rows that one call removes of one entity: some milliseconds, after which the steps of others have their turn."""

RETENTION_PAGES = 256
"""Pages of a SQLite file that are cut off in one step (1 MiB)."""

RETENTION_INTERVAL_MS = 3_600_000
"""How often workers look for what the charts' retention allows to remove: retention is measured in days."""

COMPACT_ENTRIES_MIN = 100
"""Entries that a compaction must remove at least: it writes a snapshot, which may be as large as some entries."""

CONFLICT_RETRIES_MAX = 16
"""Conflicts in a row before a driver gives up: with full jitter, sixteen mean that other writers starve this one."""

BACKOFF_MS_MIN = 2
"""First upper bound of the wait after a conflict; it doubles each time."""

BACKOFF_MS_MAX = 500
"""Largest upper bound of the wait after a conflict."""

SNAPSHOTS_CACHED_MAX = 10_000
"""Snapshots a runtime keeps in memory. A stale one costs one conflict, never a wrong step."""

ATTEMPTS_MAX = 50
"""Attempts at one effect, including those whose worker died: an effect that kills its worker must end."""

PAUSE_MS_MIN = 100
"""The shortest pause of a handler: one that ends immediately would call a busy service again and again."""

PAUSE_MS_MAX = 86_400_000
"""The longest pause of a handler, a day: a service that answers nonsense must not stop work for years."""

DIAGNOSTIC_LENGTH_MAX = 500
"""Characters of the message of a diagnostic. It quotes what the author wrote, and one word may be a megabyte."""

DIAGNOSTICS_MAX = 1_000
"""Diagnostics of a definition, for each severity: more than a person reads, and a text of 1 MiB may have 100,000."""

SUGGESTIONS_MAX = 25
"""Similar names that are searched for a definition: each search takes 50 microseconds, and the first ones help."""

TARGETS_MAX = 200
"""Targets of a transition: one for each region, and charts have fewer than ten."""

FAILURE_TEXT_LENGTH_MAX = 500
"""Characters of an error's message or hint that are stored: enough to read, and a thousand failures stay small."""

FAILURE_CODE_LENGTH_MAX = 200
"""Characters of an error's code: codes are compared by charts and shown in lists. Ours have fewer than 40."""

EXPLANATION_LENGTH_MAX = 500
"""Characters that say why an event was refused: an exception and a log line contain them."""

REASON_LENGTH_MAX = 1_000
"""Characters of the reason that a sender gives for an event: a sentence or a link, stored with its entry."""

AUDIT_NAME_BYTES_MAX = 200
"""Bytes of an id or an event name in a row of the audit: a longer text was refused, and its first part shows what it
was. PostgreSQL indexes at most 2,700 bytes."""

AUDIT_REASON_BYTES_MAX = 500
"""Bytes of a reason or a note in a row of the audit: a sentence or two."""

AUDIT_BURST = 100
"""Refused attempts of one principal that each get a row, in a burst: a person or a batch job that makes a mistake."""

AUDIT_ROWS_PER_SECOND = 10
"""Rows of one principal after that: 200 MB a day at most, from a sender who is refused without a pause."""

AUDIT_FOLD_MS = 1_000
"""How often the counts of a flood become rows: a process that is killed loses the counts of that time at most."""

AUDIT_COUNTERS_MAX = 1_024
"""Counters of a flood, by principal, code and kind. Beyond them, attempts are counted together as `other`."""

AUDIT_CHECKPOINT_MS = 60_000
"""How often a checkpoint is written: what is forged within this time cannot be proven."""

AUDIT_CHECKPOINT_ENTRIES = 10_000
"""Entries of journals that one checkpoint includes: its row has a megabyte at most."""

AUDIT_PLACES_MAX = 1_000
"""Damaged places of an audit that a verification names; the others are counted. More is an audit that was replaced."""

AUDIT_PROBLEMS_MAX = 10_000
"""Problems of a store that a verification names; the others are counted: some megabytes."""

AUDIT_COVERS_MAX = 1_440
"""Checkpoints of which a verification says what they still cover, the newest ones: a day of them."""

JOURNAL_PLACES_MAX = 100
"""Damaged places of one journal that a verification names."""

AUDIT_BATCH_ROWS_MAX = 256
"""Rows of one commit: at 64 the flush is already a small part of the cost, and later callers wait for it."""

LEASE_MS = 30_000
"""How long a lease on work lasts unless renewed: the work of a dead worker is delayed by at most that."""

LEASE_MS_MAX = 600_000
"""The longest lease: ten minutes. Leases are renewed long before that. A lease that ends later than this from now was
made with a wrong clock and is invalid."""

CLOCK_AHEAD_MS_MAX = 60_000
"""How far a recorded time may be ahead of a correct clock. Hosts with NTP differ by milliseconds, others by seconds.
Beyond a minute, the clock that recorded it was wrong."""

FUTURE_ENTITIES_MAX = 10_000
"""Entities with a future time that a worker checks in one pass, and remembers to have checked."""

LEASE_MS_MIN = 100
"""The shortest lease: it is renewed after a third of its time, and a busy machine must not miss that."""

POLL_MS_MAX = 1_000
"""How long it takes at most to see work of another process: each poll is one read of an index."""

HELD_TARGET_MS = 2_000
"""How long a message to a held entity waits before it is tried again: it arrives that long after the hold at most."""

HELD_WORK_MS_MIN = 60_000
"""How long work of a held entity waits at first before a worker looks at it again. A resume makes it due; this is for a
resume whose process was killed."""

HELD_WORK_MS_MAX = 3_600_000
"""The same for a long hold: a million pieces of work that are held for a day cost three hundred looks per second."""

RESUMED_PER_SECOND = 500
"""Pieces of work that become due per second when a kind or many entities are resumed: a tenth of what a worker can
claim, so a day of overdue timers does not arrive at once."""

RUNNING_MAX = 64
"""Handlers that one runtime runs at the same time, and sends it delivers. Others wait in the store."""

MESSAGE_ATTEMPTS_MAX = 20
"""Failed deliveries of one outbox row before it is a dead letter and the next one is sent: about a quarter hour."""

SEND_BACKOFF_MS_MAX = 60_000
"""The longest wait before a failed send or message is retried: a recovered receiver is found within a minute."""

MESSAGE_BYTES_MAX = 1_048_576
"""Bytes of a received message (1 MiB): the default of NATS and Kafka. Our own are a little larger than an entry."""

CHILD_DEPTH_MAX = 16
"""Levels of charts that invoke charts: a chart that invokes itself would not end."""

WAITING_MAX = 10_000
"""Callers that wait for any entity in a process: each has a request in memory."""

WAITING_SHARE_MAX = 2_500
"""Callers with the same principal that wait in a process: a quarter of all, so that no sender takes every place."""

MAILBOX_MAX = 1_000
"""Senders that wait for one entity in one process: one second at a thousand steps per second. Akka has no limit by
default."""

SKIPPED_TURNS_MAX = 64
"""How often a sender that waits for an entity may be passed over: then the one that waits longest is next."""

DETAILS_BYTES_MAX = 16_384
"""Bytes of the details of a heartbeat (16 KiB): a cursor or a page number, stored with every renewal of a lease."""

STOP_MS_MAX = 5_000
"""How long a cancelled coroutine may take to end. One that ignores its cancellation is then abandoned."""

THREADS_MAX = 256
"""Handler threads of one runtime, including abandoned ones that still run. No more are started beyond that."""

ALIVE_MS = 10_000
"""How often a worker records that it is alive: a small write, and the error of a measured downtime."""

DOWNTIME_MS_MIN = 30_000
"""Time without any live worker that counts as downtime: three records are missing. A quick restart is shorter."""

DOWNTIMES_MAX = 1_000
"""Downtimes that a store remembers: one a day for almost three years. Earlier ones are ignored."""

SEEN_DAYS = 400
"""Days that a store counts states and events by day: a year, and the weeks in which last year's season is compared."""

EVIDENCE_ENTRIES_MAX = 5_000_000
"""Entries of a store without counters that are read for the evidence about a change: some minutes."""

SEEN_NAMES_MAX = 1_000
"""Names of states, or of events, of a kind that a store counts: several times as many as a large chart has. Senders
choose the names of refused events, so there must be an end; further names are counted together."""

RECONCILE_PAGE = 64
"""Entities that a reconciler lists in one page: few enough that most are unchanged when their turn comes."""

RECONCILE_PASS_MAX = 10_000
"""Entities in one pass of a reconciler. The next pass continues after them."""

RECONCILE_RUNNING_MAX = 16
"""Calls of a reconciler's function at the same time, by default: others use the same service."""

RECONCILE_RATE = 50
"""Calls of a reconciler's function per second, by default."""

RECONCILE_TIMEOUT_MS = 30_000
"""How long one call of a reconciler's function may take, by default."""

RECONCILE_BACKOFF_MS_MIN = 1_000
"""First wait after a failed call for an entity; it doubles each time."""

RECONCILE_BACKOFF_MS_MAX = 600_000
"""Longest of these waits: ten minutes."""

RECONCILE_FAILING_MAX = 10_000
"""Entities whose failures a reconciler remembers. Beyond that, the oldest failure is forgotten."""

FORK_WAIT_MS_MAX = 2_000
"""How long a fork waits until no thread is inside SQLite: longer than a slow disk takes to flush a batch. After that,
the child process is forked but cannot use SQLite."""

FORK_PAUSE_US = 500
"""How long a fork waits before it checks again: about the time of a short transaction."""

REPLACED_ATTEMPTS_MAX = 3
"""Attempts to open a database whose file is replaced at the same time: three in a row are not a coincidence."""

HTTP_CONNECTIONS_MAX = 1_000
"""Connections to one HTTP server: at 48 KiB for an unfinished head each, 48 MB in all. A server with fewer descriptors
has fewer connections."""

HTTP_DESCRIPTORS_RESERVED = 256
"""Descriptors reserved for other parts of the process: stores, threads, and a burst of accepted connections.
A process with few descriptors reserves half of them."""

HTTP_ACCEPTS_MAX = 32
"""Connections accepted in a row before a request is handled: an eighth of the reserved descriptors."""

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
"""How long the remaining bytes of a request are read and discarded after its response: the client may still send."""

HTTP_PIPELINE_MAX = 32
"""Requests that a client may send on one connection ahead of their responses: each costs some kilobytes."""

HTTP_LOGIN_BYTES_MAX = 4_096
"""Bytes of a request's body where no login is needed (4 KiB): a key has 68 characters."""

LOG_REPEAT_MS = 10_000
"""How long the server counts repeated problems of one kind instead of logging them."""

LOGINS_MAX = 1_000
"""Logins of a server. Beyond that, a login of the person with the most logins ends."""

LOGINS_PER_USER_MAX = 20
"""Logins of one person: a few browsers on a few machines. Beyond that, the least recently used one ends."""

STREAMS_MAX = 4
"""Live streams of one login: a browser has six connections to a server, and pages need the others."""

STREAMS_PER_USER_MAX = 64
"""Live streams of one person, by keys and logins together: a quarter of all."""

STREAMS_SHARE = 4
"""Live streams of one person once three quarters of all are in use, so that others still get some."""

STREAMS_ALL_MAX = 256
"""Live streams of a server: a quarter of its connections."""

JOBS_MAX = 50
"""Jobs that a server remembers. Beyond that, the oldest finished one is forgotten."""

JOBS_RUNNING_MAX = 4
"""Jobs that run at the same time on a server: they share one event loop with all requests."""

JOBS_RUNNING_PER_USER_MAX = 3
"""Jobs of one person that run at the same time, so that one is left for others."""

JOBS_OPEN_MAX = 40
"""Jobs that run or are paused on a server: fewer than it remembers."""

JOBS_OPEN_PER_USER_MAX = 10
"""Jobs of one person that run or are paused on a server: a quarter of all."""

SIMULATIONS_RUNNING_MAX = 2
"""Simulations that a server runs at the same time: with their size this limits their memory."""

SIMULATIONS_WAITING_MAX = 16
"""Simulations that wait for their turn: at some hundred milliseconds each, seconds."""

SIMULATIONS_PER_USER_MAX = 4
"""Simulations of one person that run or wait: a quarter of all."""

SIMULATION_BYTES_MAX = 4_194_304
"""Bytes of the result of a simulation (4 MiB): a thousand steps of an ordinary chart have 1 MB."""

SHADOW_GROUPS_MAX = 1_000
"""Groups of differences of one shadow run, and kinds of gaps: more than a reviewer reads, and some megabytes."""

SHADOW_SAMPLES_MAX = 3
"""Samples of a group of differences, each of another entity: enough to look one up when another was archived."""

SHADOW_VALUE_LENGTH_MAX = 120
"""Characters of a value in a sample: one line. `interlock show --at` prints the whole value."""

SHADOW_CHANGED_MAX = 1_000_000
"""Entities that may change while a shadow replay walks over a store: their ids are remembered (some hundred MB)."""

SHADOW_QUEUE_MAX = 1_024
"""Steps that wait for a shadow run: a second of a busy process. Further ones are dropped and counted."""

SHADOW_ENTITIES_MAX = 10_000
"""Entities whose last comparison a shadow run remembers, so that it need not carry them again."""

SHADOW_SAVE_MS = 5_000
"""How often a shadow run saves its report: a person who watches it sees it grow."""

SHADOW_STUCK_MS = 10_000
"""After this time in one step, the new chart of a shadow run is reported as stuck."""

SHADOW_SOURCES_MAX = 64
"""Revisions whose steps a shadow run compares: each costs two compiled charts."""

REPORT_BYTES_MAX = 49_152
"""Bytes of a saved report: an entry has the report twice at most, and the page of it stays readable."""

REPORTS_MAX = 1_000
"""Saved reports that are read: a shadow run has one per process and chart."""

REFOLD_RUNNING_MAX = 16
"""Entities that a refold corrects at the same time: folding uses one core; the others wait for the store."""

BUNDLE_LINE_BYTES_MAX = DEFINITION_STORED_BYTES_MAX + 65_536
"""Bytes of one line of a bundle: the largest is a definition."""

BUNDLE_ENTITIES_MAX = 10_000
"""Entities of one bundle: an entity and its children, theirs included. A laptop replays that in a minute."""

BUNDLE_RESTARTS_MAX = 1_000
"""Restarts of one child that export looks for."""

REVISIONS_CACHED_MAX = 256
"""Compiled stored definitions that a process keeps: a chart with a change a day for most of a year."""

REVISIONS_UNKNOWN_MS = 1_000
"""How long a process remembers that the store has no definition of a revision: another process may save it soon."""

REVISIONS_UNKNOWN_MAX = 1_000
"""Unknown revisions that a process remembers at the same time."""

APPROVERS_MAX = 16
"""Users whose approval of one event is remembered: each is a few dozen bytes in every snapshot."""

PERMITS_COMPILED_MAX = 10_000
"""Permits that a process keeps compiled, at most about 20 MB: a chart has one for each of its events at most."""

POLICY_AGE_MS_MAX = 10_000
"""How long a process uses roles and permits before it looks for a newer definition of the kind: so soon does a revoked
role reach every process, for one small read in ten seconds."""

UPGRADE_PAIRS_MAX = 256
"""Pairs of revisions whose difference a process keeps to carry entities: as many as compiled definitions."""

MIGRATION_RUNNING_MAX = 64
"""Entities that a migration moves at the same time: a quarter of a batch of a store, so clients share every batch."""

MAPPING_PLACES_MAX = 100
"""Places that a mapping lists for one state: more than a person decides."""

MAPPING_PLACEMENTS_MAX = 2_000
"""Placements of active states that are checked before a migration. The dry run checks those that entities have."""

MIGRATION_STAYS_MAX = 100_000
"""Entities that a migration remembers because they stay, so that it does not decide again until they change."""

MIGRATION_GROUPS_MAX = 1_000
"""Groups of a migration's report: more than a person reads. Further entities are counted."""

MIGRATION_SAMPLES_MAX = 5
"""Entities that a group of a migration names."""

DATA_KEYS_POOL = 64
"""Data keys that are written in one transaction, before entities need them: a creation waits for no extra flush, and a
crash wastes at most this many."""

CIPHERS_CACHED_MAX = 10_000
"""Opened data keys in memory, about 500 bytes each."""

CIPHER_AGE_MS_MAX = 60_000
"""How long a process uses an opened data key before it looks whether another one has destroyed it."""

KEYRING_BYTES_MAX = 1_000_000
"""Bytes of a keyring file: far more than one epoch a day for decades."""

KEYRING_COMMAND_SECONDS = 30
"""How long the command of a keyring may take: a key service answers in less than a second."""

ERASURES_FOLLOWED_MAX = 1_000
"""Entities that one erasure follows to: a chain of sends is short, and a longer one is a mistake to look at."""

RATE_KEYS_MAX = 10_000
"""Principals, or address prefixes, whose rate a process remembers per class: about 2 MiB, and more than it serves at a
time."""

RATE_PER_SECOND_MAX = 1_000_000
"""Requests per second of a rate limit: more than a process serves, so a higher number is a mistake."""

RATE_BURST_MAX = 1_000_000
"""Requests in a burst of a rate limit: as `RATE_PER_SECOND_MAX`."""

KEY_FILE_BYTES_MAX = 4_194_304
"""Bytes of a key file: `KEYS_MAX` keys with some hundred bytes each. It is read again whenever it changes."""

KEYS_MAX = 10_000
"""API keys of a server: people and programs, not devices."""

KEY_FILE_AGE_MS = 1_000
"""How often a server looks whether its key file has changed: so soon does a revoked key stop working."""

ROLES_MAX = 64
"""Roles of a principal: charts test each of them, and every entry stores them."""

ISSUERS_MAX = 16
"""Issuers of tokens of a server: each has keys that are read again and again."""

JWKS_BYTES_MAX = 65_536
"""Bytes of the keys of an issuer: `JWKS_KEYS_MAX` RSA keys with their certificates fit."""

JWKS_KEYS_MAX = 32
"""Keys of an issuer: the current ones, the last ones and the next ones, of several algorithms."""

TOKEN_BYTES_MAX = 8_192
"""Bytes of a bearer token: providers with many groups reach some kilobytes, and a request head has 32 KiB."""

TOKENS_CACHED_MAX = 10_000
"""Verified tokens that a process remembers: verifying costs 130 to 190 us, looking up about 2."""

CLAIM_BYTES_MAX = 1_024
"""Bytes of a claim in a principal: every entry that its user causes stores it."""

SIGNATURES_MAX = 16
"""Signatures of a request that are looked at, and keys of a sender: a rotation needs two of each."""

SENDERS_MAX = 1_000
"""Senders of envelopes of a server."""

ENVELOPE_AGE_MS_MAX = 300_000
"""How far the time of an envelope may be from ours: clocks differ by seconds, and senders sign each attempt again. Far
less than the time for which keys are remembered, so a replay is either too old or a duplicate."""

ENGINE_CONTINUE_AFTER = 1_000
"""Updates after which an entity on Temporal starts a new history: half of the 2,000 that the server allows in one."""

ENGINE_HISTORY_MAX = 20_000
"""Events of a history after which an entity on Temporal no longer waits for running effects before it starts a new one:
the server ends a workflow at 51,200."""

ENGINE_KEYS_MAX = 1_000
"""Keys that an entity in an engine remembers: they are carried from one history to the next, about 80 bytes each."""

ENGINE_CARRIED_BYTES_MAX = 262_144
"""Bytes of the newest entries that are carried from one history to the next (256 KiB): Temporal warns at 512 KiB."""

ENGINE_WAIT_MS = 30_000
"""How long a call to an engine waits for an answer: a worker that was killed is replaced within ten seconds."""

ENGINE_LISTED_MAX = 1_000
"""Entities that a list without a mirror reads one by one: each is a query to a workflow, about three milliseconds."""

ENGINE_RUNNING_MAX = 100
"""Pieces of work that one entity on Temporal runs at the same time: the server allows 2,000 pending activities."""

ENGINE_MIRROR_MS = 1_000
"""How long entries wait to be written to the mirror together."""

ENGINE_MIRROR_ENTRIES = 50
"""Entries that are written to the mirror together, without waiting longer."""

EXPECT_EVERY_MS_MIN = 1_000
"""How often a worker looks for overdue entities at most, and how long it waits after a full page: a look is one read of
an index, and 500 events each second leave a store room for other writers."""

EXPECT_EVERY_MS_MAX = 60_000
"""How often a worker looks for overdue entities at least. A state with a longer `within` gains nothing from more."""

EXPECT_PAUSE_MS = 100
"""How long a worker waits between two looks for overdue entities, however many come due: they are late by that."""

EXPECT_SENT_MAX = 500
"""Events of `expect.then` that one look sends, of one state: a second of writes, like the work after a resume."""

EXPECT_AGAIN_MS = 600_000
"""After this time the list of overdue entities is read from its start, for what a reader of the rest has not seen, such
as an entity that another revision has moved into the list. Each entity that has its event costs a read by its key."""

EXPECT_LEASE_MS = 30_000
"""How long a process sends the events of overdue states of a kind unless it renews: after a kill they are late by at
most that."""
