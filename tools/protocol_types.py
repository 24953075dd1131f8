"""Writes the page's types from the server's own declarations, so that the two cannot drift apart.

`make types` writes web/src/core/protocol.ts; a test fails when that file is not what would be written.
"""

import json
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import inspect as declared

from holdfast import office
from holdfast.domain import facts, parts
from holdfast.server import about, backups, channels, settings, shapes
from holdfast.server.auth import password, routes

TARGET = Path(__file__).resolve().parent.parent / "web" / "src" / "core" / "protocol.ts"
ANSWERS: tuple[type[msgspec.Struct], ...] = (
    shapes.Session, shapes.SessionList, shapes.Message, shapes.Run, shapes.MessageList, shapes.TurnReceipt,
    shapes.FoundList, shapes.ModelList, shapes.Question, shapes.FeedSnapshot, shapes.FeedChanged,
    shapes.FeedRemoved, shapes.StoredFile, routes.Me, routes.Entered,
    shapes.Draft,
    shapes.RuleList, routes.TokenList, routes.TokenMade, password.PasswordTold, password.SignInList,
    settings.SettingList, office.Tried, backups.BackupList, about.About,
    channels.ChannelList, office.ChannelTried, channels.StrangerList, channels.SenderList,
)  # fmt: skip
HEAD = "// Written by `make types` from the server's declarations. Do not edit.\n"


class Types:
    """Collects the structs that are met while types are written."""

    def __init__(self) -> None:
        self._written: dict[str, str] = {}

    def text(self) -> str:
        return "\n".join(self._written.values())

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
        """Write a struct once; the name it has."""
        # A part's own name would hide one that every browser has: Text, File.
        name = name or kind.cls.__name__ + ("Part" if kind.tag_field == "type" else "")
        if name in self._written:
            return name
        self._written[name] = ""  # Its place, before those of the structs that it holds.
        omits = bool(kind.cls.__struct_config__.omit_defaults)
        lines = list(first)
        if kind.tag_field is not None:
            lines.append(f"{kind.tag_field}: {json.dumps(kind.tag)};")
        for field in kind.fields:
            optional = "?" if omits and not field.required else ""
            lines.append(f"{field.encode_name}{optional}: {self.name_of(field.type)};")
        body = "".join(f"  readonly {line}\n" for line in lines)
        self._written[name] = f"export interface {name} {{\n{body}}}\n"
        return name

    def alias(self, name: str, value: str) -> None:
        self._written[name] = f"export type {name} =\n  {value};\n"


def written() -> str:
    """The whole file."""
    types = Types()
    for answer in ANSWERS:
        types.name_of(_declared(answer))
    names = []
    for kind, cls in facts.FACTS_BY_KIND.items():
        found = _declared(cls)
        assert isinstance(found, declared.StructType)
        names.append(types.struct(found, f"{cls.__name__}Event", (
            "seq: number;", "at: number;", f'kind: "{kind}";'
        )))  # fmt: skip
    types.alias("AnyPart", " | ".join(f"{part.__name__}Part" for part in get_args(parts.AnyPart)))
    types.alias("AnyEvent", "\n  | ".join(names))
    types.alias("Kind", 'AnyEvent["kind"]')
    kinds = "".join(f'  "{kind}",\n' for kind in facts.FACTS_BY_KIND)
    return f"{HEAD}\n{types.text()}\nexport const KINDS: readonly Kind[] = [\n{kinds}];\n"


def _declared(cls: type[Any]) -> declared.Type:
    return declared.type_info(cls)


if __name__ == "__main__":
    TARGET.write_text(written())
    print(f"Wrote {TARGET.name}", file=sys.stderr)
