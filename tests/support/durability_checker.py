"""Compare a store with what its clients were acknowledged: find lost, partial, changed or invented events."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from holdfast.domain.errors import NoSuchSession
from holdfast.domain.events.parts import File
from holdfast.domain.ids import Seq, SessionId
from holdfast.domain.limits import PAGE_SESSIONS_MAX, READ_EVENTS_MAX
from holdfast.store.maintenance import StoreFinding
from holdfast.store.sqlite.blobs import digest_of as digest_of_blob
from holdfast.store.sqlite.store import SqliteStore
from tests.support.store_client import digest_of_event

Journals = Mapping[SessionId, Mapping[Seq, str]]
"""The digest of each event by its number, for each session."""


class ExpectedChange(msgspec.Struct):
    """A change that a client requested; `first` is set once it was acknowledged."""

    members: dict[SessionId, list[str]]
    first: dict[SessionId, Seq] = {}
    due_from: int = 0
    """The moment from which the change must be in the store, in any unit that the test counts."""


class DurabilityReport(msgspec.Struct):
    """The problems of a store."""

    lost: list[str] = []
    partial: list[str] = []
    altered: list[str] = []
    findings: Sequence[StoreFinding] = ()

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.partial or self.altered or self.findings)


def check_durability(
    promises: Sequence[ExpectedChange],
    journals: Journals,
    is_due: Callable[[ExpectedChange], bool],
    may_be_deleted: Callable[[SessionId], bool],
) -> DurabilityReport:
    """Compare. A session whose deletion was requested may be gone, the deltas of a settled message pruned."""
    report = DurabilityReport()
    digest_counts = Counter(
        (s, digest) for each in promises for s, digests in each.members.items() for digest in digests
    )
    numbers = {session: {digest: seq for seq, digest in each.items()} for session, each in journals.items()}
    for promise in promises:
        if any(may_be_deleted(session) for session in promise.members):
            continue
        there, missing = _check_promise(promise, journals, numbers, report, digest_counts)
        if missing and is_due(promise):
            report.lost += missing
        elif missing and there:
            report.partial += missing
    return report


def _check_promise(
    promise: ExpectedChange,
    journals: Journals,
    numbers: Mapping[SessionId, Mapping[str, Seq]],
    report: DurabilityReport,
    digest_counts: Mapping[tuple[SessionId, str], int],
) -> tuple[list[str], list[str]]:
    there: list[str] = []
    missing: list[str] = []
    for session, digests in promise.members.items():
        journal = journals.get(session, {})
        head = max(journal, default=0)
        for i, digest in enumerate(digests):
            seq = promise.first[session] + i if promise.first else numbers.get(session, {}).get(digest, 0)
            name = f"{session}:{seq}"
            found = journal.get(seq)
            if found == digest:
                # Of a change that nobody heard of again: a fact that another one says too proves nothing.
                if promise.first or digest_counts[session, digest] == 1:
                    there.append(name)
            elif found is not None:
                report.altered.append(f"{name} is {found}, was {digest}")
            elif not (digest.startswith("~") and 0 < seq < head):
                missing.append(name)
    return there, missing


async def read_journals(store: SqliteStore) -> Journals:
    """Return every event of every session, after checking that each file they name is complete."""
    journals: dict[SessionId, dict[Seq, str]] = {}
    for archived in (False, True):
        cursor: str | None = None
        while True:
            page = await store.sessions(cursor, PAGE_SESSIONS_MAX, archived)
            for row in page.sessions:
                journals[row.id] = await _read_journal(store, row.id)
            cursor = page.cursor
            if cursor is None:
                break
    return journals


async def _read_journal(store: SqliteStore, session_id: SessionId) -> dict[Seq, str]:
    journal: dict[Seq, str] = {}
    after = 0
    try:
        while events := await store.read(session_id, after, READ_EVENTS_MAX):
            for event in events:
                journal[event.seq] = digest_of_event(event)
                if b'"file"' in event.body:
                    await _check_files(store, getattr(event.fact, "parts", ()))
            after = events[-1].seq
    except NoSuchSession:
        return {}  # Deleted by a process that is still at work.
    return journal


async def _check_files(store: SqliteStore, parts: Sequence[object]) -> None:
    for part in parts:
        if isinstance(part, File):
            content = await store.get_blob(part.blob)
            assert digest_of_blob(content) == part.blob and len(content) == part.size_bytes
