"""The checker of the crash and power tests finds what it looks for."""

from holdfast.domain.ids import SessionId
from tests.support.durability_checker import DurabilityReport, ExpectedChange, check_durability

A, B = SessionId("s_a"), SessionId("s_b")
WHOLE = {A: {1: "one", 2: "two", 3: "~delta", 4: "four"}, B: {1: "five"}}


def _judge(*promises: ExpectedChange, gone: tuple[SessionId, ...] = ()) -> DurabilityReport:
    return check_durability(promises, WHOLE, lambda each: bool(each.first), lambda session: session in gone)


def test_what_is_there_as_promised_is_clean() -> None:
    acknowledged = ExpectedChange({A: ["one", "two"], B: ["five"]}, {A: 1, B: 1})
    assert _judge(
        acknowledged, ExpectedChange({A: ["four"]}), ExpectedChange({A: ["never"], B: ["stored"]})
    ).is_clean


def test_an_acknowledged_event_that_is_missing_is_lost() -> None:
    assert _judge(ExpectedChange({A: ["four", "more"]}, {A: 4})).lost == ["s_a:5"]
    assert _judge(ExpectedChange({SessionId("s_c"): ["one"]}, {SessionId("s_c"): 1})).lost == ["s_c:1"]


def test_an_event_with_other_content_is_altered() -> None:
    assert _judge(ExpectedChange({A: ["one", "TWO"]}, {A: 1})).altered == ["s_a:2 is two, was TWO"]


def test_a_change_that_is_partly_there_is_half() -> None:
    assert _judge(ExpectedChange({A: ["four"], B: ["six"]})).partial == ["s_b:0"]
    assert _judge(ExpectedChange({A: ["four", "more"]})).partial == ["s_a:0"]


def test_only_a_delta_may_be_pruned_and_only_before_a_later_event() -> None:
    pruned = {A: {1: "one", 4: "four"}}
    promises = [ExpectedChange({A: ["two", "~delta", "four", "~late"]}, {A: 2})]
    assert check_durability(promises, pruned, lambda _: True, lambda _: False).lost == ["s_a:2", "s_a:5"]


def test_a_session_that_is_being_deleted_owes_nothing() -> None:
    assert _judge(ExpectedChange({A: ["nowhere"]}, {A: 9}), gone=(A,)).is_clean


def test_a_fact_that_another_change_says_too_does_not_make_a_change_half() -> None:
    """A lost change was to cancel a run, and another change cancelled it."""
    lost, stored = ExpectedChange({A: ["one", "never"]}), ExpectedChange({A: ["one", "two"]}, {A: 1})
    assert _judge(lost, stored).is_clean
