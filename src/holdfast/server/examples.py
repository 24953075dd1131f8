"""One conversation, as an example of everything that goes over the wire."""

from holdfast.domain.parts import Reasoning, Text, ToolCall
from holdfast.server.shapes import (
    Found,
    FoundList,
    Health,
    Message,
    MessageList,
    ModelList,
    Run,
    Session,
    SessionList,
    TurnReceipt,
    Used,
    UsedModel,
)

_AT = 1_760_000_000_000
_USED = Used(412, 96, 0, 0)
SESSION_ID, RUN_ID, TURN_ID = "s_0cw8hjr5600k3m2x", "r_0cw8hjr7200q9v4b", "t_0cw8hjr7200p8t3a"
CALL_ID = "c_0cw8hjr9400s1x6d"

SESSION = Session(
    SESSION_ID, "Tidy the downloads folder", "idle", _AT, _AT + 9_000, False, 1, "", "", "", None, None,
    None, None, None, _USED, 17,
)  # fmt: skip
SESSION_LIST = SessionList((SESSION,), None)
RUN = Run(RUN_ID, SESSION_ID, 1, "completed", None, None, 0, _AT + 10, _AT + 9_000, _USED)
RECEIPT = TurnReceipt(TURN_ID, RUN_ID, 2)
MESSAGE_LIST = MessageList(
    (
        Message(
            "m_0cw8hjr7200r7s2z", "user", "settled", 1, 0, True, False, _AT, RUN_ID,
            (Text("What is in the downloads folder?"),), TURN_ID,
        ),
        Message(
            "m_0cw8hjr8000v2w5c", "assistant", "settled", 1, 1, True, False, _AT + 900, RUN_ID,
            (
                Reasoning("I should look."),
                ToolCall(CALL_ID, "list_files", '{"path":"downloads"}'),
            ),
            TURN_ID,
        ),
        Message(
            CALL_ID, "tool", "settled", 1, 2, True, False, _AT + 950, RUN_ID, (Text("report.pdf"),), TURN_ID,
            None, "m_0cw8hjr8000v2w5c", "list_files", "settled", None, "done",
        ),
    ),
    (RUN,), 17, None,
)  # fmt: skip
FOUND_LIST = FoundList((
    Found(
        SESSION_ID, "Tidy the downloads folder", 1, 0, "m_0cw8hjr7200r7s2z", "user", _AT,
        "What is in the downloads folder?", ((15, 24),),
    ),
))  # fmt: skip
MODEL_LIST = ModelList(
    (UsedModel("demo", "No key and no local model server found: the scripted demo answers."),)
)
LIVE, READY = Health("live"), Health("ready")

_Bodies = tuple[dict[str, object], ...]
NEW_SESSION: _Bodies = ({"title": "Tidy the downloads folder"}, {})
SESSION_CHANGE: _Bodies = ({"title": "Downloads"}, {"archived": True})
NEW_TURN: _Bodies = ({"text": "What is in the downloads folder?", "key": "f3b1c0de"},)
CHOSEN_TURN: _Bodies = ({}, {"turn_id": TURN_ID})
EDITED_TURN: _Bodies = ({"text": "What is in the documents folder?", "turn_id": TURN_ID},)
DECIDED: _Bodies = (
    {"decision": "approve"},
    {"decision": "deny", "reason": "Not in that folder."},
    {"decision": "mark_done", "result": "It printed nothing."},
)
