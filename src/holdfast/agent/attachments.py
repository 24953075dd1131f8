"""Files made ready for a model: read when a request needs them, and once in a run."""

from base64 import b64encode

from msgspec.structs import replace

from holdfast.agent.ports import Model, Recorder
from holdfast.domain.context import FileContent, Request, UserMessage
from holdfast.domain.files import FileKind, files_among, kind_of
from holdfast.domain.limits import REQUEST_FILE_BYTES_MAX
from holdfast.domain.parts import File

GONE = FileContent("note", "is no longer here")
NOT_TAKEN = FileContent("note", "cannot be shown to this model")
NO_ROOM = FileContent("note", "is left out: there are too many files for one request")


class Attachments:
    """The files of one run. What a step needs and the next one does not is let go."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._read: dict[str, FileContent] = {}

    async def add_to(self, request: Request, model: Model) -> Request:
        """`request` with what its files contain, the newest first as far as there is room."""
        files = _newest_first(request)
        if not files:
            return request
        takes, room = await model.takes(), REQUEST_FILE_BYTES_MAX
        shown: dict[str, FileContent] = {}
        for file in files:
            kind = kind_of(file.media_type)
            if kind is None or kind not in takes:
                shown[file.blob] = NOT_TAKEN
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


def _newest_first(request: Request) -> list[File]:
    # What a tool gave is told by its name: the protocols take files from people alone.
    said = [message for message in reversed(request.messages) if isinstance(message, UserMessage)]
    found = [file for message in said for file in reversed(files_among(message.parts))]
    return list({file.blob: file for file in found}.values())
