"""Build a run's requests: attach files, measure against the model's window, shorten what was too long."""

from base64 import b64encode
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from holdfast.agent.ports import Recorder
from holdfast.domain.context.context import (
    FileContent,
    Gauge,
    Request,
    UserMessage,
    estimate_tokens,
    request_of,
)
from holdfast.domain.context.request import Effort
from holdfast.domain.context.tokens import factor_of
from holdfast.domain.events.parts import AnyPart, File, Text
from holdfast.domain.files import PDF, FileKind, files_among, kind_of, sent_anyway
from holdfast.domain.limits import REQUEST_FILE_BYTES_MAX
from holdfast.domain.transcript.transcript import Entry, Transcript
from holdfast.models.ports import Model, ModelFailure, ToolSpec
from holdfast.models.request_text import NOT_TAKEN, file_words, tools_tokens
from holdfast.tools.files.pdf_text import PdfTexts

GONE = FileContent("note", "is no longer here")
NO_ROOM = FileContent("note", "is left out: there are too many files for one request")


class Attachments:
    """The files of one run. What a step needs and the next one does not is let go."""

    def __init__(self, recorder: Recorder, pdfs: PdfTexts) -> None:
        self._recorder = recorder
        self._pdfs = pdfs
        self._read: dict[str, FileContent] = {}
        self._pdf_texts: dict[str, FileContent] = {}

    async def with_pdf_text(self, transcript: Transcript, model: Model) -> Transcript:
        """Return `transcript` with text in place of PDF files, for a model that takes no PDF files.

        Replacing the files first has their text count towards the window, and be shortened where it does not
        fit. Files are read from the newest on until their text fills the window.
        """
        said = [entry for turn in transcript.turns if turn.live for entry in turn.entries]
        files = [file for entry in reversed(said) for file in reversed(_pdfs_in(entry))]
        if not files or "pdf" in (await model.takes()).kinds:
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
        found = self._pdf_texts.get(blob) or self._pdfs.kept(blob)
        if found is not None:
            return found
        content = await self._recorder.file(blob)
        return GONE if content is None else await self._pdfs.read(blob, content)

    async def add_to(self, request: Request, model: Model) -> Request:
        """`request` with what its files contain, the newest first as far as there is room."""
        files = _newest_first(request)
        if not files:
            return request
        takes, room = await model.takes(), REQUEST_FILE_BYTES_MAX
        anyway = sent_anyway(part for message in request.messages for part in message.parts)
        shown: dict[str, FileContent] = {}
        for file in files:
            kind = kind_of(file.media_type)
            if kind is None or not takes.shows(kind, file.blob in anyway):
                # The text of PDF files stands in the messages already, as far as there is room.
                shown[file.blob] = NO_ROOM if kind == "pdf" else NOT_TAKEN
            elif file.size_bytes > room:
                shown[file.blob] = NO_ROOM
            else:
                shown[file.blob] = await self._content(file, kind)
                room -= file.size_bytes
        self._read = {blob: content for blob, content in shown.items() if content.kind != "note"}
        return replace(request, files=shown)

    async def _content(self, file: File, kind: FileKind) -> FileContent:
        if file.blob in self._read:
            return self._read[file.blob]
        content = await self._recorder.file(file.blob)
        # One from an import may be larger than it says: what a model is sent stays bounded all the same.
        if content is None or len(content) > REQUEST_FILE_BYTES_MAX:
            return GONE if content is None else NO_ROOM
        if kind == "text":
            return FileContent(kind, content.decode("utf-8-sig", "replace"))
        return FileContent(kind, b64encode(content).decode())


def _pdfs_in(entry: Entry) -> list[File]:
    if entry.role != "user":
        return []  # Models see only the names of files from tools.
    return [file for file in files_among(entry.parts) if file.media_type == PDF]


def _with_pdf_text(entry: Entry, texts: Mapping[str, FileContent]) -> Entry:
    if not _pdfs_in(entry):
        return entry
    return replace(entry, parts=tuple(_as_text(part, texts) for part in entry.parts))


def _as_text(part: AnyPart, texts: Mapping[str, FileContent]) -> AnyPart:
    if not isinstance(part, File) or part.media_type != PDF or part.blob not in texts:
        return part
    return Text(file_words(part, texts[part.blob]))


def _newest_first(request: Request) -> list[File]:
    # What a tool gave is told by its name: the protocols take files from people alone.
    said = [message for message in reversed(request.messages) if isinstance(message, UserMessage)]
    found = [file for message in said for file in reversed(files_among(message.parts))]
    return list({file.blob: file for file in found}.values())


def gauge_of(transcript: Transcript, model: Model, specs: Sequence[ToolSpec], share: float = 1.0) -> Gauge:
    """How a request to `model` with those tools is measured, by what it counted last."""
    return Gauge(tools_tokens(specs), factor_of(transcript, model.name), share)


class Measuring:
    """Makes the requests of one run. What was too much once is not tried again in it."""

    def __init__(
        self, model: Model, told: str, attachments: Attachments, effort: Effort | None = None
    ) -> None:
        self._effort = effort
        self._model = model
        self._told = told
        self._attachments = attachments
        self._profile = model.profile
        self._gauge = Gauge()
        self._transcript = Transcript()

    async def request(self, transcript: Transcript, specs: Sequence[ToolSpec]) -> Request:
        """What is sent next: made for a larger window where tools and instructions leave no room in the
        first one's. Raises ModelFailure where they leave none in any.
        """
        self._transcript = await self._attachments.with_pdf_text(transcript, self._model)
        self._gauge = gauge_of(transcript, self._model, specs, self._gauge.share)
        first = self._model.profile
        larger = replace(first, window_tokens=max(first.largest_tokens, first.window_tokens))
        crowded = self._gauge.crowded(first, self._told)
        if crowded and self._gauge.crowded(larger, self._told):
            raise ModelFailure(detail=crowded, retryable=False)
        self._profile = larger if crowded else first
        return await self._made()

    def weigh(self, request: Request) -> int:
        return self._gauge.weigh(request)

    async def shorter(self, request: Request) -> Request:
        """The same with less of the conversation: `request` was too much."""
        self._gauge = self._gauge.harder(self._profile, self.weigh(request))
        return await self._made()

    async def _made(self) -> Request:
        request = request_of(self._transcript, self._told, self._profile, self._gauge)
        if self._profile.window_tokens > self._model.profile.window_tokens:
            request = replace(request, window_tokens=self._profile.window_tokens)
        return await self._attachments.add_to(replace(request, effort=self._effort), self._model)
