"""Fold events into usage totals: by run, and by the session's finished runs."""

from collections.abc import Iterable

import msgspec

from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event
from holdfast.domain.ids import RunId
from holdfast.domain.usage import Usage


class UsageTotals(msgspec.Struct, frozen=True):
    """Usage by run and session; `session` counts a run once, when it has finished."""

    runs: dict[RunId, Usage]
    session: Usage

    @property
    def total(self) -> Usage:
        """The usage so far, open runs included."""
        return sum(self.runs.values(), start=Usage())


def usage_totals(events: Iterable[Event]) -> UsageTotals:
    """Return the usage in `events`, equal to the sums in the rows of runs and session."""
    runs: dict[RunId, Usage] = {}
    session = Usage()
    for event in events:
        if event.kind in f.DELTA_KINDS:
            continue
        fact = event.fact
        match fact:
            case f.TurnAccepted(run_id=run_id) if run_id is not None:
                runs[run_id] = Usage()
            case f.ModelStepSettled() if fact.run_id in runs:
                runs[fact.run_id] += fact.usage
            case f.RunCompleted() | f.RunCancelled() | f.RunFailed():
                session += runs.get(fact.run_id, Usage())
    return UsageTotals(runs, session)
