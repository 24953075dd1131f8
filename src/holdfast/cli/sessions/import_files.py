"""`holdfast sessions import`: conversations from files, each checked before any of them is stored."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import msgspec
import typer

from holdfast.cli.command_context import Desk, JsonOption, carry_out, give, note
from holdfast.cli.format import counted
from holdfast.cli.progress import Bar
from holdfast.cli.wiring import DataOption, DurabilityOption
from holdfast.domain.errors import BadImport, ImportConflict, NoSuchSession
from holdfast.domain.secrets import Mask
from holdfast.domain.transcript.exports import Import, content_of, parse
from holdfast.domain.transcript.labels import title_of
from holdfast.domain.transcript.redaction import Redaction
from holdfast.store.ports import Store

FilesArgument = Annotated[
    list[Path], typer.Argument(metavar="FILE", help="Files that `holdfast sessions export` wrote in JSON.")
]


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one conversation. `conflict`: it is here already and differs; nothing was changed."""

    id: str
    title: str
    outcome: Literal["imported", "updated", "already_here", "conflict"]
    events: int
    detail: str = ""


class _Source:
    """A file of conversations, gone through as often as needed, one of them in memory at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.size = path.stat().st_size
        except OSError as error:
            raise self._unreadable(error) from None

    def __iter__(self) -> Iterator[tuple[Import, int]]:
        """Each conversation, and how many bytes of the file are done. Raises BadImport."""
        try:
            with self.path.open("rb") as file:
                yield from self._documents(file)
        except OSError as error:
            raise self._unreadable(error) from None

    def _documents(self, file: BinaryIO) -> Iterator[tuple[Import, int]]:
        first = file.readline()
        if first.strip() == b"{":  # Some tool has laid it out anew: the object goes on below.
            yield parse(first + file.read(), str(self.path), respaced=True), self.size
            return
        done = count = 0
        for count, line in enumerate(_lines(first, file), 1):
            done += len(line)
            if line.strip():
                yield parse(line, f"{self.path}, line {count}" if count > 1 else str(self.path)), done
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

    async def take_in(desk: Desk) -> tuple[list[Outcome], int]:
        sources = [_Source(path) for path in files]
        with Bar("Checking", shown=not as_json) as bar:
            _check(sources, bar)
            bar.now("Importing")
            async with desk.store(create=True) as store:
                return await _store_all(store, sources, bar, desk.wiring.mask)

    outcomes, changed = carry_out(context, take_in, as_json=as_json, data=data, durability=durability)
    if as_json:
        give(outcomes)
    else:
        for outcome in outcomes:
            _tell(outcome)
    if changed:
        note(f"{counted(changed, 'event')} held a secret of your environment, which was masked.")
    if any(outcome.outcome == "conflict" for outcome in outcomes):
        raise typer.Exit(1)


def _check(sources: list[_Source], bar: Bar) -> None:
    """Read everything once, so that nothing is stored when anything is wrong. Raises BadImport."""
    before, total = 0, sum(source.size for source in sources)
    for source in sources:
        for _, done in source:
            bar(before + done, total)
        before += source.size


async def _store_all(store: Store, sources: list[_Source], bar: Bar, mask: Mask) -> tuple[list[Outcome], int]:
    """What became of each, and how many events held a secret."""
    outcomes: list[Outcome] = []
    changed = 0
    before, total = 0, sum(source.size for source in sources)
    for source in sources:
        for found, done in source:
            redaction = Redaction(mask)
            outcomes.append(await _store_one(store, _without_secrets(found, mask, redaction)))
            changed += redaction.changed
            bar(before + done, total)
        before += source.size
    return outcomes, changed


def _without_secrets(found: Import, mask: Mask, redaction: Redaction) -> Import:
    """What is known to be secret here is not stored here, wherever it comes from. Files stay as they are."""
    redaction.look(found.events)
    told = [redaction.told(event) for event in found.events]
    events = tuple(event for event in told if event is not None)
    return msgspec.structs.replace(found, title=mask.whole(found.title), events=events)


async def _store_one(store: Store, found: Import) -> Outcome:
    title = title_of(found.title)
    try:
        head = await store.head(found.session_id)
    except NoSuchSession:
        head = 0
    try:
        for written in found.files.values():
            await store.put_blob(content_of(written))
        added = await store.adopt(found.session_id, found.events, closes=True)
    except ImportConflict as conflict:
        return Outcome(found.session_id, title, "conflict", 0, str(conflict))
    if not added:
        return Outcome(found.session_id, title, "already_here", 0)
    # Whoever imports a conversation knows it: a hundred of them are not a hundred news.
    await store.see(found.session_id, await store.head(found.session_id))
    return Outcome(found.session_id, title, "updated" if head else "imported", added)


def _tell(outcome: Outcome) -> None:
    title = f"“{outcome.title}” ({outcome.id})"
    match outcome.outcome:
        case "imported":
            print(f"Imported {title}, {counted(outcome.events, 'event')}.")
        case "updated":
            print(f"Added {counted(outcome.events, 'newer event')} to {title}.")
        case "already_here":
            print(f"Already here: {title}.")
        case "conflict":
            note(f"holdfast: {outcome.detail}\nDelete one of the two: the one here stays as it is.")


def _lines(first: bytes, file: BinaryIO) -> Iterator[bytes]:
    yield first
    yield from file
