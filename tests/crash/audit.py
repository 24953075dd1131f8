"""Compare the final state of the servers with everything that clients sent and received."""

import re
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from holdfast.store.sqlite.store import SqliteStore
from tests.support.auth_tokens import AUTH_HEADERS
from tests.support.recording_clients import RecordingClients, SentMessage, SessionRecorder, frames, text_of
from tests.support.server_process import ServerProcess
from tests.support.turn_script import EFFECTS

_WORD = re.compile(r"\S+ ")


class CrashFigures(msgspec.Struct):
    """The totals of a crash test, in one line."""

    kills: int = 0
    turns: int = 0
    tokens: int = 0
    lost: int = 0
    effects: int = 0
    twice: int = 0
    in_doubt: int = 0
    late: int = 0
    """Messages that were stored after their run had continued without them."""
    resumed_s: list[float] = []
    wrong: list[str] = []

    def __str__(self) -> str:
        times = self.resumed_s or [0.0]
        return (
            f"kills={self.kills} turns={self.turns} tokens={self.tokens} lost={self.lost}"
            f" effects={self.effects} twice={self.twice} in_doubt={self.in_doubt}"
            f" late={self.late}"
            f" resumed={len(self.resumed_s)} in {statistics.median(times):.2f} s, at most {max(times):.2f} s"
        )

    def add(self, other: "CrashFigures") -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.twice or self.wrong)


async def audit(clients: RecordingClients, figures: CrashFigures, *servers: ServerProcess) -> CrashFigures:
    """Read everything back through the first server and compare; then end all servers and check the store."""
    clients.check()
    server = servers[0]
    async with aiohttp.ClientSession(headers=AUTH_HEADERS) as http:
        for recorder in clients.recorders:
            await _audit_one(http, recorder, server, figures)
        async with http.get(f"{server.address}/api/sessions?limit=200") as answer:
            states = {row["status"] for row in (await answer.json())["sessions"]}
            if not states <= {"idle"}:
                figures.wrong.append(f"sessions are left {states}")
    for each in servers:
        await each.shut_down()
    store = await SqliteStore.open(server.folder)
    try:
        found = await store.check(False, lambda done, total: None)
    finally:
        await store.close()
    figures.wrong += [f"doctor found {each}" for each in found]
    return figures


async def _audit_one(
    http: aiohttp.ClientSession, recorder: SessionRecorder, server: ServerProcess, figures: CrashFigures
) -> None:
    sent = dict(recorder.events)  # A title may still come while this is read.
    journal = await _read_journal(http, recorder, server.address)
    for seq, seen in sent.items():
        if journal.get(seq) != seen.raw:
            figures.wrong.append(f"{recorder.session_id}:{seq} was {seen.raw!r}, is {journal.get(seq)!r}")
    figures.wrong += recorder.contradictions
    messages = await _read_messages(http, recorder, server.address)
    _audit_seen(recorder, messages, figures)
    _audit_turns(recorder, messages, figures)
    _audit_effects(recorder, server.folder, figures)
    if any(message["status"] in ("pending", "streaming") for message in messages):
        figures.wrong.append(f"{recorder.session_id} still says that more is to come")
    figures.late += sum(message["late"] for message in messages)
    figures.in_doubt += len(recorder.of_kind("tool_in_doubt"))


def _audit_seen(recorder: SessionRecorder, messages: list[dict[str, Any]], figures: CrashFigures) -> None:
    """Check that every text that a client received is a prefix of the one in the transcript."""
    texts = {message["id"]: text_of(message) for message in messages}
    for message_id, text in _joined(recorder, "text_appended", "message_id").items():
        figures.tokens += len(_WORD.findall(text))
        there = texts.get(message_id, "")
        if not there.startswith(text):
            left = Counter(_WORD.findall(text)) - Counter(_WORD.findall(there))
            figures.lost += max(left.total(), 1)
            figures.wrong.append(f"{message_id} was {text!r}, is {there!r}")
    for call_id, text in _joined(recorder, "tool_output_appended", "call_id").items():
        # Of a call that a person had run again, the last attempt is what counts.
        if text not in texts.get(call_id, "") and recorder.decisions.get(call_id) != "rerun":
            figures.wrong.append(f"{call_id} printed {text!r}, is {texts.get(call_id)!r}")
    for message_id, text in recorder.longest_texts.items():
        if not texts.get(message_id, "").startswith(text):
            figures.wrong.append(f"{message_id} was read as {text!r}, is {texts.get(message_id)!r}")


def _joined(recorder: SessionRecorder, kind: str, name: str) -> dict[str, str]:
    """Return the received deltas, joined by their message or call."""
    joined: dict[str, str] = {}
    for seen in recorder.of_kind(kind):
        joined[seen.body[name]] = joined.get(seen.body[name], "") + seen.body["text"]
    return joined


def _audit_turns(recorder: SessionRecorder, messages: list[dict[str, Any]], figures: CrashFigures) -> None:
    """Check that every sent message is stored once, in order, with its whole answer."""
    asked = [message for message in messages if message["role"] == "user"]
    figures.turns += len(asked)
    wanted = [sent.script.text for sent in recorder.sent]
    if [text_of(message) for message in asked] != wanted:
        figures.wrong.append(f"{recorder.session_id}: sent {wanted}, there is {asked}")
        return
    for sent, message in zip(recorder.sent, asked, strict=True):
        if not sent.receipts or any(receipt["turn_id"] != message["turn_id"] for receipt in sent.receipts):
            figures.wrong.append(f"{sent} became {message['turn_id']}")
        answer = "".join(
            text_of(each)
            for each in messages
            if each["role"] == "assistant" and each["turn"] == message["turn"] and not each["late"]
        )
        _audit_answer(recorder, sent, answer, figures)


def _audit_answer(recorder: SessionRecorder, sent: SentMessage, answer: str, figures: CrashFigures) -> None:
    outcome, whole = recorder.outcome(sent), sent.script.answer()
    # Whoever writes on while a question is open has passed it over, and with it the run that asked.
    passed_over = outcome == "run_cancelled" and (sent.may_be_cancelled or recorder.of_kind("tool_in_doubt"))
    if outcome != "run_completed" and not passed_over:
        why = [seen.body["failure"] for seen in recorder.of_kind("run_failed")]
        figures.wrong.append(f"{sent.script.name} ended as {outcome or 'nothing'}; failures: {why}")
    if answer != whole and not (passed_over and whole.startswith(answer)):
        figures.wrong.append(f"{sent.script.name} should be {whole!r}, is {answer!r}")


def _audit_effects(recorder: SessionRecorder, folder: Path, figures: CrashFigures) -> None:
    path = folder / "workspaces" / recorder.session_id / EFFECTS
    found = Counter(path.read_text().split()) if path.exists() else Counter()
    # Said once for each time that it was asked: a call that is run again may be cut off again.
    again = Counter(
        _effect_of(recorder, seen.body["call_id"])
        for seen in recorder.of_kind("tool_resolved")
        if seen.body["decision"] == "rerun" and seen.body.get("by", "user") == "user"
    )
    figures.effects += found.total()
    for effect, times in found.items():
        if times > 1 + again[effect]:
            figures.twice += times - 1 - again[effect]
            figures.wrong.append(f"{effect} took effect {times} times")
    done = {name for name in _effects_done(recorder) if not found[name]}
    if done:
        figures.wrong.append(f"{done} were told to be done and had no effect")


def _effect_of(recorder: SessionRecorder, call_id: str) -> str:
    # A person may have made another call of it.
    for seen in reversed(recorder.of_kind("tool_intended")):
        if seen.body["call_id"] == call_id:
            return _effect_in(seen.body["arguments"])
    return ""


def _effects_done(recorder: SessionRecorder) -> list[str]:
    """Return the effects of calls that settled as done by their own outcome, not by a person's answer."""
    resolved = {seen.body["call_id"] for seen in recorder.of_kind("tool_resolved")}
    settled = [seen.body for seen in recorder.of_kind("tool_settled")]
    calls = [
        body["call_id"]
        for body in settled
        if body["name"] == "shell" and body["outcome"] == "done" and body["call_id"] not in resolved
    ]
    return [_effect_of(recorder, call_id) for call_id in calls]


def _effect_in(arguments: str) -> str:
    command: str = msgspec.json.decode(arguments)["command"]
    return command.split()[1]


async def _read_journal(
    http: aiohttp.ClientSession, recorder: SessionRecorder, address: str
) -> dict[int, bytes]:
    async with http.get(f"{address}/api/sessions/{recorder.session_id}") as answer:
        head = (await answer.json())["head"]
    journal: dict[int, bytes] = {}
    async with http.get(f"{address}/api/sessions/{recorder.session_id}/events?after=0") as answer:
        async for seq, _, raw in frames(answer):
            journal[seq] = raw
            if seq >= head:
                break
    return journal


async def _read_messages(
    http: aiohttp.ClientSession, recorder: SessionRecorder, address: str
) -> list[dict[str, Any]]:
    pages: list[list[dict[str, Any]]] = []
    before = ""
    while True:
        url = f"{address}/api/sessions/{recorder.session_id}/messages?limit=200{before}"
        async with http.get(url) as answer:
            page = await answer.json()
        pages.append(page["messages"])
        if page["before"] is None:
            return [message for page in reversed(pages) for message in page]
        before = f"&before={page['before']}"
