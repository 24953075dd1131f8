"""`holdfast sessions export`: conversations as a file, in JSON to come back or in Markdown to read."""

import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.cli.command_context import Desk, ForceOption, JsonOption, carry_out, give, note
from holdfast.cli.errors import NoStore
from holdfast.cli.files import Write, check_target, written
from holdfast.cli.format import counted
from holdfast.cli.progress import Bar
from holdfast.cli.sessions.find import Found, every, find, slices, transcript
from holdfast.cli.wiring import DataOption, DurabilityOption
from holdfast.domain.errors import NoSuchBlob, NoSuchSession
from holdfast.domain.secrets import Mask, masked
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.transcript import exports
from holdfast.domain.transcript.markdown import markdown
from holdfast.domain.transcript.redaction import Redaction
from holdfast.status import in_bytes
from holdfast.store.ports import Store


class Format(StrEnum):
    json = "json"
    markdown = "markdown"


IdArgument = Annotated[
    str | None, typer.Argument(metavar="ID", help="The conversation's id, or how it begins.")
]
AllOption = Annotated[bool, typer.Option("--all", help="Export every conversation into one file.")]
FormatOption = Annotated[
    Format,
    typer.Option("--format", help="`json` holds everything and can be imported; `markdown` reads well."),
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE, not to the screen.")
]


class Exported(msgspec.Struct, frozen=True):
    file: str
    conversations: int
    bytes: int


class _Export:
    """Writes conversations one after the other, counting what it writes."""

    def __init__(self, store: Store, write: Write, format_: Format, bar: Bar, mask: Mask) -> None:
        self._store = store
        self._write = write
        self._format = format_
        self._bar = bar
        self._mask = mask
        self.size = 0
        self.count = 0
        self.missing = 0
        self.masked = 0

    async def add(self, found: Found) -> None:
        row = masked(found.row, self._mask.whole)
        if self._format is Format.json:
            await self._add_json(row, found)
        else:
            said = masked(await transcript(self._store, found, self._bar), self._mask.whole)
            told = markdown(row, said)
            self._put((b"\n---\n\n" if self.count else b"") + told.encode("utf-8", "replace"))
        self.count += 1

    async def _add_json(self, row: SessionRow, found: Found) -> None:
        self._put(exports.opening(row.id, row.title))
        files: dict[str, None] = {}
        comma = b""
        redaction = await self._looked_at(found)
        async for events in slices(self._store, found, self._bar):
            told = [event for each in events if (event := redaction.told(each)) is not None]
            if told:
                self._put(comma + b",".join(exports.event_object(event) for event in told))
                comma = b","
            files |= dict.fromkeys(digest for event in events for digest in exports.files_in(event))
        self.masked += redaction.changed
        self._put(exports.BETWEEN)
        comma = b""
        for digest in files:
            try:
                content = await self._store.get_blob(digest)
            except NoSuchBlob:
                self.missing += 1
                continue
            self._put(comma + exports.file_member(digest, content))
            comma = b","
        self._put(exports.CLOSING)

    async def _looked_at(self, found: Found) -> Redaction:
        """Learn what must be known of all events before the first of them is written."""
        redaction = Redaction(self._mask)
        if redaction.is_needed:
            async for events in slices(self._store, found, self._bar):
                redaction.look(events)
        return redaction

    def _put(self, piece: bytes) -> None:
        self._write(piece)
        self.size += len(piece)


def export(
    context: typer.Context,
    session: IdArgument = None,
    all_: AllOption = False,
    format_: FormatOption = Format.json,
    output: OutputOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Export a conversation, or all of them, to a file or to the screen."""
    if (session is None) != all_:
        raise typer.BadParameter("Give the ID of a conversation, or --all.")
    target = None if output is None or str(output) == "-" else output

    async def copy(desk: Desk) -> _Export:
        if target is not None:
            check_target(target, force, desk.settings.data)
        try:
            async with desk.store() as store:
                return await _copy(store, session, format_, target, desk.wiring.mask, shown=not as_json)
        except NoStore:
            if session is None:
                raise
            raise NoSuchSession(session_id=session) from None

    done = carry_out(context, copy, as_json=as_json, data=data, durability=durability)
    if done.missing:
        note(f"{counted(done.missing, 'attached file')} could not be found and left out.")
    if done.masked:
        note(f"{counted(done.masked, 'event')} held a secret of your environment, which was masked.")
    if target is None:
        sys.stdout.flush()
    elif as_json:
        give(Exported(str(target.absolute()), done.count, done.size))
    else:
        print(f"Exported {counted(done.count, 'conversation')} to {target} ({in_bytes(done.size)}).")


async def _copy(
    store: Store, session: str | None, format_: Format, target: Path | None, mask: Mask, shown: bool
) -> _Export:
    # Found before a file is begun: a wrong id leaves nothing behind.
    one = await store.snapshot(partial(find, text=session)) if session is not None else None
    with Bar("Exporting", shown=shown and (target is not None or not sys.stdout.isatty())) as bar:
        if target is None:
            return await _write_all(_Export(store, sys.stdout.buffer.write, format_, bar, mask), store, one)
        with written(target) as write:
            return await _write_all(_Export(store, write, format_, bar, mask), store, one)


async def _write_all(export: _Export, store: Store, one: Found | None) -> _Export:
    if one is not None:
        await export.add(one)
        return export
    for session_id in await store.snapshot(lambda snapshot: [row.id for row in every(snapshot)]):
        # One that was deleted since it was listed is left out.
        try:
            found = await store.snapshot(partial(find, text=session_id))
        except NoSuchSession:
            continue
        await export.add(found)
    return export
