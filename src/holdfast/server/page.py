"""The page: files that set-up built from `web/`. They use the public API, and nothing from anywhere else."""

import mimetypes
from importlib.resources import files
from typing import Any

from litestar import Response, get
from litestar.params import FromPath

from holdfast.server.problem import NoSuchPage, PageNotBuilt

_FOR_EVER = "public, max-age=31536000, immutable"
"""A built file's name says its content."""


class PageRoutes:
    """Reads its files once."""

    def __init__(self) -> None:
        folder = files("holdfast.server").joinpath("built")
        self._files: dict[str, bytes] = {}
        if folder.joinpath("index.html").is_file():
            inside = folder.joinpath("page")
            self._files = {path.name: path.read_bytes() for path in inside.iterdir() if path.is_file()}
            self._files["index.html"] = folder.joinpath("index.html").read_bytes()

    def table(self) -> list[Any]:
        return [
            get("/", include_in_schema=False)(self.page),
            get("/page/{name:str}", include_in_schema=False)(self.file),
        ]

    async def page(self) -> Response[bytes]:
        """The page itself."""
        if not self._files:
            raise PageNotBuilt()
        return Response(self._files["index.html"], media_type="text/html")

    async def file(self, name: FromPath[str]) -> Response[bytes]:
        """What the page loads."""
        if name not in self._files or name == "index.html":
            raise NoSuchPage(path=f"/page/{name}")
        kind = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0]
        headers = {"cache-control": _FOR_EVER} if "-" in name else {}
        return Response(self._files[name], media_type=kind or "application/octet-stream", headers=headers)
