"""Upload files for messages over HTTP, and download them with a safe content type."""

from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote

from litestar import Request, Response, get, post
from litestar.params import FromPath, QueryParameter

from holdfast.domain.errors import DiskFull, HoldfastError, NoSuchBlob, TooLarge
from holdfast.domain.events.parts import AnyPart, File, Text
from holdfast.domain.files import (
    GIF,
    JPEG,
    PDF,
    PNG,
    TEXT,
    WEBP,
    NoSuchFile,
    UnsupportedFile,
    clean_name,
    detect_media_type,
    file_kind,
    is_file_id,
)
from holdfast.domain.secrets import MaskFunction
from holdfast.http.asgi import Receive
from holdfast.http.errors import BadRequest
from holdfast.http.openapi import examples
from holdfast.http.openapi.responses import response_specs
from holdfast.http.schemas.requests import AttachmentRef
from holdfast.http.schemas.responses import UploadedFile
from holdfast.http.uploads import (
    IncomingUpload,
    TooManyUploads,
    UploadBroken,
    UploadBudget,
    UploadCutOff,
    UploadTooSlow,
)
from holdfast.store.ports import Store

FILES_PATH = "/api/files"
_UNKNOWN_MEDIA_TYPE = "application/octet-stream"
SERVED_MEDIA_TYPES = (PNG, JPEG, GIF, WEBP, PDF, TEXT, _UNKNOWN_MEDIA_TYPE)
# A file is never a page of ours: its content must not run or load anything, or share our origin.
_SANDBOX_HEADERS = (
    ("content-security-policy", "sandbox; default-src 'none'"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-content-type-options", "nosniff"),
)
Name = Annotated[str, QueryParameter(description="What the file is called.")]


class FileRoutes:
    """Serve `/api/files` and each file. A file's id is the hash of its content, so it is stored once."""

    def __init__(self, store: Store, mask: MaskFunction) -> None:
        self._store = store
        self._mask = mask
        self._upload_budget = UploadBudget()

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        refusals = (
            UnsupportedFile, TooLarge, UploadCutOff, UploadBroken, UploadTooSlow, TooManyUploads, DiskFull,
        )  # fmt: skip
        taken = response_specs(201, UploadedFile, examples.STORED_FILE, *refusals)
        given = response_specs(200, None, None, NoSuchFile)
        return [
            post(FILES_PATH, responses=taken)(self.upload),
            get(f"{FILES_PATH}/{{file_id:str}}", responses=given)(self.download),
        ]

    async def upload(self, request: Request[Any, Any, Any], name: Name = "") -> UploadedFile:
        """Keep a file, sent as the body itself. It goes after a day if no message uses it."""
        receive: Receive = request.receive  # type: ignore[assignment]
        incoming = IncomingUpload(receive, request.headers.get("content-type", ""), _content_length(request))
        try:
            with self._upload_budget.reservation() as reserve:
                content = await incoming.read(reserve)
                media_type = detect_media_type(content)
                file_id = await self._store.put_blob(content)
        except (UploadBroken, UploadTooSlow):
            raise
        except HoldfastError:
            await incoming.discard()
            raise
        return UploadedFile(file_id, clean_name(self._mask(name), media_type), media_type, len(content))

    async def download(self, file_id: FromPath[str], name: Name = "") -> Response[bytes]:
        """A file, to be shown if it is an image and else to be saved."""
        content = await read_stored_file(self._store, file_id)
        media_type = _media_type_or_unknown(content)
        disposition = "inline" if file_kind(media_type) == "image" else "attachment"
        filename = quote(clean_name(self._mask(name), media_type), safe="")
        return Response(
            content,
            media_type=media_type,
            headers={
                **dict(_SANDBOX_HEADERS),
                "content-disposition": f"{disposition}; filename*=UTF-8''{filename}",
            },
        )


async def message_parts(store: Store, text: str, attachments: Sequence[AttachmentRef]) -> tuple[AnyPart, ...]:
    """Return a message's text, then its files. Raises NoSuchFile, UnsupportedFile, BadRequest."""
    if not text and not attachments:
        raise BadRequest(why="a message has text or attachments")
    parts: list[AnyPart] = [Text(text)] if text else []
    for attachment in attachments:
        content = await read_stored_file(store, attachment.id)
        media_type = detect_media_type(content)
        name = clean_name(attachment.name or "", media_type)
        parts.append(File(attachment.id, name, media_type, len(content), attachment.anyway))
    return tuple(parts)


async def read_stored_file(store: Store, file_id: str) -> bytes:
    """Return the content of a file. Raises NoSuchFile."""
    if not is_file_id(file_id):
        raise NoSuchFile(file_id=file_id[:64])
    try:
        return await store.get_blob(file_id)
    except NoSuchBlob:
        raise NoSuchFile(file_id=file_id) from None


def _media_type_or_unknown(content: bytes) -> str:
    """Return the media type; an imported file may have an unknown one."""
    try:
        return detect_media_type(content)
    except (UnsupportedFile, TooLarge):
        return _UNKNOWN_MEDIA_TYPE


def _content_length(request: Request[Any, Any, Any]) -> int | None:
    length = request.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdecimal() and len(length) <= 18 else None
