"""Parse Telegram's updates into inbound updates. Pure: no network.

The parser reads only the fields that are used, so that new fields of Telegram never break it.
"""

import base64
import hashlib
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.domain.chats import Chat, ChatKind, FileRef, InboundUpdate

CHANNEL = "telegram"
UPDATE_KINDS = ("message", "callback_query")
"""The requested update kinds: no edits of messages, no posts of broadcast channels."""
PRESS_BYTES_MAX = 64
"""Telegram's limit for the data of a button."""
_SHORT = "#"
_UNSUPPORTED = (
    "voice",
    "video_note",
    "video",
    "audio",
    "sticker",
    "animation",
    "location",
    "contact",
    "poll",
)


class _User(msgspec.Struct, frozen=True):
    id: int
    first_name: str = ""
    last_name: str = ""
    username: str = ""
    is_bot: bool = False


class _Chat(msgspec.Struct, frozen=True):
    id: int
    type: str = "private"


class _Entity(msgspec.Struct, frozen=True):
    type: str
    offset: int = 0
    length: int = 0
    user: _User | None = None


class _Photo(msgspec.Struct, frozen=True):
    file_id: str
    width: int = 0
    height: int = 0
    file_size: int = 0


class _Document(msgspec.Struct, frozen=True):
    file_id: str
    file_name: str = ""
    mime_type: str = ""
    file_size: int = 0


class _ReplyTo(msgspec.Struct, frozen=True):
    from_: _User | None = msgspec.field(default=None, name="from")


class _Message(msgspec.Struct, frozen=True):
    message_id: int
    chat: _Chat
    date: int = 0
    from_: _User | None = msgspec.field(default=None, name="from")
    text: str = ""
    caption: str = ""
    entities: tuple[_Entity, ...] = ()
    caption_entities: tuple[_Entity, ...] = ()
    photo: tuple[_Photo, ...] = ()
    document: _Document | None = None
    voice: dict[str, Any] | None = None
    video_note: dict[str, Any] | None = None
    video: dict[str, Any] | None = None
    audio: dict[str, Any] | None = None
    sticker: dict[str, Any] | None = None
    animation: dict[str, Any] | None = None
    location: dict[str, Any] | None = None
    contact: dict[str, Any] | None = None
    poll: dict[str, Any] | None = None
    reply_to_message: _ReplyTo | None = None
    message_thread_id: int = 0
    is_topic_message: bool = False
    migrate_from_chat_id: int = 0


class _Press(msgspec.Struct, frozen=True):
    id: str
    from_: _User = msgspec.field(name="from")
    data: str = ""
    message: _Message | None = None


class _Update(msgspec.Struct, frozen=True):
    update_id: int
    message: _Message | None = None
    callback_query: _Press | None = None


class BotIdentity(msgspec.Struct, frozen=True):
    """The bot's own id and username, by which a group addresses it."""

    id: int
    username: str = ""


class ParsedUpdate(msgspec.Struct, frozen=True):
    """A parsed update: the inbound update, if any, and the id of a press to acknowledge."""

    update_id: int
    inbound: InboundUpdate | None = None
    query_id: str = ""


def update_number(update: Any) -> int:
    """Return the number of a raw update; -1 if it has none."""
    number = update.get("update_id") if isinstance(update, dict) else None
    return number if isinstance(number, int) else -1


def parse_update(update: Any, bot: BotIdentity) -> ParsedUpdate:
    """Parse a raw update. Raises msgspec.ValidationError if it is malformed."""
    parsed = msgspec.convert(update, _Update)
    if parsed.callback_query is not None:
        press = parsed.callback_query
        return ParsedUpdate(parsed.update_id, _inbound_press(parsed.update_id, press), press.id)
    if parsed.message is None:
        return ParsedUpdate(parsed.update_id)
    return ParsedUpdate(parsed.update_id, _inbound_message(parsed.update_id, parsed.message, bot))


def shorten_press(press: str) -> str:
    """Return the button data for `press`: itself if it is short enough, else a digest."""
    if len(press.encode()) <= PRESS_BYTES_MAX and not press.startswith(_SHORT):
        return press
    return _SHORT + base64.urlsafe_b64encode(hashlib.sha256(press.encode()).digest()).decode().rstrip("=")


def is_shortened(press: str) -> bool:
    return press.startswith(_SHORT)


def expand_press(short: str, known: Iterable[str]) -> str:
    """Return the press in `known` whose button data is `short`; `short` itself if there is none."""
    return next((press for press in known if shorten_press(press) == short), short)


def _inbound_press(update_id: int, press: _Press) -> InboundUpdate | None:
    """Return the update of a button press; in a group too, a press addresses the bot."""
    if press.message is None or not press.data or (chat := _chat(press.message)) is None:
        return None
    return InboundUpdate(
        chat=chat,
        update_id=str(update_id),
        sender=str(press.from_.id),
        sender_name=_name(press.from_),
        press=press.data,
        at=press.message.date * 1_000,
    )


def _inbound_message(update_id: int, message: _Message, bot: BotIdentity) -> InboundUpdate | None:
    chat, sender = _chat(message), message.from_
    if chat is not None and message.migrate_from_chat_id:
        # A group that became a supergroup has a new id, and this is its first message.
        return InboundUpdate(chat, str(update_id), "", moved_from=str(message.migrate_from_chat_id))
    if chat is None or sender is None or sender.is_bot:
        return None
    text_without_name = _without_name(message.text or message.caption, bot)
    text = "\n\n".join(filter(None, (text_without_name, _unsupported(message))))
    files = _files(message)
    if not text and not files:
        return None  # A service message, such as a new member or title.
    return InboundUpdate(
        chat=chat,
        update_id=str(update_id),
        sender=str(sender.id),
        sender_name=_name(sender),
        text=text,
        files=files,
        addressed=chat.kind == "dm" or _is_addressed(message, bot),
        at=message.date * 1_000,
    )


def _chat(message: _Message) -> Chat | None:
    kind: ChatKind = "dm" if message.chat.type == "private" else "group"
    if message.chat.type not in ("private", "group", "supergroup"):
        return None
    # A reply in a chat without topics has a thread id too, but cannot be sent to.
    thread = str(message.message_thread_id) if message.is_topic_message else ""
    return Chat(CHANNEL, kind, str(message.chat.id), thread)


def _files(message: _Message) -> tuple[FileRef, ...]:
    found: list[FileRef] = []
    if message.photo:  # The same picture in several sizes.
        best = max(message.photo, key=lambda photo: photo.width * photo.height)
        found.append(FileRef(best.file_id, "photo.jpg", "image/jpeg", best.file_size))
    if message.document is not None and message.animation is None:
        sent = message.document
        found.append(FileRef(sent.file_id, sent.file_name, sent.mime_type, sent.file_size))
    return tuple(found)


def _unsupported(message: _Message) -> str:
    """Return a text in place of an unsupported attachment, so that its sender gets an answer."""
    sent = next((kind for kind in _UNSUPPORTED if getattr(message, kind) is not None), "")
    return f"(A {sent.replace('_', ' ')} was sent, which cannot be taken here.)" if sent else ""


def _is_addressed(message: _Message, bot: BotIdentity) -> bool:
    replied = message.reply_to_message
    if replied is not None and replied.from_ is not None and replied.from_.id == bot.id:
        return True
    text = message.text or message.caption
    name = f"@{bot.username}".lower()
    for entity in message.entities or message.caption_entities:
        part = _part(text, entity.offset, entity.length).lower()
        if entity.type == "mention" and bot.username and part == name:
            return True
        if entity.type == "text_mention" and entity.user is not None and entity.user.id == bot.id:
            return True
        if entity.type == "bot_command" and bot.username and part.endswith(name):
            return True
    return False


def _part(text: str, offset: int, length: int) -> str:
    """Return a part of a text by Telegram's UTF-16 offsets."""
    raw = text.encode("utf-16-le", "surrogatepass")[2 * offset : 2 * (offset + length)]
    return raw.decode("utf-16-le", "replace")


def _without_name(text: str, bot: BotIdentity) -> str:
    """Return `text` without the bot's name: `/new@bot` becomes `/new`, and a leading mention is removed."""
    if not bot.username:
        return text.strip()
    name = re.escape(bot.username)
    text = re.sub(rf"^(/\w+)@{name}\b", r"\1", text.strip(), flags=re.IGNORECASE)
    return re.sub(rf"^@{name}\b[\s,:]*", "", text, flags=re.IGNORECASE) or text


def _name(user: _User) -> str:
    full = f"{user.first_name} {user.last_name}".strip()
    return full or (f"@{user.username}" if user.username else str(user.id))
