"""`holdfast sessions export`: write conversations to a file, as JSON to import or as Markdown to read."""

import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.cli.command_context import (
    CommandContext,
    ForceOption,
    JsonOption,
    print_json,
    print_stderr,
    run_command,
)
from holdfast.cli.dependencies import DataOption, DurabilityOption
from holdfast.cli.errors import NoStore
from holdfast.cli.files import WriteBytes, check_target, write_atomically
from holdfast.cli.format import format_count
from holdfast.cli.progress import ProgressBar
from holdfast.cli.sessions.find import (
    FoundSession,
    find_session,
    iter_all_sessions,
    load_transcript,
    read_slices,
)
from holdfast.domain.errors import NoSuchBlob, NoSuchSession
from holdfast.domain.secrets import SecretMask, mask_value
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.transcript import exports
from holdfast.domain.transcript.markdown import to_markdown
from holdfast.domain.transcript.redaction import Redactor
from holdfast.status import format_bytes
from holdfast.store.ports import Store


class ExportFormat(StrEnum):
    json = "json"
    markdown = "markdown"


IdArgument = Annotated[
    str | None, typer.Argument(metavar="ID", help="The conversation's id, or how it begins.")
]
AllOption = Annotated[bool, typer.Option("--all", help="Export every conversation into one file.")]
FormatOption = Annotated[
    ExportFormat,
    typer.Option("--format", help="`json` holds everything and can be imported; `markdown` reads well."),
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE, not to the screen.")
]


class ExportResult(msgspec.Struct, frozen=True):
    file: str
    conversations: int
    bytes: int


class _SessionExporter:
    """A writer of conversations that counts what it writes."""

    def __init__(
        self, store: Store, write: WriteBytes, format_: ExportFormat, bar: ProgressBar, mask: SecretMask
    ) -> None:
        self._store = store
        self._write = write
        self._format = format_
        self._bar = bar
        self._mask = mask
        self.size = 0
        self.count = 0
        self.missing = 0
        self.masked = 0

    async def add(self, found: FoundSession) -> None:
        row = mask_value(found.row, self._mask.mask)
        if self._format is ExportFormat.json:
            await self._add_json(row, found)
        else:
            transcript = mask_value(await load_transcript(self._store, found, self._bar), self._mask.mask)
            text = to_markdown(row, transcript)
            self._write_bytes((b"\n---\n\n" if self.count else b"") + text.encode("utf-8", "replace"))
        self.count += 1

    async def _add_json(self, row: SessionRow, found: FoundSession) -> None:
        self._write_bytes(exports.export_head(row.id, row.title))
        files: dict[str, None] = {}
        comma = b""
        redaction = await self._prepare_redaction(found)
        async for events in read_slices(self._store, found, self._bar):
            redacted = [kept for event in events if (kept := redaction.redact(event)) is not None]
            if redacted:
                self._write_bytes(comma + b",".join(exports.export_event(event) for event in redacted))
                comma = b","
            files |= dict.fromkeys(digest for event in events for digest in exports.file_digests(event))
        self.masked += redaction.changed
        self._write_bytes(exports.FILES_START)
        comma = b""
        for digest in files:
            try:
                content = await self._store.get_blob(digest)
            except NoSuchBlob:
                self.missing += 1
                continue
            self._write_bytes(comma + exports.export_file(digest, content))
            comma = b","
        self._write_bytes(exports.EXPORT_END)

    async def _prepare_redaction(self, found: FoundSession) -> Redactor:
        """Return a redactor that has scanned all events, which it must before the first one is written."""
        redaction = Redactor(self._mask)
        if redaction.is_needed:
            async for events in read_slices(self._store, found, self._bar):
                redaction.scan(events)
        return redaction

    def _write_bytes(self, piece: bytes) -> None:
        self._write(piece)
        self.size += len(piece)


def export(
    context: typer.Context,
    session: IdArgument = None,
    all_: AllOption = False,
    format_: FormatOption = ExportFormat.json,
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

    async def run_export(command: CommandContext) -> _SessionExporter:
        if target is not None:
            check_target(target, force, command.settings.data)
        try:
            async with command.store() as store:
                return await _export_to_target(
                    store, session, format_, target, command.dependencies.mask, shown=not as_json
                )
        except NoStore:
            if session is None:
                raise
            raise NoSuchSession(session_id=session) from None

    exporter = run_command(context, run_export, as_json=as_json, data=data, durability=durability)
    if exporter.missing:
        print_stderr(f"{format_count(exporter.missing, 'attached file')} could not be found and left out.")
    if exporter.masked:
        print_stderr(
            f"{format_count(exporter.masked, 'event')} held a secret of your environment, which was masked."
        )
    if target is None:
        sys.stdout.flush()
    elif as_json:
        print_json(ExportResult(str(target.absolute()), exporter.count, exporter.size))
    else:
        conversations = format_count(exporter.count, "conversation")
        print(f"Exported {conversations} to {target} ({format_bytes(exporter.size)}).")


async def _export_to_target(
    store: Store,
    session: str | None,
    format_: ExportFormat,
    target: Path | None,
    mask: SecretMask,
    shown: bool,
) -> _SessionExporter:
    # Looked up before the file is created, so that a wrong id leaves no file behind.
    session_found = await store.snapshot(partial(find_session, text=session)) if session is not None else None
    with ProgressBar("Exporting", shown=shown and (target is not None or not sys.stdout.isatty())) as bar:
        if target is None:
            return await _write_all(
                _SessionExporter(store, sys.stdout.buffer.write, format_, bar, mask), store, session_found
            )
        with write_atomically(target) as write:
            return await _write_all(_SessionExporter(store, write, format_, bar, mask), store, session_found)


async def _write_all(
    export: _SessionExporter, store: Store, session_found: FoundSession | None
) -> _SessionExporter:
    if session_found is not None:
        await export.add(session_found)
        return export
    for session_id in await store.snapshot(lambda snapshot: [row.id for row in iter_all_sessions(snapshot)]):
        # A conversation that was deleted since the listing is skipped.
        try:
            found = await store.snapshot(partial(find_session, text=session_id))
        except NoSuchSession:
            continue
        await export.add(found)
    return export
