"""The examples in the OpenAPI document, all taken from one conversation."""

from holdfast.domain.events.parts import Reasoning, Text, ToolCall
from holdfast.http.schemas.responses import (
    ActiveModel,
    AvailableModels,
    MessageInfo,
    MessageList,
    MessageMatch,
    MessageMatchList,
    QuestionInfo,
    QuestionInfoList,
    RuleInfo,
    RuleList,
    RunInfo,
    ServerHealth,
    SessionInfo,
    SessionInfoList,
    TurnReceipt,
    UploadedFile,
    UsageInfo,
)
from holdfast.models.info import ModelInfo, ModelProviderInfo, PriceInfo

_AT = 1_760_000_000_000
_USAGE = UsageInfo(412, 96, 0, 0)
SESSION_ID, RUN_ID, TURN_ID = "s_0cw8hjr5600k3m2x", "r_0cw8hjr7200q9v4b", "t_0cw8hjr7200p8t3a"
CALL_ID = "c_0cw8hjr9400s1x6d"

SESSION = SessionInfo(
    SESSION_ID, "Tidy the downloads folder", "idle", _AT, _AT + 9_000, False, 1, "", "", "", None, None,
    None, None, None, _USAGE, False, False, True, 17, _AT + 60_000,
)  # fmt: skip
SESSION_LIST = SessionInfoList((SESSION,), None)
QUESTION_LIST = QuestionInfoList((
    QuestionInfo(
        SESSION_ID, "Tidy the downloads folder", "", RUN_ID, "approval", _AT + 900, "", CALL_ID, "shell",
        '{"command":"rm report.pdf"}', False, "unsafe", False,
    ),
), False)  # fmt: skip
RUN = RunInfo(RUN_ID, SESSION_ID, 1, "completed", None, None, 0, _AT + 10, _AT + 9_000, _USAGE, 2)
RECEIPT = TurnReceipt(TURN_ID, RUN_ID, 2, SESSION_ID)
MESSAGE_LIST = MessageList(
    (
        MessageInfo(
            "m_0cw8hjr7200r7s2z", "user", "settled", 1, 0, True, False, _AT, RUN_ID,
            (Text("What is in the downloads folder?"),), TURN_ID,
        ),
        MessageInfo(
            "m_0cw8hjr8000v2w5c", "assistant", "settled", 1, 1, True, False, _AT + 900, RUN_ID,
            (
                Reasoning("I should look."),
                ToolCall(CALL_ID, "list_files", '{"path":"downloads"}'),
            ),
            TURN_ID,
        ),
        MessageInfo(
            CALL_ID, "tool", "settled", 1, 2, True, False, _AT + 950, RUN_ID, (Text("report.pdf"),), TURN_ID,
            None, "m_0cw8hjr8000v2w5c", "list_files", "settled", None, "done",
        ),
    ),
    (RUN,), 17, None,
)  # fmt: skip
MESSAGE_MATCH_LIST = MessageMatchList((
    MessageMatch(
        SESSION_ID, "Tidy the downloads folder", 1, 0, "m_0cw8hjr7200r7s2z", "user", _AT,
        "What is in the downloads folder?", ((15, 24),),
    ),
))  # fmt: skip
MODEL_LIST = AvailableModels(
    (ActiveModel("demo", "The scripted demo answers, as HOLDFAST_MODEL asks.", True, ("text",)),),
    (ModelProviderInfo(
        "ollama", "Ollama", True, "port", "http://127.0.0.1:11434/v1", local=True,
        models=(ModelInfo("ollama:qwen3:8b", 8_192, takes=("text",), price=PriceInfo(0, 0, 0)),),
    ),),
)  # fmt: skip
FILE_ID = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
STORED_FILE = UploadedFile(FILE_ID, "notes.txt", "text/plain", 4)
RULE = RuleInfo("u_0cw8hjra600t4y8e", "shell", "git status *", None, _AT + 1_000)
RULE_LIST = RuleList((RULE,))
LIVE, READY = ServerHealth("live"), ServerHealth("ready", "mounts, landlock 7", ())

_Bodies = tuple[dict[str, object], ...]
NEW_SESSION: _Bodies = ({"title": "Tidy the downloads folder"}, {}, {"remember": False})
SESSION_CHANGE: _Bodies = ({"title": "Downloads"}, {"archived": True}, {"pinned": True}, {"remember": False})
NEW_TURN: _Bodies = (
    {"text": "What is in the downloads folder?", "key": "f3b1c0de"},
    {"text": "Only the newest ones.", "key": "f3b1c0df", "if_busy": "steer"},
    {"text": "What is wrong in this?", "attachments": [{"id": FILE_ID, "name": "notes.txt"}]},
)
SEEN: _Bodies = ({"seq": 17},)
TURN_SELECTION: _Bodies = ({}, {"turn_id": TURN_ID})
EDITED_TURN: _Bodies = (
    {"text": "What is in the documents folder?"},
    {"text": "What is in the documents folder?", "turn_id": TURN_ID},
)
TOOL_CALL_DECISION: _Bodies = (
    {"decision": "approve"},
    {"decision": "approve", "scope": "session", "rule": "ls *"},
    {"decision": "approve", "arguments": {"command": "ls downloads"}},
    {"decision": "deny", "reason": "Not in that folder."},
    {"decision": "mark_done", "result": "It printed nothing."},
    {"decision": "answer", "choices": ["The oldest first"]},
    {"decision": "answer", "text": "Keep the reports, remove the rest."},
)
NEW_RULE: _Bodies = ({"tool": "shell", "pattern": "git status *"},)
