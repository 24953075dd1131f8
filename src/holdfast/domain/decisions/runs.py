"""Decide the state changes of a run: from its row and a command to the facts that follow.

Every function here is a pure decision: it returns facts for the caller to commit in one transaction, or
raises RunRefused. `endings` settles what a run leaves open.
"""

from collections.abc import Mapping
from types import MappingProxyType

from holdfast.domain.clock import Instant
from holdfast.domain.errors import RunRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.ids import MessageId, ProcessId
from holdfast.domain.limits import RECOVERY_PLACES, RESUME_ATTEMPTS_MAX, RESUME_ATTEMPTS_STALLED_MAX
from holdfast.domain.state.rows import RunRow, RunStatus
from holdfast.domain.usage import Rate

ALLOWED_STATUSES: Mapping[str, frozenset[RunStatus]] = MappingProxyType({
    "be queued": frozenset({"accepted"}),
    "leave the queue": frozenset({"queued"}),
    "start": frozenset({"accepted"}),
    "prepare its context": frozenset({"running"}),
    "begin a step": frozenset({"running"}),
    "be told more": frozenset({"running"}),
    "wait": frozenset({"running"}),
    "be answered": frozenset({"waiting"}),
    "be resumed": frozenset({"interrupted"}),
    "be interrupted": frozenset({"running"}),
    "complete": frozenset({"running"}),
    "fail": frozenset({"accepted", "running", "waiting"}),
    "be cancelled": frozenset({"accepted", "queued", "running", "waiting", "interrupted"}),
})  # fmt: skip
"""The statuses in which a run accepts each command: the only table of the machine's edges."""


def check_allowed(run: RunRow, verb: str) -> None:
    """Raise RunRefused unless `run` may do `verb` now."""
    if run.status not in ALLOWED_STATUSES[verb]:
        raise RunRefused(run_id=run.id, status=run.status, verb=verb)


def next_place(run: RunRow) -> int:
    """Return the place of the run's next message, call or steered message in its turn."""
    return run.place + 1


def queue(run: RunRow) -> list[f.AnyFact]:
    check_allowed(run, "be queued")
    return [f.TurnQueued(run.turn, run.id)]


def dequeue(run: RunRow) -> list[f.AnyFact]:
    check_allowed(run, "leave the queue")
    return [f.TurnDequeued(run.turn, run.id)]


def start(run: RunRow) -> list[f.AnyFact]:
    check_allowed(run, "start")
    return [f.RunStarted(run.id)]


def prepare(run: RunRow, instructions_digest: str, memories: tuple[str, ...] = ()) -> list[f.AnyFact]:
    """Record what the run is given besides the transcript."""
    check_allowed(run, "prepare its context")
    return [f.ContextPrepared(run.id, instructions_digest, memories)]


def begin_step(
    run: RunRow,
    message_id: MessageId,
    model: str,
    continues: MessageId | None = None,
    asked_tokens: int = 0,
    rate: Rate | None = None,
) -> f.ModelStepStarted:
    """Start a model step, whose message takes the next place."""
    check_allowed(run, "begin a step")
    place = next_place(run)
    return f.ModelStepStarted(run.id, run.turn, place, message_id, model, continues, asked_tokens, rate)


def steer(
    run: RunRow,
    message_id: MessageId,
    parts: tuple[AnyPart, ...],
    place: int | None = None,
    from_turn: int = 0,
) -> list[f.AnyFact]:
    """Give the run a person's message before its next step: the one of the queued turn `from_turn`."""
    check_allowed(run, "be told more")
    message_place = place if place is not None else next_place(run)
    return [f.TurnSteered(run.id, run.turn, message_place, message_id, parts, from_turn=from_turn)]


def wait(run: RunRow, reason: f.WaitReason, detail: str = "") -> list[f.AnyFact]:
    """Make the run wait for a person. The caller releases its lease after the commit."""
    check_allowed(run, "wait")
    return [f.RunWaiting(run.id, reason, detail)]


def continue_run(run: RunRow, by: f.Actor = "user") -> list[f.AnyFact]:
    """Continue a run that waits at a limit, with one more allowance, or one that was interrupted."""
    return answer(run, by) if run.waiting == "limit" else resume(run, by)


def answer(run: RunRow, by: f.Actor = "user") -> list[f.AnyFact]:
    """Continue a waiting run whose answer is there; this costs no attempt."""
    check_allowed(run, "be answered")
    return [f.RunResumed(run.id, by, run.attempts)]


def resume(run: RunRow, by: f.Actor = "policy") -> list[f.AnyFact]:
    """Resume an interrupted run from its last durable step; this costs an attempt."""
    check_allowed(run, "be resumed")
    return [f.RunResumed(run.id, by, run.attempts + 1)]


def complete(run: RunRow, remembers: bool = False, owner: str = "") -> list[f.AnyFact]:
    """Complete the run; with `remembers`, its turn joins the memory queue for `owner`."""
    check_allowed(run, "complete")
    return [f.RunCompleted(run.id, remembers, owner)]


def mark_interrupted(
    run: RunRow, message_id: MessageId, asks: bool = False, orderly: bool = False
) -> f.RunInterrupted:
    """Leave a notice, and free places before it for output that is recovered later."""
    check_allowed(run, "be interrupted")
    return f.RunInterrupted(run.id, run.turn, run.place + RECOVERY_PLACES, message_id, asks, orderly)


def may_resume(run: RunRow) -> bool:
    """Return whether the run has attempts left to resume on its own."""
    return run.attempts < RESUME_ATTEMPTS_MAX and run.stalled < RESUME_ATTEMPTS_STALLED_MAX


def await_recovery(run: RunRow, process_id: ProcessId, since: Instant, reads: int = 0) -> list[f.AnyFact]:
    """Mark the run's notice as pending: more output may still arrive from a process."""
    place = _notice_place(run, "be recovered")
    return [f.RecoveryPending(run.id, run.turn, place, process_id, since, reads)]


def finish_recovery(run: RunRow, recovered: bool) -> list[f.AnyFact]:
    """End the recovery; the same append settles any output that was found."""
    return [f.RecoveryFinished(run.id, run.turn, _notice_place(run, "be recovered"), recovered)]


def _notice_place(run: RunRow, verb: str) -> int:
    # The run may have been resumed or ended during the recovery.
    if run.notice_place is None:
        raise RunRefused(run_id=run.id, status=run.status, verb=verb)
    return run.notice_place
