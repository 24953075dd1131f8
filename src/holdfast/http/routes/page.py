"""Serve the page, whose files the set-up builds from `web/`. It uses only the public API."""

import gzip
import mimetypes
from importlib.resources import files
from typing import Any

from litestar import Request, Response, get
from litestar.params import FromPath

from holdfast.http.errors import NoSuchPage, PageNotBuilt

_CACHE_FOREVER = "public, max-age=31536000, immutable"
"""For built files, whose name contains a hash of their content."""
_INDEX = "index.html"


class PageRoutes:
    """Serve the page's files, which are read and compressed once."""

    def __init__(self) -> None:
        folder = files("holdfast.http").joinpath("built")
        self._files: dict[str, bytes] = {}
        if folder.joinpath(_INDEX).is_file():
            inside = folder.joinpath("page")
            self._files = {path.name: path.read_bytes() for path in inside.iterdir() if path.is_file()}
            self._files[_INDEX] = folder.joinpath(_INDEX).read_bytes()
        self._compressed = {name: gzip.compress(content, mtime=0) for name, content in self._files.items()}

    def routes(self) -> list[Any]:
        return [
            get("/", include_in_schema=False)(self.page),
            get("/page/{name:str}", include_in_schema=False)(self.file),
        ]

    async def page(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        """The page itself."""
        if not self._files:
            raise PageNotBuilt()
        return self._file_response(request, _INDEX)

    async def file(self, request: Request[Any, Any, Any], name: FromPath[str]) -> Response[bytes]:
        """What the page loads."""
        if name not in self._files or name == _INDEX:
            raise NoSuchPage(path=f"/page/{name}")
        return self._file_response(request, name)

    def _file_response(self, request: Request[Any, Any, Any], name: str) -> Response[bytes]:
        kind = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0]
        headers = {"vary": "accept-encoding"}
        if "-" in name:
            headers["cache-control"] = _CACHE_FOREVER
        content = self._files[name]
        if "gzip" in request.headers.get("accept-encoding", ""):
            content = self._compressed[name]
            headers["content-encoding"] = "gzip"
        return Response(content, media_type=kind or "application/octet-stream", headers=headers)
