"""What lets people and programs in: tokens, signed-in browsers, a password, one-time codes.

A secret is shown once, to whoever it is made for. What is kept of it is a digest, which lets nobody in.
"""

import hashlib
import secrets
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from holdfast.domain.clock import Instant

Right = Literal["read", "write", "approve", "admin"]
RIGHTS: tuple[Right, ...] = ("read", "write", "approve", "admin")
"""Read everything; send and change; allow what the agent asks for; make and revoke tokens."""
DEFAULT_RIGHTS: tuple[Right, ...] = ("read", "write")
"""What a token may do when nobody says: anything but to allow what the agent asks for."""

_SECRET_PREFIX = "hf_"
"""Every secret begins so: people and scanners know one when they see it."""
_RANDOM_BYTES = 32


def new_secret(random_text: Callable[[int], str] = secrets.token_urlsafe) -> str:
    return _SECRET_PREFIX + random_text(_RANDOM_BYTES)


def secret_digest(secret: str) -> str:
    """What is kept of a secret. It has too much chance in it for a slow hash to matter."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


class AccessToken(msgspec.Struct, frozen=True):
    """Lets a program in, until it is revoked."""

    id: str
    name: str
    digest: str
    rights: tuple[Right, ...]
    created_at: Instant


class SignIn(msgspec.Struct, frozen=True):
    """Lets a browser in: by its cookie, and by what its page shows beside it.

    Browsers send a cookie to every port of a host, so whoever serves another page of this machine may have
    seen it. What a page keeps itself is told to no other port.
    """

    digest: str
    created_at: Instant
    expires_at: Instant
    page_digest: str = ""
    """Of nothing that can be shown, where a sign-in is older than this."""


class SignInCode(msgspec.Struct, frozen=True):
    """Signs one browser in, once."""

    digest: str
    created_at: Instant
    expires_at: Instant


class Password(msgspec.Struct, frozen=True):
    hash: str
    set_at: Instant


class ServerAddress(msgspec.Struct, frozen=True):
    """Where a server is reached, and whether one has to sign in there.

    `address` is where programs of this machine find it, whatever stands in front of it for others. `model` is
    the one that answered when it began.
    """

    url: str
    auth: bool
    since: Instant
    address: str = ""
    model: str = ""


class CredentialSnapshot(msgspec.Struct, frozen=True):
    """Everything that lets anybody in at one moment, by digest."""

    tokens: Mapping[str, AccessToken] = MappingProxyType({})
    sign_ins: Mapping[str, SignIn] = MappingProxyType({})
    codes: Mapping[str, SignInCode] = MappingProxyType({})
    password: Password | None = None


class AuthConfig(msgspec.Struct, frozen=True):
    """How a server may be reached and come in to, as its settings say."""

    auth: bool = True
    local_digest: str = ""
    """Of the token that local commands use."""
    public_url: str = ""
    allowed_hosts: tuple[str, ...] = ()
