"""Write the page's types from the server's own declarations, so that the two cannot drift apart.

`make types` writes web/src/core/protocol/; a test fails when a file there is out of date.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import inspect as declared

from holdfast.agent.config.info import AgentListing, AgentPrompt, AgentText, PromptListing
from holdfast.channels.info import ChannelTestResult
from holdfast.domain.events import facts, parts
from holdfast.http.routes import about, backups, channels, file_changes, mcp, password, settings, sign_in
from holdfast.http.schemas import memory, responses
from holdfast.models.info import ConnectionTestResult
from holdfast.models.local.info import LocalModelInfo

TARGET = Path(__file__).resolve().parent.parent / "web" / "src" / "core" / "protocol"
Structs = tuple[type[msgspec.Struct], ...]
ANSWERS: Mapping[str, Structs] = {
    "conversations": (
        responses.SessionInfo, responses.SessionInfoList, responses.MessageInfo, responses.RunInfo,
        responses.MessageList,
        responses.TurnReceipt, responses.MessageMatchList, responses.QuestionInfo, responses.FeedSnapshot,
        responses.FeedChanged, responses.FeedRemoved, responses.UploadedFile, responses.Draft,
        file_changes.ChangedFiles, file_changes.RestoredFiles,
    ),
    "server": (
        responses.AvailableModels, sign_in.Me, sign_in.SignInResult, responses.RuleList, sign_in.TokenList,
        sign_in.TokenWithSecret, password.PasswordInfo, password.SignInList, settings.SettingList,
        ConnectionTestResult,
        backups.BackupList, about.About, channels.ChannelList, ChannelTestResult,
        channels.UnknownSenderList, channels.SenderList, mcp.McpList, LocalModelInfo,
    ),
    "agents": (
        AgentListing, AgentText, AgentPrompt, PromptListing,
    ),
    "memory": (
        memory.MemoryItem, memory.MemoryItemList, memory.MemoryQueueInfo, memory.MemoryCommitResult,
    ),
}  # fmt: skip
EVENTS: Mapping[str, tuple[str, ...]] = {
    "session_events": ("session_", "turn_", "turns_"),
    "run_events": ("run_", "recovery_", "context_", "model_", "files_"),
    "message_events": ("text_", "reasoning_", "message_", "tool_", "approval_", "question_"),
    "memory_events": ("memory_", "delivery_"),
}
"""Maps each file to the beginnings of its event kinds."""
HEAD = "// Written by `make types` from the server's declarations. Do not edit.\n"


class TypeScriptTypes:
    """Collect the structs used by the written types, each in the file that uses it first."""

    def __init__(self) -> None:
        self._written: dict[str, str] = {}
        self._file_of: dict[str, str] = {}
        self.file = ""

    def files(self) -> dict[str, str]:
        """Return the text of every file, with its imports from the others."""
        names = dict.fromkeys(self._file_of.values())
        return {name: self._text(name) for name in names}

    def _text(self, file: str) -> str:
        body = "\n".join(text for name, text in self._written.items() if self._file_of[name] == file)
        used = dict.fromkeys(re.findall(r"\b[A-Z]\w+\b", body))
        needed: dict[str, list[str]] = {}
        for name in sorted(used):
            if self._file_of.get(name, file) != file:
                needed.setdefault(self._file_of[name], []).append(name)
        imports = "".join(
            f'import type {{ {", ".join(names)} }} from "./{source}";\n'
            for source, names in sorted(needed.items())
        )
        return f"{HEAD}\n{imports}{imports and chr(10)}{body}"

    def name_of(self, kind: declared.Type) -> str:
        match kind:
            case declared.IntType() | declared.FloatType():
                return "number"
            case declared.StrType():
                return "string"
            case declared.BoolType():
                return "boolean"
            case declared.NoneType():
                return "null"
            case declared.LiteralType():
                return " | ".join(json.dumps(value) for value in kind.values)
            case declared.UnionType():
                return " | ".join(dict.fromkeys(self.name_of(each) for each in kind.types))
            case declared.VarTupleType() | declared.ListType():
                return f"readonly ({self.name_of(kind.item_type)})[]"
            case declared.TupleType():
                return f"readonly [{', '.join(self.name_of(each) for each in kind.item_types)}]"
            case declared.DictType():
                return f"Readonly<Record<string, {self.name_of(kind.value_type)}>>"
            case declared.StructType():
                return self.struct(kind)
            case declared.Metadata():
                return self.name_of(kind.type)
        return "unknown"

    def struct(self, kind: declared.StructType, name: str = "", first: tuple[str, ...] = ()) -> str:
        """Write a struct once; return its name."""
        # A part's own name would hide one that every browser has: Text, File.
        name = name or kind.cls.__name__ + ("Part" if kind.tag_field == "type" else "")
        if name in self._written:
            return name
        self._put(name, "")  # Reserves its place before the structs that it contains.
        omits = bool(kind.cls.__struct_config__.omit_defaults)
        lines = list(first)
        if kind.tag_field is not None:
            lines.append(f"{kind.tag_field}: {json.dumps(kind.tag)};")
        for field in kind.fields:
            optional = "?" if omits and not field.required else ""
            lines.append(f"{field.encode_name}{optional}: {self.name_of(field.type)};")
        body = "".join(f"  readonly {line}\n" for line in lines)
        self._put(name, f"export interface {name} {{\n{body}}}\n")
        return name

    def alias(self, name: str, value: str) -> None:
        self._put(name, f"export type {name} =\n  {value};\n")

    def _put(self, name: str, text: str) -> None:
        self._written[name] = text
        self._file_of.setdefault(name, self.file)


def generate() -> dict[str, str]:
    """Return every file by name."""
    types = TypeScriptTypes()
    for types.file, answers in ANSWERS.items():
        for answer in answers:
            types.name_of(_declared_kind(answer))
    names = []
    for kind, cls in facts.FACTS_BY_KIND.items():
        found = _declared_kind(cls)
        assert isinstance(found, declared.StructType)
        types.file = next(file for file, beginnings in EVENTS.items() if kind.startswith(beginnings))
        names.append(types.struct(found, f"{cls.__name__}Event", (
            "seq: number;", "at: number;", f'kind: "{kind}";'
        )))  # fmt: skip
    types.file = "index"
    types.alias("AnyPart", " | ".join(f"{part.__name__}Part" for part in get_args(parts.AnyPart)))
    types.alias("AnyEvent", "\n  | ".join(names))
    types.alias("Kind", 'AnyEvent["kind"]')
    files = types.files()
    others = "".join(f'export type * from "./{name}";\n' for name in files if name != "index")
    return {f"{name}.ts": text + (f"\n{others}" if name == "index" else "") for name, text in files.items()}


def _declared_kind(cls: type[Any]) -> declared.Type:
    return declared.type_info(cls)


def write() -> None:
    """Write the files, and delete those that are no longer generated."""
    files = generate()
    TARGET.mkdir(exist_ok=True)
    for path in TARGET.glob("*.ts"):
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        (TARGET / name).write_text(text)
    print(f"Wrote {', '.join(files)}", file=sys.stderr)


if __name__ == "__main__":
    write()
