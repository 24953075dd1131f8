"""Credentials of people and programs: tokens, signed-in browsers, a password, one-time codes.

A secret is shown once, to its owner. The store keeps a digest, which admits nobody.
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
"""In this order: read everything; send and change; approve tool calls; manage tokens."""
DEFAULT_RIGHTS: tuple[Right, ...] = ("read", "write")
"""The rights of a token by default: everything except approving tool calls."""

_SECRET_PREFIX = "hf_"
"""The prefix of every secret, by which people and scanners recognise one."""
_RANDOM_BYTES = 32


def new_secret(random_text: Callable[[int], str] = secrets.token_urlsafe) -> str:
    return _SECRET_PREFIX + random_text(_RANDOM_BYTES)


def secret_digest(secret: str) -> str:
    """Return the stored digest of a secret, which is too random to need a slow hash."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


class AccessToken(msgspec.Struct, frozen=True):
    """A program's access token, valid until it is revoked."""

    id: str
    name: str
    digest: str
    rights: tuple[Right, ...]
    created_at: Instant


class SignIn(msgspec.Struct, frozen=True):
    """A signed-in browser, identified by its cookie and by a key that its page sends with it.

    Browsers send a cookie to every port of a host, so another server on this machine may have seen it. The
    page sends its own key to no other port.
    """

    digest: str
    created_at: Instant
    expires_at: Instant
    page_digest: str = ""
    """Empty for a sign-in from before page keys: no key matches it."""


class SignInCode(msgspec.Struct, frozen=True):
    """A code that signs one browser in, once."""

    digest: str
    created_at: Instant
    expires_at: Instant


class Password(msgspec.Struct, frozen=True):
    hash: str
    set_at: Instant


class ServerAddress(msgspec.Struct, frozen=True):
    """The URL of a running server, and whether it requires signing in.

    `address` is where local programs reach it, behind any proxy. `model` is the one that it started with.
    """

    url: str
    auth: bool
    since: Instant
    address: str = ""
    model: str = ""


class CredentialSnapshot(msgspec.Struct, frozen=True):
    """All valid credentials at one moment, by digest."""

    tokens: Mapping[str, AccessToken] = MappingProxyType({})
    sign_ins: Mapping[str, SignIn] = MappingProxyType({})
    codes: Mapping[str, SignInCode] = MappingProxyType({})
    password: Password | None = None


class AuthConfig(msgspec.Struct, frozen=True):
    """The server's authentication settings."""

    auth: bool = True
    local_digest: str = ""
    """The digest of the token that local commands use."""
    public_url: str = ""
    allowed_hosts: tuple[str, ...] = ()
