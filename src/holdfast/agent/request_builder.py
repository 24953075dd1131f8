"""Build a run's requests: attach files, measure them against the window, shorten those too long."""

from base64 import b64encode
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from holdfast.agent.ports import Recorder
from holdfast.domain.context.context import (
    FileContent,
    Request,
    TokenBudget,
    UserMessage,
    build_request,
    estimate_tokens,
)
from holdfast.domain.context.request import Effort
from holdfast.domain.context.tokens import token_factor
from holdfast.domain.events.parts import AnyPart, File, Text
from holdfast.domain.files import PDF, FileKind, file_kind, file_parts, forced_blobs
from holdfast.domain.limits import REQUEST_FILE_BYTES_MAX
from holdfast.domain.transcript.transcript import Entry, Transcript
from holdfast.models.ports import Model, ModelFailure, ToolSpec
from holdfast.models.request_text import UNSUPPORTED_FILE, file_text, tools_tokens
from holdfast.tools.files.pdf_text import PdfTextExtractor

GONE = FileContent("note", "is no longer here")
NO_ROOM = FileContent("note", "is left out: there are too many files for one request")


class Attachments:
    """The files of one run. A file that the next step does not need is evicted."""

    def __init__(self, recorder: Recorder, pdfs: PdfTextExtractor) -> None:
        self._recorder = recorder
        self._pdfs = pdfs
        self._read: dict[str, FileContent] = {}
        self._pdf_texts: dict[str, FileContent] = {}

    async def with_pdf_text(self, transcript: Transcript, model: Model) -> Transcript:
        """Return `transcript` with text in place of PDF files, for a model that takes no PDF files.

        The text then counts towards the window, and is shortened with the rest. Files are read from the
        newest on until their text fills the window.
        """
        entries = [entry for turn in transcript.turns if turn.live for entry in turn.entries]
        files = [file for entry in reversed(entries) for file in reversed(_pdfs_in(entry))]
        if not files or "pdf" in (await model.supported_files()).kinds:
            return transcript
        room = max(model.profile.window_tokens, model.profile.largest_tokens)
        texts: dict[str, FileContent] = {}
        for file in files:
            if room > 0 and file.blob not in texts:
                texts[file.blob] = await self._pdf_text(file.blob)
                room -= estimate_tokens(texts[file.blob].body)
        self._pdf_texts = texts
        turns = tuple(
            replace(turn, entries=tuple(_with_pdf_text(entry, texts) for entry in turn.entries))
            for turn in transcript.turns
        )
        return replace(transcript, turns=turns)

    async def _pdf_text(self, blob: str) -> FileContent:
        found = self._pdf_texts.get(blob) or self._pdfs.cached(blob)
        if found is not None:
            return found
        content = await self._recorder.read_blob(blob)
        return GONE if content is None else await self._pdfs.read(blob, content)

    async def attach(self, request: Request, model: Model) -> Request:
        """Return `request` with the contents of its files, the newest first while there is room."""
        files = _newest_first(request)
        if not files:
            return request
        takes, room = await model.supported_files(), REQUEST_FILE_BYTES_MAX
        anyway = forced_blobs(part for message in request.messages for part in message.parts)
        contents: dict[str, FileContent] = {}
        for file in files:
            kind = file_kind(file.media_type)
            if kind is None or not takes.accepts(kind, file.blob in anyway):
                # The text of PDF files stands in the messages already, as far as there is room.
                contents[file.blob] = NO_ROOM if kind == "pdf" else UNSUPPORTED_FILE
            elif file.size_bytes > room:
                contents[file.blob] = NO_ROOM
            else:
                contents[file.blob] = await self._content(file, kind)
                room -= file.size_bytes
        self._read = {blob: content for blob, content in contents.items() if content.kind != "note"}
        return replace(request, files=contents)

    async def _content(self, file: File, kind: FileKind) -> FileContent:
        if file.blob in self._read:
            return self._read[file.blob]
        content = await self._recorder.read_blob(file.blob)
        # An imported file may be larger than it says; a request stays bounded all the same.
        if content is None or len(content) > REQUEST_FILE_BYTES_MAX:
            return GONE if content is None else NO_ROOM
        if kind == "text":
            return FileContent(kind, content.decode("utf-8-sig", "replace"))
        return FileContent(kind, b64encode(content).decode())


def _pdfs_in(entry: Entry) -> list[File]:
    if entry.role != "user":
        return []  # Models see only the names of files from tools.
    return [file for file in file_parts(entry.parts) if file.media_type == PDF]


def _with_pdf_text(entry: Entry, texts: Mapping[str, FileContent]) -> Entry:
    if not _pdfs_in(entry):
        return entry
    return replace(entry, parts=tuple(_as_text(part, texts) for part in entry.parts))


def _as_text(part: AnyPart, texts: Mapping[str, FileContent]) -> AnyPart:
    if not isinstance(part, File) or part.media_type != PDF or part.blob not in texts:
        return part
    return Text(file_text(part, texts[part.blob]))


def _newest_first(request: Request) -> list[File]:
    # Models see a tool's files by name: the protocols take files from people alone.
    messages = [message for message in reversed(request.messages) if isinstance(message, UserMessage)]
    found = [file for message in messages for file in reversed(file_parts(message.parts))]
    return list({file.blob: file for file in found}.values())


def token_budget(
    transcript: Transcript, model: Model, specs: Sequence[ToolSpec], share: float = 1.0
) -> TokenBudget:
    """Return the token budget of a request to `model` with those tools, by its last counts."""
    return TokenBudget(tools_tokens(specs), token_factor(transcript, model.name), share)


class RequestBuilder:
    """Build the requests of one run. Never repeats a length that was too much once."""

    def __init__(
        self, model: Model, instructions: str, attachments: Attachments, effort: Effort | None = None
    ) -> None:
        self._effort = effort
        self._model = model
        self._instructions = instructions
        self._attachments = attachments
        self._profile = model.profile
        self._budget = TokenBudget()
        self._transcript = Transcript()

    async def build(self, transcript: Transcript, specs: Sequence[ToolSpec]) -> Request:
        """Build the next request. Raises ModelFailure if tools and instructions fill every window.

        If they fill only the first model's window, the request fits the largest one.
        """
        self._transcript = await self._attachments.with_pdf_text(transcript, self._model)
        self._budget = token_budget(transcript, self._model, specs, self._budget.share)
        first = self._model.profile
        larger = replace(first, window_tokens=max(first.largest_tokens, first.window_tokens))
        overflow = self._budget.overflow_message(first, self._instructions)
        if overflow and self._budget.overflow_message(larger, self._instructions):
            raise ModelFailure(detail=overflow, retryable=False)
        self._profile = larger if overflow else first
        return await self._build_request()

    def estimate_tokens(self, request: Request) -> int:
        return self._budget.request_tokens(request)

    async def shorten(self, request: Request) -> Request:
        """Return a request with less of the conversation than `request`, which was too much."""
        self._budget = self._budget.halved(self._profile, self.estimate_tokens(request))
        return await self._build_request()

    async def _build_request(self) -> Request:
        request = build_request(self._transcript, self._instructions, self._profile, self._budget)
        if self._profile.window_tokens > self._model.profile.window_tokens:
            request = replace(request, window_tokens=self._profile.window_tokens)
        return await self._attachments.attach(replace(request, effort=self._effort), self._model)
