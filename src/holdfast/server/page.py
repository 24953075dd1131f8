"""The plain built-in page: a few files that talk to the public API and fetch nothing from anywhere else."""

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from litestar import Response, get
from litestar.params import FromPath

from holdfast.server.problem import NoSuchPage

_TYPES: Mapping[str, str] = MappingProxyType({
    "page.html": "text/html",
    "page.css": "text/css",
    "page.js": "text/javascript",
    "entry.js": "text/javascript",
    "api.js": "text/javascript",
    "transcript.js": "text/javascript",
})  # fmt: skip


class PageRoutes:
    """Reads its files once."""

    def __init__(self) -> None:
        folder = files("holdfast.server").joinpath("assets")
        self._files = {name: folder.joinpath(name).read_bytes() for name in _TYPES}

    def table(self) -> list[Any]:
        return [
            get("/", include_in_schema=False)(self.page),
            get("/page/{name:str}", include_in_schema=False)(self.file),
        ]

    async def page(self) -> Response[bytes]:
        """The page itself."""
        return self._answer("page.html")

    async def file(self, name: FromPath[str]) -> Response[bytes]:
        """What the page loads."""
        if name not in self._files or name == "page.html":
            raise NoSuchPage(path=f"/page/{name}")
        return self._answer(name)

    def _answer(self, name: str) -> Response[bytes]:
        return Response(self._files[name], media_type=_TYPES[name])
