"""The keys that webhooks are signed with: files in the data folder that only their owner can read."""

import secrets
from collections.abc import Callable
from pathlib import Path

from holdfast.domain.errors import HoldfastError
from holdfast.domain.webhook_signing import key_of, written_of
from holdfast.store.own_file import NotOwn, own_secret

FOR_MEMORY, FOR_CHANNEL = "memory-webhook.key", "channel-webhook.key"
_CHANCE_BYTES = 32


class BadWebhookKey(HoldfastError):
    """{path} is not a key of yours for webhooks: {why}."""

    code, status = "bad_webhook_key", 409
    remedy = "Delete it; `holdfast serve` makes a new one, which your receiver needs then."


def webhook_key(
    path: Path, note: Callable[[str], None], chance: Callable[[int], bytes] = secrets.token_bytes
) -> str:
    """The key at `path`, `whsec_…`, made when it is missing. Raises BadWebhookKey or OSError."""
    try:
        written = own_secret(path, lambda: written_of(chance(_CHANCE_BYTES)), note)
        key_of(written)
    except NotOwn as wrong:
        raise BadWebhookKey(path=path, why=wrong) from None
    except ValueError as error:
        raise BadWebhookKey(path=path, why=f"it is {error}") from None
    return written
