"""Facts about the files that a run's tools changed."""

from holdfast.domain.events.base import Actor, Fact
from holdfast.domain.ids import RunId


class FilesRestored(Fact, frozen=True):
    """Files that a run had changed are as they were before it: `paths`, within the workspace."""

    run_id: RunId
    paths: tuple[str, ...]
    by: Actor = "user"
