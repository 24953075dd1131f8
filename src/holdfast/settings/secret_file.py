"""Private files in the data folder: provider connections with their keys, and webhook keys."""

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast.domain.errors import HoldfastError
from holdfast.domain.toml import InvalidToml, parse_toml
from holdfast.domain.webhook_signing import decode_key, encode_key
from holdfast.settings.edit import replace_file, to_toml
from holdfast.settings.settings import ConfigError
from holdfast.store.plain_files import BadSecretFile, read_or_create_secret

_MODE = 0o600
T = TypeVar("T", bound=msgspec.Struct)
MEMORY_WEBHOOK_KEY_FILE, CHANNEL_WEBHOOK_KEY_FILE = "memory-webhook.key", "channel-webhook.key"
_KEY_BYTES = 32


def read_secret(path: Path, kind: type[T], what: str) -> T | None:
    """Return the saved struct, if any; `what` names it in errors. Raises ConfigError if unreadable."""
    try:
        return msgspec.convert(parse_toml(path.read_text("utf-8")), kind)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, InvalidToml, msgspec.ValidationError):
        # Leave the content out of the message: it may include the secret.
        problem = f"this is no {what}; remove the file {path} and connect again"
        raise ConfigError(where=path, problem=problem) from None


def write_secret(path: Path, saved: msgspec.Struct | None, head: str) -> None:
    """Replace the file by `saved`, whose fields are text or tables of text; None deletes the file.

    Raises OSError.
    """
    if saved is None:
        path.unlink(missing_ok=True)
        return
    if path.exists():
        path.chmod(_MODE)
    fields = msgspec.to_builtins(saved)
    tables = {name: fields.pop(name) for name in list(fields) if isinstance(fields[name], dict)}
    lines = [head, *_lines(fields)]
    for name, table in tables.items():
        for key, fields_of_table in table.items():
            lines += (f"\n[{name}.{to_toml(key)}]\n", *_lines(fields_of_table))
    replace_file(path, "".join(lines))


def _lines(fields: Mapping[str, str]) -> list[str]:
    return [f"{name} = {to_toml(text)}\n" for name, text in fields.items()]


class BadWebhookKey(HoldfastError):
    """{path} is not a key of yours for webhooks: {why}."""

    code, status = "bad_webhook_key", 409
    remedy = "Delete it; `holdfast serve` makes a new one, which your receiver needs then."


def read_or_create_webhook_key(
    path: Path, warn: Callable[[str], None], random_bytes: Callable[[int], bytes] = secrets.token_bytes
) -> str:
    """Return the key at `path`, `whsec_…`; create a missing one. Raises BadWebhookKey or OSError."""
    try:
        written = read_or_create_secret(path, lambda: encode_key(random_bytes(_KEY_BYTES)), warn)
        decode_key(written)
    except BadSecretFile as wrong:
        raise BadWebhookKey(path=path, why=wrong) from None
    except ValueError as error:
        raise BadWebhookKey(path=path, why=f"it is {error}") from None
    return written
