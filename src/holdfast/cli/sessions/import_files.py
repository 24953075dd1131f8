"""`holdfast sessions import`: check all files of conversations, then store them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import msgspec
import typer

from holdfast.cli.command_context import CommandContext, JsonOption, print_json, print_stderr, run_command
from holdfast.cli.dependencies import DataOption, DurabilityOption
from holdfast.cli.format import format_count
from holdfast.cli.progress import ProgressBar
from holdfast.domain.errors import BadImport, ImportConflict, NoSuchSession
from holdfast.domain.secrets import SecretMask
from holdfast.domain.transcript.exports import ImportedConversation, decode_file, parse_export
from holdfast.domain.transcript.labels import display_title
from holdfast.domain.transcript.redaction import Redactor
from holdfast.store.ports import Store

FilesArgument = Annotated[
    list[Path], typer.Argument(metavar="FILE", help="Files that `holdfast sessions export` wrote in JSON.")
]


class ImportOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result for one conversation. `conflict`: a different one has its id; nothing was changed."""

    id: str
    title: str
    outcome: Literal["imported", "updated", "already_here", "conflict"]
    events: int
    detail: str = ""


class _ImportFile:
    """A file of conversations that can be iterated repeatedly, with one of them in memory at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.size = path.stat().st_size
        except OSError as error:
            raise self._unreadable(error) from None

    def __iter__(self) -> Iterator[tuple[ImportedConversation, int]]:
        """Yield each conversation and the number of bytes read so far. Raises BadImport."""
        try:
            with self.path.open("rb") as file:
                yield from self._documents(file)
        except OSError as error:
            raise self._unreadable(error) from None

    def _documents(self, file: BinaryIO) -> Iterator[tuple[ImportedConversation, int]]:
        first = file.readline()
        if first.strip() == b"{":  # Reformatted by some tool: the object spans several lines.
            yield parse_export(first + file.read(), str(self.path), is_reformatted=True), self.size
            return
        done = count = 0
        for count, line in enumerate(_chain_lines(first, file), 1):
            done += len(line)
            if line.strip():
                yield parse_export(line, f"{self.path}, line {count}" if count > 1 else str(self.path)), done
        if not done:
            raise BadImport(path=self.path, why="it is empty")

    def _unreadable(self, error: OSError) -> BadImport:
        return BadImport(path=self.path, why=f"it cannot be read ({error.strerror})")


def import_files(
    context: typer.Context,
    files: FilesArgument,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Import conversations that were exported in JSON. What is here already stays as it is."""

    async def run_import(command: CommandContext) -> tuple[list[ImportOutcome], int]:
        sources = [_ImportFile(path) for path in files]
        with ProgressBar("Checking", shown=not as_json) as bar:
            _check(sources, bar)
            bar.start_phase("Importing")
            async with command.store(create=True) as store:
                return await _store_all(store, sources, bar, command.dependencies.mask)

    outcomes, changed = run_command(context, run_import, as_json=as_json, data=data, durability=durability)
    if as_json:
        print_json(outcomes)
    else:
        for outcome in outcomes:
            _print_outcome(outcome)
    if changed:
        print_stderr(f"{format_count(changed, 'event')} held a secret of your environment, which was masked.")
    if any(outcome.outcome == "conflict" for outcome in outcomes):
        raise typer.Exit(1)


def _check(sources: list[_ImportFile], bar: ProgressBar) -> None:
    """Read all files, so that nothing is stored if one is invalid. Raises BadImport."""
    before, total = 0, sum(source.size for source in sources)
    for source in sources:
        for _, done in source:
            bar(before + done, total)
        before += source.size


async def _store_all(
    store: Store, sources: list[_ImportFile], bar: ProgressBar, mask: SecretMask
) -> tuple[list[ImportOutcome], int]:
    """Store the conversations; return their outcomes and the number of events that held a secret."""
    outcomes: list[ImportOutcome] = []
    changed = 0
    before, total = 0, sum(source.size for source in sources)
    for source in sources:
        for found, done in source:
            redaction = Redactor(mask)
            outcomes.append(await _store_one(store, _without_secrets(found, mask, redaction)))
            changed += redaction.changed
            bar(before + done, total)
        before += source.size
    return outcomes, changed


def _without_secrets(
    found: ImportedConversation, mask: SecretMask, redaction: Redactor
) -> ImportedConversation:
    """Return the conversation with known secrets masked, except in its files."""
    redaction.scan(found.events)
    redacted = [redaction.redact(event) for event in found.events]
    events = tuple(event for event in redacted if event is not None)
    return msgspec.structs.replace(found, title=mask.mask(found.title), events=events)


async def _store_one(store: Store, found: ImportedConversation) -> ImportOutcome:
    title = display_title(found.title)
    try:
        head = await store.head(found.session_id)
    except NoSuchSession:
        head = 0
    try:
        for file in found.files.values():
            await store.put_blob(decode_file(file))
        added = await store.import_session(found.session_id, found.events, cancel_open_runs=True)
    except ImportConflict as conflict:
        return ImportOutcome(found.session_id, title, "conflict", 0, str(conflict))
    if not added:
        return ImportOutcome(found.session_id, title, "already_here", 0)
    # The user knows what they import, so it does not show as unread.
    await store.mark_read(found.session_id, await store.head(found.session_id))
    return ImportOutcome(found.session_id, title, "updated" if head else "imported", added)


def _print_outcome(outcome: ImportOutcome) -> None:
    title = f"“{outcome.title}” ({outcome.id})"
    match outcome.outcome:
        case "imported":
            print(f"Imported {title}, {format_count(outcome.events, 'event')}.")
        case "updated":
            print(f"Added {format_count(outcome.events, 'newer event')} to {title}.")
        case "already_here":
            print(f"Already here: {title}.")
        case "conflict":
            print_stderr(f"holdfast: {outcome.detail}\nDelete one of the two: the one here stays as it is.")


def _chain_lines(first: bytes, file: BinaryIO) -> Iterator[bytes]:
    yield first
    yield from file
