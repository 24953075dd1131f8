"""What `holdfast doctor` does, step by step, beside a server that may be running."""

import os
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from holdfast.domain.errors import StoreCorrupt
from holdfast.domain.ids import SessionId
from holdfast.store.ports import Finding, Progress
from holdfast.store.sqlite import backup, doctor, notes
from holdfast.store.sqlite.connection import Place
from holdfast.store.sqlite.journal import Tx
from holdfast.store.sqlite.readers import Readers
from holdfast.store.sqlite.views import count_sessions


class Writing(Protocol):
    """Runs something inside a write transaction."""

    def __call__(self, work: Callable[[Tx], Any]) -> Awaitable[Any]: ...


class Checkup:
    """One examination of one store."""

    def __init__(self, place: Place, readers: Readers, write: Writing) -> None:
        self._place = place
        self._readers = readers
        self._write = write

    async def run(self, mend: bool, progress: Progress) -> list[Finding]:
        found = await self._check_file(progress)
        try:
            found += await self._check_sessions(mend, progress)
            found += await self._check_search(mend)
            found += await self._check_notes(mend)
        except StoreCorrupt as fault:
            # A damaged file may not let itself be read to the end; what was found is told all the same.
            found.append(Finding("file", str(fault)))
        return found

    async def _check_file(self, progress: Progress) -> list[Finding]:
        copy = self._place.folder / "checking.db"
        disk = os.statvfs(self._place.folder)
        size, free = self._place.file.stat().st_size, disk.f_bavail * disk.f_frsize
        if free < 2 * size:
            what = f"not checked: a copy needs {size // 1_000_000} MB more free disk than there is"
            return [Finding("file", what)]
        try:
            await self._readers.run(backup.copy, self._place, copy, progress)
            return await self._readers.run(doctor.file_findings, copy)
        finally:
            copy.unlink(missing_ok=True)

    async def _check_sessions(self, mend: bool, progress: Progress) -> list[Finding]:
        found: list[Finding] = []
        done, total, no = 0, await self._readers.read(count_sessions), 0
        while (session := await self._readers.read(doctor.next_session, no)) is not None:
            no = session[0]
            found += await self._check_session(no, session[1], mend)
            done += 1
            progress(done, max(done, total))
        return found

    async def _check_session(self, no: int, session_id: SessionId, mend: bool) -> list[Finding]:
        folding = doctor.Folding(session_id)
        # Folded outside any transaction, a slice at a time; only the last few events are read inside one.
        while events := await self._readers.read(doctor.read_slice, no, folding.head):
            folding.add(events)
        wrong = await self._readers.read(doctor.compare, no, folding)
        where = f"conversation {session_id}"
        faults = [Finding(where, fault) for fault in folding.faults()]
        if wrong and mend:
            await self._write(lambda tx: doctor.mend(tx, no, folding))
        return faults + [
            Finding(where, f"{row} does not say what was recorded", mended=mend) for row in wrong
        ]

    async def _check_search(self, mend: bool) -> list[Finding]:
        missing = after = 0
        while True:
            more, after = await self._readers.read(doctor.unindexed, after)
            missing += more
            if not after:
                break
        if not missing:
            return []
        if mend:
            await self._write(doctor.reset_search)
        return [Finding("search", f"{missing} messages are not in the index", mended=mend)]

    async def _check_notes(self, mend: bool) -> list[Finding]:
        wrong = await self._readers.read(notes.misplaced)
        if wrong and mend:
            await self._write(notes.mend_words)
        what = f"{wrong} notes are not in the index as they are remembered"
        return [Finding("notes", what, mended=mend)] if wrong else []
