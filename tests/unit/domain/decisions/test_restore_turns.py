"""Removed turns come back: what was undone, and the versions of a message that was retried or edited."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.context.context import active_summary
from holdfast.domain.decisions import memory_queue, runs, turns
from holdfast.domain.errors import NoSuchTurn, NothingToRestore, RestoreRefused, SummaryRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import TurnId
from holdfast.domain.ranges import expand_ranges
from holdfast.domain.state.projections import fold
from holdfast.domain.state.rows import TurnRow
from holdfast.domain.transcript.removals import TurnHistory
from holdfast.domain.transcript.transcript import fold as fold_transcript
from tests.support.in_memory_session import SESSION, InMemoryJournal


class Conversation:
    """A conversation whose turns are all answered at once, and owed to memory by `owner`."""

    def __init__(self) -> None:
        self.journal = InMemoryJournal()
        self.view = self.journal.book
        self._commit(turns.create_session(self.view, f.SessionCreated()))

    def send(self, count: int = 1, owner: str | None = "a") -> "Conversation":
        for _ in range(count):
            self._commit(turns.accept_turn(self.view, SESSION, self.journal.ids, (Text("hello"),)))
            self._answer(owner)
        return self

    def retry(self, turn: int) -> "Conversation":
        turn_id = self.view.turns[turn].id
        self._commit(
            turns.replace_turns(self.view, SESSION, self.journal.ids, turn_id, (Text("hello"),), "retry")
        )
        self._answer("a")
        return self

    def undo(self, turn: int) -> "Conversation":
        self._commit(turns.undo(self.view, SESSION, self.view.turns[turn].id))
        return self

    def clear(self) -> "Conversation":
        self._commit(turns.clear(self.view, SESSION))
        return self

    def restore(self, turn: int | None = None) -> Sequence[f.AnyFact]:
        return self._commit(turns.restore(self.view, SESSION, self.view.turns[turn].id if turn else None))

    def compact(self, through: int, before: f.SessionCompacted | None = None) -> f.SessionCompacted:
        (made,) = self._commit(turns.compact(self.view, SESSION, through, "in short", before))
        assert isinstance(made, f.SessionCompacted)
        return made

    def commit_memory(self) -> "Conversation":
        while (debt := memory_queue.oldest_pending(self.view)) is not None:
            key = f"key-{debt.n}"
            self._commit(
                memory_queue.start(
                    self.view, debt.n, debt.turns, debt.owner, key, "", self.journal.ids.process()
                )
            )
            self._commit(memory_queue.complete(self.view, debt.n, 1, "receipt"))
        return self

    def forget(self) -> "Conversation":
        for debt in [each for each in self.view.pending_commits() if each.retraction == "wanted"]:
            self._commit(memory_queue.record_retraction(self.view, debt.n, "done"))
        return self

    @property
    def live(self) -> list[int]:
        live = [turn.turn for turn in self.view.live_turns(0)]
        row = self.view.row
        assert row is not None and row.live_turns == len(live)
        assert [t.turn for t in fold_transcript(self.journal.events).turns if t.live] == live
        assert fold(SESSION, self.journal.events).turns == self.view.turns
        return live

    @property
    def pending_turns(self) -> list[int]:
        """The turns that memory is still to be told of, once what is wanted back is forgotten."""
        waiting = [debt for debt in self.view.pending_commits() if debt.retraction != "wanted"]
        return sorted(turn for debt in waiting for turn in expand_ranges(debt.turns))

    @property
    def in_memory(self) -> list[int]:
        paid = [debt for debt in self.view.queued_commits.values() if debt.state == "committed"]
        return [turn for debt in paid for turn in expand_ranges(debt.turns)]

    @property
    def history(self) -> TurnHistory:
        return TurnHistory(self.view.all_turns(), self.view.removals())

    def versions(self, turn: int) -> list[int]:
        numbers = {row.id: row.turn for row in self.view.all_turns()}
        return [numbers[turn_id] for turn_id in self.history.versions([turn]).get(turn, ())]

    def _answer(self, owner: str | None) -> None:
        run = self.view.open_runs()[-1]
        self._commit(runs.start(run))
        self._commit(runs.complete(self.journal.run(run.id), owner is not None, owner or ""))

    def _commit(self, facts: list[f.AnyFact]) -> list[f.AnyFact]:
        self.journal.append(*facts)
        return facts


def test_what_was_undone_is_restored_whole() -> None:
    talk = Conversation().send(5).undo(3)
    assert talk.live == [1, 2]
    talk.restore(3)
    assert talk.live == [1, 2, 3, 4, 5]
    assert talk.restore(3) == [] and talk.live == [1, 2, 3, 4, 5]


def test_without_a_turn_the_last_undo_is_taken_back_and_no_retry() -> None:
    talk = Conversation().send(3).undo(3).undo(2)
    talk.restore()
    assert talk.live == [1, 2]
    talk.restore()
    assert talk.live == [1, 2, 3]
    talk.retry(3)
    with pytest.raises(NoSuchTurn):
        talk.restore()


def test_restoring_a_turn_brings_back_all_that_it_follows() -> None:
    talk = Conversation().send(4).undo(4).undo(3).undo(1)
    talk.restore(4)
    assert talk.live == [1, 2, 3, 4]


def test_what_followed_meanwhile_is_removed_and_can_be_restored_too() -> None:
    talk = Conversation().send(3).undo(2).send(1)
    (restored,) = talk.restore(2)
    assert restored == f.TurnsRestored(((2, 3),), 4, "undo", ((2, "a"), (3, "a")))
    assert talk.live == [1, 2, 3]
    talk.restore(4)
    assert talk.live == [1, 4]


def test_a_run_under_way_is_cancelled_with_the_turn_that_it_answers() -> None:
    talk = Conversation().send(2).undo(2)
    talk.journal.append(*turns.accept_turn(talk.view, SESSION, talk.journal.ids, (Text("more"),)))
    run = talk.view.open_runs()[0]
    cancelled, restored = talk.restore(2)
    assert cancelled == f.RunCancelled(run.id, "user") and isinstance(restored, f.TurnsRestored)
    assert talk.live == [1, 2] and talk.view.open_runs() == []


def test_each_version_of_a_message_can_be_chosen_with_what_followed_it() -> None:
    talk = Conversation().send(3).retry(2).send(1).retry(4)
    assert talk.live == [1, 6] and talk.versions(6) == talk.versions(2) == [2, 4, 6]
    (restored,) = talk.restore(4)
    assert isinstance(restored, f.TurnsRestored) and restored.reason == "version"
    assert talk.live == [1, 4, 5]
    talk.restore(2)
    assert talk.live == [1, 2, 3]
    talk.send(1)
    talk.restore(6)
    talk.restore(2)
    assert talk.live == [1, 2, 3, 7]
    assert talk.versions(1) == [] and talk.versions(3) == []


def test_a_replaced_turn_differs_from_an_undone_one() -> None:
    talk = Conversation().send(3).retry(2).undo(4)
    removed = {turn: removal.replaced for turn, removal in talk.history.removed.items()}
    assert removed == {2: True, 3: True, 4: False}
    assert talk.history.removed[2] == talk.history.removed[3]
    talk.restore(2)
    assert {turn: removal.replaced for turn, removal in talk.history.removed.items()} == {4: False}
    talk.restore(4)
    assert {turn: removal.replaced for turn, removal in talk.history.removed.items()} == {2: True, 3: True}


def test_what_is_not_there_or_was_cleared_is_refused() -> None:
    talk = Conversation().send(3).undo(3).clear()
    with pytest.raises(NoSuchTurn):
        turns.restore(talk.view, SESSION, TurnId("t_none"))
    for turn in (1, 3):
        with pytest.raises(RestoreRefused):
            talk.restore(turn)
    with pytest.raises(NothingToRestore):
        talk.restore()
    talk.send(1).undo(4)
    talk.restore(4)
    assert talk.live == [4]


def test_what_was_removed_before_a_clear_stays_removed() -> None:
    talk = Conversation().send(1).undo(1).send(1).clear()
    with pytest.raises(RestoreRefused):
        talk.restore(1)
    assert talk.live == []


def test_a_steering_message_cannot_be_restored_as_a_turn() -> None:
    talk = Conversation().send(1)
    ids, journal = talk.journal.ids, talk.journal
    journal.append(*turns.accept_turn(talk.view, SESSION, ids, (Text("first"),)))
    run = talk.view.open_runs()[0]
    journal.append(*runs.start(run))
    for if_busy in ("steer", "queue"):
        journal.append(*turns.accept_turn(talk.view, SESSION, ids, (Text(if_busy),), if_busy=if_busy))
    journal.append(*turns.take_steering(talk.view, journal.run(run.id), journal.written))
    talk.undo(4)
    assert talk.live == [1, 2]
    with pytest.raises(NoSuchTurn):
        talk.restore(3)
    talk.restore(4)
    assert talk.live == [1, 2, 4]


def test_a_summary_stands_again_once_all_that_it_covers_is_back() -> None:
    talk = Conversation().send(4)
    made = talk.compact(3)
    talk.undo(2)
    assert active_summary(fold_transcript(talk.journal.events)) is None
    talk.restore(2)
    assert active_summary(fold_transcript(talk.journal.events)) == made


def test_a_summary_of_one_version_covers_no_other() -> None:
    talk = Conversation().send(2).retry(2)
    made = talk.compact(3)
    talk.restore(2)
    assert talk.live == [1, 2] and active_summary(fold_transcript(talk.journal.events)) is None
    with pytest.raises(SummaryRefused):
        talk.compact(2, made)


def test_turns_restored_before_their_commit_stay_pending() -> None:
    talk = Conversation().send(3).undo(2)
    assert talk.pending_turns == [1]
    talk.restore(2)
    assert talk.pending_turns == [1, 2, 3]


def test_restored_turns_are_committed_again_after_a_retraction() -> None:
    talk = Conversation().send(3).commit_memory().undo(2).forget()
    assert talk.pending_turns == [1]
    talk.restore(2)
    assert talk.pending_turns == [1, 2, 3]


def test_turns_restored_during_a_retraction_are_committed_again() -> None:
    talk = Conversation().send(3).commit_memory().undo(2)
    talk.restore(2)
    assert talk.pending_turns == []
    talk.forget()
    assert talk.pending_turns == [1, 2, 3]


def test_a_turn_that_was_kept_out_of_memory_stays_out() -> None:
    talk = Conversation().send(1).send(1, owner=None).send(1).undo(2)
    talk.restore(2)
    assert talk.pending_turns == [1, 3]
    talk.journal.append(*turns.configure(talk.view, SESSION, f.SessionConfigured(remember=False)))
    talk.undo(1)
    talk.restore(1)
    assert talk.live == [1, 2, 3] and talk.pending_turns == []


def test_a_turn_that_no_version_leads_to_any_more_can_be_restored_for_itself() -> None:
    talk = Conversation().send(2).undo(2).send(1).retry(1)
    assert talk.live == [4]
    assert talk.history.removed[3].replaced, "it is behind the first version"
    talk.restore(2)
    assert talk.live == [1, 2]
    removal = talk.history.removed[3]
    assert (removal.turns, removal.replaced, removal.after) == ((3,), False, 1)
    talk.restore(3)
    assert talk.live == [1, 3]


def test_each_list_of_versions_is_given_once() -> None:
    talk = Conversation().send(1).retry(1).send(1).retry(3)
    numbers = [row.turn for row in talk.view.all_turns()]
    assert list(talk.history.versions(numbers)) == [1, 3]
    assert list(talk.history.versions([2, 4])) == [2, 4]


def test_turns_that_replace_each_other_in_a_circle_end() -> None:
    """An import may say anything."""
    rows = [
        TurnRow(1, TurnId("t_1"), 1, replaces=TurnId("t_2")),
        TurnRow(2, TurnId("t_2"), 2, replaces=TurnId("t_1")),
        TurnRow(3, TurnId("t_3"), 3, replaces=TurnId("t_3")),
    ]
    history = TurnHistory(rows, [])
    assert [history.first_version(turn) for turn in (1, 2, 3)] == [1, 1, 3]


@pytest.mark.parametrize(
    "turns", [((1, 5_000_000_000),), ((99, 99),), ((-5, -1),), ((1, 1), (1, 1)), ((3, 2),)]
)
def test_a_restore_that_an_import_made_up_changes_no_more_than_there_is(turns: f.Ranges) -> None:
    talk = Conversation().send(2).undo(1)
    talk.journal.append(f.TurnsRestored(turns))
    assert talk.live == [turn for turn in (1, 2) if any(first <= turn <= last for first, last in turns)]
    talk.send(1)
    assert talk.restore(1) is not None


def test_the_newest_summary_stands_whichever_covers_more() -> None:
    talk = Conversation().send(5)
    longer = talk.compact(5)
    talk.undo(5)
    newer = talk.compact(3)
    talk.restore(5)
    assert fold_transcript(talk.journal.events).compactions[-2:] == (longer, newer)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["send", "undo", "retry", "restore", "commit", "forget"]), st.integers(0, 30)
        ),
        max_size=25,
    )
)
def test_any_mix_of_changes_leaves_one_path_of_turns(steps: list[tuple[str, int]]) -> None:
    talk = Conversation().send(1)
    followed: dict[int, list[int]] = {1: [1]}
    for step, at in steps:
        live, every = talk.live, sorted(followed)
        match step:
            case "send":
                talk.send(1)
            case "undo" if live:
                talk.undo(live[at % len(live)])
            case "retry" if live:
                talk.retry(live[at % len(live)])
            case "restore":
                turn = every[at % len(every)]
                talk.restore(turn)
                assert turn in talk.live
            case "commit":
                talk.commit_memory()
            case "forget":
                talk.forget()
        for turn in set(talk.view.turns) - set(followed):
            followed[turn] = talk.live
        # Whatever is live was accepted after exactly the live turns before it.
        for place, turn in enumerate(talk.live, 1):
            assert followed[turn] == talk.live[:place]
    # In the end memory has each live turn once, and no other.
    talk.commit_memory().forget().commit_memory()
    assert talk.pending_turns == [] and sorted(talk.in_memory) == talk.live
