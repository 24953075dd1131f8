"""When a cached conversation may be used again: decided here, by its baseline, and nowhere else.

The baseline is the context version: the number of the last event that changes what the model is shown. A
count would take an undo and a new message for nothing; a title, a receipt or a delivery does not move it.
"""

from typing import Literal

import msgspec
from msgspec.structs import replace

from holdfast.domain.ids import Seq, SessionId


class Baseline(msgspec.Struct, frozen=True):
    """Which conversation a cache's entry is of, and the context version that it holds.

    Without a conversation, it is not known whose it is; without a version, not how far it has come. The
    incarnation tells it from one of the same id that was deleted: that one may have come just as far.
    """

    session_id: SessionId | None = None
    version: Seq | None = None
    state: Literal["building", "ready", "stale"] = "ready"
    incarnation: int | None = None


def may_reuse(baseline: Baseline, session_id: SessionId, live: Seq | None) -> bool:
    """Whether an entry still says what the journal does, where `session_id` has come to `live`.

    `live` is None when that cannot be read: there is nothing then that speaks against it.
    """
    if baseline.state != "ready":
        # One that is being built is made of what there is now; whoever comes waits for it.
        return baseline.state == "building"
    if baseline.session_id not in (None, session_id):
        # How far another conversation has come says nothing of this one.
        return True
    return baseline.version is None or live is None or baseline.version == live


def moved(
    baseline: Baseline,
    session_id: SessionId,
    before: Seq | None,
    after: Seq | None,
    incarnation: int | None = None,
) -> Baseline:
    """The baseline after a change of this process took `session_id` from the version `before` to `after`.

    It goes along if nobody else has changed what the model is shown; otherwise the entry is stale, and stays
    so until it is built anew.
    """
    if baseline.state != "ready" or baseline.session_id not in (None, session_id):
        return baseline
    if None not in (known := baseline.incarnation, incarnation) and known != incarnation:
        return replace(baseline, state="stale")
    if baseline.session_id is None or baseline.version is None:
        return Baseline(session_id, after, incarnation=incarnation)
    if before != baseline.version or after is None:
        return replace(baseline, state="stale")
    return replace(baseline, version=after)
