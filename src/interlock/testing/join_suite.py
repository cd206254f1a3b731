"""The suite of sends in the caller's transaction: the same cases for every driver and every database.

A case is a function that takes a `JoinSubject`; with pytest:

    @pytest.mark.parametrize("case", JOIN_CASES, ids=lambda case: case.__name__)
    def test_my_driver(case, tmp_path):
        with my_subject(tmp_path) as subject:
            case(subject)

Rule 1: a case uses only the program and the observer, and raises AssertionError with what it expected.
Rule 2: the program's runtime runs on a clock that stands still (`VirtualClock`), so its worker never polls: an effect
that runs was signalled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from interlock.errors import ConflictError, InterlockError, NotFoundError, UsageError
from interlock.model.journal.entry import Receipt
from interlock.runtime.blocking import BlockingRuntime
from interlock.testing.store_suite.subject import expect

ORDER = """
interlock: 1
kind: order
context:
  notes: {type: integer, default: 0}
initial: open
states:
  open:
    on:
      noted:
        actions: [{assign: {notes: "= context.notes + 1"}}]
      paid: charging
  charging:
    invoke: {src: charge, onDone: paid, onError: open}
  paid: {type: final}
"""
"""The chart of the suite: `noted` changes the context, `paid` starts an effect, and a final state refuses both."""


class JoinProgram(Protocol):
    """A program with its own table, on one connection of a driver. Every call blocks.

    `stale_errors` are the driver's errors for a write in a transaction that has read what has changed since.
    """

    stale_errors: tuple[type[Exception], ...]

    def begin(self) -> None:
        """Start a transaction, as a program with this driver does."""

    def read(self) -> None:
        """Read the program's own table, which starts a snapshot in some databases."""

    def write(self, name: str) -> None:
        """Insert a row into the program's own table."""

    def commit(self) -> None:
        """Commit."""

    def rollback(self) -> None:
        """Roll back."""

    def savepoint(self) -> None:
        """Start a savepoint."""

    def rollback_to_savepoint(self) -> None:
        """Undo what was done since the savepoint."""

    def release_savepoint(self) -> None:
        """Keep what was done since the savepoint."""

    def create(self, entity: str, **options: Any) -> Receipt:
        """Create an entity in the transaction."""

    def send(self, entity: str, event: str, **options: Any) -> Receipt:
        """Send an event in the transaction."""

    def lock(self, *entities: str) -> None:
        """Lock entities in the transaction."""

    def charged(self) -> Collection[str]:
        """The entities whose effect `charge` has run in the program."""

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the program's runtime run until a condition is true, or for a while that is long for any machine."""

    def state(self, entity: str) -> str:
        """The state of an entity, as the program's own runtime reads it outside the transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSubject:
    """A program, the names that another connection finds in its table, and a runtime that only observes and sends.

    `one_writer`: nothing else can be committed while the program's transaction writes, as in a SQLite file; with
    `locks_at_begin`, from its start.
    """

    program: JoinProgram
    names: Callable[[], Collection[str]]
    observer: BlockingRuntime
    one_writer: bool
    locks_at_begin: bool = False


Case = Callable[[JoinSubject], None]


def rows_and_entry_are_committed_together(subject: JoinSubject) -> None:
    """Both are invisible before the COMMIT and visible after it; the journal is intact, and the counters are right."""
    program = subject.program
    subject.observer.create("order/1")
    program.begin()
    program.write("a")
    receipt = program.send("order/1", "noted", key="k")
    expect(("applied", 2, True), (receipt.outcome, receipt.version, receipt.joined), "the receipt")
    expect((set(), 1), (set(subject.names()), _version(subject, "order/1")), "before the COMMIT")
    program.commit()
    expect(({"a"}, 2), (set(subject.names()), _version(subject, "order/1")), "after the COMMIT")
    _verify(subject, "order/1")


def rows_and_entry_are_rolled_back_together(subject: JoinSubject) -> None:
    """Nothing is left, and the key is free."""
    program = subject.program
    subject.observer.create("order/1")
    program.begin()
    program.write("a")
    program.send("order/1", "noted", key="k")
    program.create("order/2")
    program.rollback()
    expect((set(), 1), (set(subject.names()), _version(subject, "order/1")), "after the rollback")
    _expect_error(NotFoundError, lambda: subject.observer.state("order/2"))
    expect("applied", subject.observer.send("order/1", "noted", key="k").outcome, "the same key")
    expect(2, _version(subject, "order/1"))
    _verify(subject, "order/1")


def a_creation_and_a_send_share_a_transaction(subject: JoinSubject) -> None:
    """The send sees the entity that this transaction has created."""
    program = subject.program
    program.begin()
    expect(("applied", 1), _short(program.create("order/1")))
    expect(("applied", 2), _short(program.send("order/1", "noted")))
    program.commit()
    expect(2, _version(subject, "order/1"))
    _verify(subject, "order/1")


def several_sends_share_a_transaction(subject: JoinSubject) -> None:
    """Each sees the one before, to one entity and to another."""
    program = subject.program
    for entity in ("order/1", "order/2"):
        subject.observer.create(entity)
    program.begin()
    versions = [program.send(entity, "noted").version for entity in ("order/1", "order/2", "order/1")]
    program.commit()
    expect([2, 2, 3], versions)
    expect(2, subject.observer.state("order/1").context["notes"])
    for entity in ("order/1", "order/2"):
        _verify(subject, entity)


def a_repeated_key_is_a_duplicate(subject: JoinSubject) -> None:
    """In the same transaction, in a later one, and in a send without a transaction."""
    program = subject.program
    program.begin()
    program.create("order/1", key="c")
    expect("duplicate", program.create("order/1", key="c").outcome)
    program.send("order/1", "noted", key="k")
    expect(("duplicate", 2), _short(program.send("order/1", "noted", key="k")))
    program.commit()
    program.begin()
    expect(("duplicate", 2), _short(program.send("order/1", "noted", key="k")))
    program.commit()
    expect("duplicate", subject.observer.send("order/1", "noted", key="k").outcome)
    expect(2, _version(subject, "order/1"))


def a_key_of_another_event_is_an_error(subject: JoinSubject) -> None:
    """And the transaction continues."""
    program = subject.program
    subject.observer.create("order/1")
    program.begin()
    program.send("order/1", "noted", key="k")
    raised = _expect_error(UsageError, lambda: program.send("order/1", "paid", key="k"))
    expect("key.reused", raised.code)
    program.write("a")
    program.commit()
    expect(({"a"}, 2), (set(subject.names()), _version(subject, "order/1")))


def a_refused_event_leaves_the_transaction_usable(subject: JoinSubject) -> None:
    """The receipt says so; what the program writes before and after it is committed."""
    program = subject.program
    subject.observer.create("order/1")
    program.begin()
    program.write("a")
    outcomes = [program.send("order/1", event).outcome for event in ("noted", "paid", "noted")]
    expect(["applied", "applied", "rejected"], outcomes)
    program.write("b")
    program.commit()
    expect({"a", "b"}, set(subject.names()))
    _verify(subject, "order/1")


def an_unknown_entity_leaves_the_transaction_usable(subject: JoinSubject) -> None:
    """NotFoundError, as without a transaction."""
    program = subject.program
    program.begin()
    _expect_error(NotFoundError, lambda: program.send("order/none", "noted"))
    program.write("a")
    program.commit()
    expect({"a"}, set(subject.names()))


def another_version_than_expected_is_a_conflict(subject: JoinSubject) -> None:
    """ConflictError with the code of a send without a transaction; nothing is written."""
    program = subject.program
    subject.observer.create("order/1")
    program.begin()
    raised = _expect_error(ConflictError, lambda: program.send("order/1", "noted", expected=7))
    expect("conflict.expected", raised.code)
    program.rollback()
    expect(1, _version(subject, "order/1"))


def a_savepoint_that_is_undone_takes_its_entry_with_it(subject: JoinSubject) -> None:
    """The next send builds on the entity as it was before the savepoint, not on a snapshot in memory."""
    program = subject.program
    subject.observer.create("order/1")
    program.begin()
    program.write("a")
    program.savepoint()
    program.write("b")
    expect(2, program.send("order/1", "noted", key="k").version)
    program.rollback_to_savepoint()
    expect(("applied", 2), _short(program.send("order/1", "noted", key="k")))
    program.commit()
    expect(({"a"}, 2), (set(subject.names()), _version(subject, "order/1")))
    expect(1, subject.observer.state("order/1").context["notes"])
    _verify(subject, "order/1")


def a_savepoint_that_is_released_keeps_its_entry(subject: JoinSubject) -> None:
    """Its end is not a COMMIT: the entry is visible after the outer one."""
    program = subject.program
    subject.observer.create("order/1")
    program.begin()
    program.savepoint()
    program.send("order/1", "paid")
    program.release_savepoint()
    expect((1, ()), (_version(subject, "order/1"), tuple(program.charged())), "before the COMMIT")
    program.commit()
    expect(2, subject.observer.journal("order/1")[1].version)
    program.until(lambda: "order/1" in program.charged())
    _verify(subject, "order/1")


def no_event_is_lost_to_a_stale_transaction(subject: JoinSubject) -> None:
    """A transaction that has read already meets an entity that changed since: it builds on the change, or conflicts."""
    program = subject.program
    subject.observer.create("order/1")
    if subject.locks_at_begin:  # the file cannot change between the two
        subject.observer.send("order/1", "noted", key="other")
    program.begin()
    program.read()
    if not subject.locks_at_begin:
        subject.observer.send("order/1", "noted", key="other")
    try:
        program.write("a")
        receipt = program.send("order/1", "noted", key="mine")
    except ConflictError as error:
        expect("conflict.joined", error.code)
        program.rollback()
        expect((set(), 2), (set(subject.names()), _version(subject, "order/1")))
    except program.stale_errors:  # the program's own write found the stale snapshot first
        program.rollback()
        expect((set(), 2), (set(subject.names()), _version(subject, "order/1")))
    else:
        expect(("applied", 3), _short(receipt))
        program.commit()
        expect(({"a"}, 3), (set(subject.names()), _version(subject, "order/1")))
    _verify(subject, "order/1")


def work_is_signalled_after_the_commit(subject: JoinSubject) -> None:
    """The effect runs in the program's own worker, which does not poll; and not before the COMMIT."""
    program = subject.program
    program.begin()
    program.create("order/1")
    program.send("order/1", "paid")
    expect((), tuple(program.charged()))
    program.commit()
    program.until(lambda: "order/1" in program.charged())
    program.until(lambda: program.state("order/1") == "paid")
    expect("paid", subject.observer.state("order/1").configuration[0])
    _verify(subject, "order/1")


def work_of_a_rolled_back_transaction_never_runs(subject: JoinSubject) -> None:
    """An effect of a later transaction runs, that one's does not."""
    program = subject.program
    subject.observer.create("order/1")
    program.begin()
    program.send("order/1", "paid")
    program.rollback()
    program.begin()
    program.create("order/2")
    program.send("order/2", "paid")
    program.commit()
    program.until(lambda: "order/2" in program.charged())
    expect({"order/2"}, set(program.charged()))
    expect("open", program.state("order/1"))


def the_cache_forgets_an_entity_that_was_changed(subject: JoinSubject) -> None:
    """A send without a transaction, in the same runtime, builds on what the transaction has committed."""
    program = subject.program
    program.begin()
    program.create("order/1")
    program.send("order/1", "noted")
    program.commit()
    program.begin()
    expect(("applied", 3), _short(program.send("order/1", "noted")))
    program.rollback()
    expect("open", program.state("order/1"))
    expect(("applied", 3), _short(subject.observer.send("order/1", "noted")))
    program.begin()
    expect(("applied", 4), _short(program.send("order/1", "noted")))
    program.commit()
    _verify(subject, "order/1")


def an_existing_entity_is_not_created_again(subject: JoinSubject) -> None:
    """The creation is refused, and the transaction continues."""
    program = subject.program
    subject.observer.create("order/1", key="first")
    program.begin()
    receipt = program.create("order/1", key="second")
    expect(("rejected", "entity.exists"), (receipt.outcome, receipt.reason))
    program.write("a")
    program.commit()
    expect(({"a"}, 1), (set(subject.names()), _version(subject, "order/1")))


def refusals_survive_a_rollback(subject: JoinSubject) -> None:
    """They are recorded outside the transaction."""
    program = subject.program
    subject.observer.create("order/1")
    program.begin()
    program.send("order/1", "paid")
    expect("rejected", program.send("order/1", "noted").outcome)
    program.rollback()
    program.until(lambda: bool(_refusals(subject)))
    expect([("order/1", "noted", "rejected")], _refusals(subject))


def counts_are_right_after_many_transactions(subject: JoinSubject) -> None:
    """Committed and rolled back, joined and not."""
    program = subject.program
    for number in range(6):
        program.begin()
        program.create(f"order/{number}")
        if number % 2:
            program.send(f"order/{number}", "noted")
        (program.commit if number % 3 else program.rollback)()
        subject.observer.create(f"order/plain-{number}")
    counts = subject.observer.run(_counts(subject))
    expect({"open": 4 + 6}, counts)
    problems = [each.problem for each in subject.observer.verify_all() if each.problem is not None]
    expect([], problems)


def entities_can_be_locked_first(subject: JoinSubject) -> None:
    """In one order, however they are named; the sends follow in any order."""
    program = subject.program
    for entity in ("order/1", "order/2"):
        subject.observer.create(entity)
    program.begin()
    program.lock("order/2", "order/1", "order/none")
    program.send("order/2", "noted")
    program.send("order/1", "noted")
    program.commit()
    expect((2, 2), (_version(subject, "order/1"), _version(subject, "order/2")))


def other_entities_do_not_wait(subject: JoinSubject) -> None:
    """While the transaction is open, sends to other entities are applied; a SQLite file has one writer."""
    program = subject.program
    for number in range(4):
        subject.observer.create(f"order/{number}")
    program.begin()
    program.write("a")
    program.send("order/0", "paid")
    program.create("order/new")
    if not subject.one_writer:
        for number in (1, 2, 3):
            expect("applied", subject.observer.send(f"order/{number}", "paid").outcome)
            expect("applied", subject.observer.create(f"order/late-{number}").outcome)
    program.commit()
    expect("applied", subject.observer.create("order/last").outcome)
    for number in range(4):
        _verify(subject, f"order/{number}")


JOIN_CASES: tuple[Case, ...] = (
    rows_and_entry_are_committed_together,
    rows_and_entry_are_rolled_back_together,
    a_creation_and_a_send_share_a_transaction,
    several_sends_share_a_transaction,
    a_repeated_key_is_a_duplicate,
    a_key_of_another_event_is_an_error,
    a_refused_event_leaves_the_transaction_usable,
    an_unknown_entity_leaves_the_transaction_usable,
    another_version_than_expected_is_a_conflict,
    a_savepoint_that_is_undone_takes_its_entry_with_it,
    a_savepoint_that_is_released_keeps_its_entry,
    no_event_is_lost_to_a_stale_transaction,
    work_is_signalled_after_the_commit,
    work_of_a_rolled_back_transaction_never_runs,
    the_cache_forgets_an_entity_that_was_changed,
    an_existing_entity_is_not_created_again,
    refusals_survive_a_rollback,
    counts_are_right_after_many_transactions,
    entities_can_be_locked_first,
    other_entities_do_not_wait,
)
"""Every case."""


def _short(receipt: Receipt) -> tuple[str, int]:
    return receipt.outcome, receipt.version


def _version(subject: JoinSubject, entity: str) -> int:
    return subject.observer.state(entity).version


def _verify(subject: JoinSubject, entity: str) -> None:
    expect(None, subject.observer.verify(entity).problem, f"verify {entity}")


def _expect_error(error: type[InterlockError], call: Callable[[], object]) -> InterlockError:
    try:
        answer = call()
    except InterlockError as raised:
        expect(error, type(raised), "the error")
        return raised
    raise AssertionError(f"expected {error.__name__}, got {answer!r}")


def _refusals(subject: JoinSubject) -> list[tuple[str, str, str]]:
    audit = subject.observer.runtime.store.audit
    assert audit is not None
    rows = [each.decode() for each in subject.observer.run(audit.audit_before(None))]
    return [(each.entity, each.event, each.outcome) for each in rows]


async def _counts(subject: JoinSubject) -> dict[str, int]:
    statistics = subject.observer.runtime.store.statistics
    assert statistics is not None
    return {each.state: each.entities for each in await statistics.count_states("order")}
