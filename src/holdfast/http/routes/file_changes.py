"""Show the files that a run changed, over HTTP, and restore them."""

from typing import Annotated, Any

import msgspec
from litestar import get, post
from litestar.params import FromPath

from holdfast.domain.decisions.file_changes import FilesChanged, NoSuchChange
from holdfast.domain.errors import NoSuchRun, RunRefused
from holdfast.domain.events.parts import Change
from holdfast.domain.ids import RunId
from holdfast.domain.limits import CHANGED_FILES_MAX
from holdfast.engine.file_changes import RunFileChanges
from holdfast.http.openapi.responses import request_body, response_specs
from holdfast.http.schemas.requests import PATH_CHARS_MAX, RequestBody

_Path = Annotated[str, msgspec.Meta(max_length=PATH_CHARS_MAX)]
_Paths = Annotated[tuple[_Path, ...], msgspec.Meta(min_length=1, max_length=CHANGED_FILES_MAX)]


class ChangedFile(msgspec.Struct, frozen=True):
    """A file from what a run found to what it left; both by the ids of files, null where there was none.

    Where `kept` is false both are null, and it cannot be put back: it was too large, or held a secret. The
    path is from `workspace` on: the folder that was chosen for the conversation, or nothing for its own.
    """

    path: str
    before: str | None
    after: str | None
    diff: str
    added: int
    removed: int
    kept: bool
    workspace: str = ""


class ChangedFiles(msgspec.Struct, frozen=True):
    """In the order in which they were first changed. What commands changed is not known.

    A long list is cut: `left_out` says how many more files there are.
    """

    changes: tuple[ChangedFile, ...]
    left_out: int = 0


class FileRestoreRequest(RequestBody, frozen=True):
    """The paths of the files that are meant, as the list has them; without them, all."""

    paths: _Paths | None = None


class RestoredFiles(msgspec.Struct, frozen=True):
    """The files that are now as they were before the run."""

    restored: tuple[str, ...]


_ALL = FileRestoreRequest()
_DIFF = "--- a/notes.txt\n+++ b/notes.txt\n@@ -1 +1 @@\n-Tidy up\n+Tidied up\n"
_CHANGED_FILES = ChangedFiles((ChangedFile("notes.txt", "0" * 64, "1" * 64, _DIFF, 1, 1, kept=True),))
_BODIES: tuple[dict[str, object], ...] = ({}, {"paths": ["notes.txt"]})


class FileChangeRoutes:
    """Serve `/api/runs/…/changes` and their restore."""

    def __init__(self, changes: RunFileChanges) -> None:
        self._changes = changes

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        base = "/api/runs/{run_id:str}/changes"
        refusals = (NoSuchRun, NoSuchChange, RunRefused, FilesChanged)
        restored = response_specs(200, RestoredFiles, RestoredFiles(("notes.txt",)), *refusals, has_body=True)
        return [
            get(base, responses=response_specs(200, ChangedFiles, _CHANGED_FILES, NoSuchRun))(self.show),
            post(f"{base}/restore", status_code=200, responses=restored)(self.restore),
        ]

    async def show(self, run_id: FromPath[str]) -> ChangedFiles:
        """What the run's tools changed, one entry for each file."""
        changes, left_out = await self._changes.list_changes(RunId(run_id))
        return ChangedFiles(tuple(_changed_file(change) for change in changes), left_out)

    async def restore(
        self, run_id: FromPath[str], data: Annotated[FileRestoreRequest, request_body(*_BODIES)] = _ALL
    ) -> RestoredFiles:
        """Put files back as they were before the run; nothing, if one is not as the run left it."""
        return RestoredFiles(await self._changes.restore(RunId(run_id), data.paths))


def _changed_file(change: Change) -> ChangedFile:
    return ChangedFile(
        change.path, change.before, change.after, change.diff, change.added, change.removed, change.kept,
        change.workspace,
    )  # fmt: skip
