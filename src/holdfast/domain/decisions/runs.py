"""The run's state machine: from what a run is, and a command, to the facts that follow.

Every function here is a decision: pure, it returns facts for the caller to commit in one transaction, or
raises RunRefused and nothing has happened. Settling what a run leaves open is in `endings`.
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
"""Which commands a run takes in which state; the one table of the machine's edges."""


def check_allowed(run: RunRow, verb: str) -> None:
    """Raise RunRefused unless `run` may do `verb` now."""
    if run.status not in ALLOWED_STATUSES[verb]:
        raise RunRefused(run_id=run.id, status=run.status, verb=verb)


def next_place(run: RunRow) -> int:
    """The place that the run's next message, call or steered message takes in its turn."""
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
    """Record what the run is given beside the transcript."""
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
    """Ask a model; its message takes the next place."""
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
    """Give the run a person's message to read before its next step: what the queued turn `from_turn` said."""
    check_allowed(run, "be told more")
    message_place = place if place is not None else next_place(run)
    return [f.TurnSteered(run.id, run.turn, message_place, message_id, parts, from_turn=from_turn)]


def wait(run: RunRow, reason: f.WaitReason, detail: str = "") -> list[f.AnyFact]:
    """The run needs someone. Its lease is to be released after this is committed."""
    check_allowed(run, "wait")
    return [f.RunWaiting(run.id, reason, detail)]


def continue_run(run: RunRow, by: f.Actor = "user") -> list[f.AnyFact]:
    """Let a run go on that waits at a limit, with one more allowance, or one that was interrupted."""
    return answer(run, by) if run.waiting == "limit" else resume(run, by)


def answer(run: RunRow, by: f.Actor = "user") -> list[f.AnyFact]:
    """What a waiting run needed is there: it goes on, and that costs no attempt."""
    check_allowed(run, "be answered")
    return [f.RunResumed(run.id, by, run.attempts)]


def resume(run: RunRow, by: f.Actor = "policy") -> list[f.AnyFact]:
    """An interrupted run goes on from its last durable step; that costs an attempt."""
    check_allowed(run, "be resumed")
    return [f.RunResumed(run.id, by, run.attempts + 1)]


def complete(run: RunRow, remembers: bool = False, owner: str = "") -> list[f.AnyFact]:
    """The run came to its end; `owed`: its turn is owed to memory from this moment on."""
    check_allowed(run, "complete")
    return [f.RunCompleted(run.id, remembers, owner)]


def mark_interrupted(
    run: RunRow, message_id: MessageId, asks: bool = False, orderly: bool = False
) -> f.RunInterrupted:
    """Leave a notice, with room before it for output that is found later."""
    check_allowed(run, "be interrupted")
    return f.RunInterrupted(run.id, run.turn, run.place + RECOVERY_PLACES, message_id, asks, orderly)


def may_resume(run: RunRow) -> bool:
    """Whether the run's budget of attempts lets it go on by itself."""
    return run.attempts < RESUME_ATTEMPTS_MAX and run.stalled < RESUME_ATTEMPTS_STALLED_MAX


def await_recovery(run: RunRow, process_id: ProcessId, since: Instant, reads: int = 0) -> list[f.AnyFact]:
    """More of an interrupted run's output may still arrive from a process: its notice says so."""
    place = _notice_place(run, "be recovered")
    return [f.RecoveryPending(run.id, run.turn, place, process_id, since, reads)]


def finish_recovery(run: RunRow, recovered: bool) -> list[f.AnyFact]:
    """The looking has ended; output that was found is settled in the same append."""
    return [f.RecoveryFinished(run.id, run.turn, _notice_place(run, "be recovered"), recovered)]


def _notice_place(run: RunRow, verb: str) -> int:
    # A run may have been resumed or ended while the rest of its output was looked for.
    if run.notice_place is None:
        raise RunRefused(run_id=run.id, status=run.status, verb=verb)
    return run.notice_place
