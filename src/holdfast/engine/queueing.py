"""Turns that wait for another to end. The queue is the journal's own: it has no state here."""

from holdfast.domain.state.rows import RunRow
from holdfast.domain.state.session_state import View


def next_in_line(view: View) -> RunRow | None:
    """The queued run whose turn it is: the first that is open, behind one that completed.

    Behind a failed, cancelled or interrupted run it waits, until a person lets it begin.
    """
    open_runs = view.open_runs()
    if not open_runs or open_runs[0].status != "queued":
        return None
    first = open_runs[0]
    for number in range(first.turn - 1, 0, -1):
        turn = view.turn(number)
        if turn is None or turn.status != "live" or turn.run_id is None:
            continue
        before = view.run(turn.run_id)
        return first if before is None or before.status == "completed" else None
    return first
