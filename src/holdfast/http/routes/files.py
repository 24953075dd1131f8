"""Files over HTTP: taken in for a message, and given back as what they are and nothing else."""

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
    is_file_id,
    kind_of,
    media_type_of,
)
from holdfast.domain.secrets import Masking
from holdfast.http.asgi import Receive
from holdfast.http.errors import BadRequest
from holdfast.http.openapi import examples
from holdfast.http.openapi.responses import answers
from holdfast.http.schemas.requests import Attached
from holdfast.http.schemas.responses import StoredFile
from holdfast.http.uploads import CutOff, Incoming, Room, TooManyUploads, UploadBroken, UploadTooSlow
from holdfast.store.ports import Store

FILES_PATH = "/api/files"
_UNKNOWN = "application/octet-stream"
GIVEN_TYPES = (PNG, JPEG, GIF, WEBP, PDF, TEXT, _UNKNOWN)
# Whatever it holds, it is not a page of ours: it may run nothing, load nothing and belongs to no site.
_HARMLESS = (
    ("content-security-policy", "sandbox; default-src 'none'"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-content-type-options", "nosniff"),
)
Name = Annotated[str, QueryParameter(description="What the file is called.")]


class FileRoutes:
    """`/api/files` and each of them. A file's id is the hash of its content, so the same one is kept once."""

    def __init__(self, store: Store, mask: Masking) -> None:
        self._store = store
        self._mask = mask
        self._room = Room()

    def table(self) -> list[Any]:
        """The routes with what each is said to answer."""
        refusals = (
            UnsupportedFile, TooLarge, CutOff, UploadBroken, UploadTooSlow, TooManyUploads, DiskFull,
        )  # fmt: skip
        taken = answers(201, StoredFile, examples.STORED_FILE, *refusals)
        given = answers(200, None, None, NoSuchFile)
        return [
            post(FILES_PATH, responses=taken)(self.take),
            get(f"{FILES_PATH}/{{file_id:str}}", responses=given)(self.give),
        ]

    async def take(self, request: Request[Any, Any, Any], name: Name = "") -> StoredFile:
        """Keep a file, sent as the body itself. It goes after a day if no message uses it."""
        receive: Receive = request.receive  # type: ignore[assignment]
        incoming = Incoming(receive, request.headers.get("content-type", ""), _announced(request))
        try:
            with self._room.entered() as take:
                content = await incoming.read(take)
                media_type = media_type_of(content)
                file_id = await self._store.put_blob(content)
        except (UploadBroken, UploadTooSlow):
            raise
        except HoldfastError:
            await incoming.discard()
            raise
        return StoredFile(file_id, clean_name(self._mask(name), media_type), media_type, len(content))

    async def give(self, file_id: FromPath[str], name: Name = "") -> Response[bytes]:
        """A file, to be shown if it is an image and else to be saved."""
        content = await read(self._store, file_id)
        media_type = _known_type(content)
        place = "inline" if kind_of(media_type) == "image" else "attachment"
        called = quote(clean_name(self._mask(name), media_type), safe="")
        return Response(
            content,
            media_type=media_type,
            headers={**dict(_HARMLESS), "content-disposition": f"{place}; filename*=UTF-8''{called}"},
        )


async def parts_of(store: Store, text: str, attached: Sequence[Attached]) -> tuple[AnyPart, ...]:
    """A message's words, then its files. Raises NoSuchFile, UnsupportedFile, BadRequest."""
    if not text and not attached:
        raise BadRequest(why="a message has text or attachments")
    parts: list[AnyPart] = [Text(text)] if text else []
    for each in attached:
        content = await read(store, each.id)
        media_type = media_type_of(content)
        name = clean_name(each.name or "", media_type)
        parts.append(File(each.id, name, media_type, len(content), each.anyway))
    return tuple(parts)


async def read(store: Store, file_id: str) -> bytes:
    """The content of a file. Raises NoSuchFile."""
    if not is_file_id(file_id):
        raise NoSuchFile(file_id=file_id[:64])
    try:
        return await store.get_blob(file_id)
    except NoSuchBlob:
        raise NoSuchFile(file_id=file_id) from None


def _known_type(content: bytes) -> str:
    """What came in by an import may be anything."""
    try:
        return media_type_of(content)
    except (UnsupportedFile, TooLarge):
        return _UNKNOWN


def _announced(request: Request[Any, Any, Any]) -> int | None:
    length = request.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdecimal() and len(length) <= 18 else None
