"""Tokens of tests: read from the data folder of a server, and kept by the address of the server."""

import os
from pathlib import Path

TOKEN = "hf_" + "a-token-that-only-tests-have-and-nobody-else-"[:43]
"""The token of servers whose data folder a test prepares."""
AUTH_HEADERS = {"Authorization": f"Bearer {TOKEN}"}

_TOKENS_BY_ADDRESS: dict[str, str] = {}


def write_token(folder: Path) -> None:
    """Write the tests' own token to the data folder, before the server starts."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "token"
    if not path.exists():
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(TOKEN + "\n")


def register_token(address: str, folder: Path) -> str:
    """Return the token of a server that has started over `folder`, and register it for its address."""
    path = folder / "token"
    token = path.read_text().strip() if path.exists() else ""
    _TOKENS_BY_ADDRESS[address.rstrip("/")] = token
    return token


def token_for(address: str) -> str:
    """Return the token of the server at an address, or the tests' own token if none is registered."""
    return _TOKENS_BY_ADDRESS.get(address.rstrip("/"), TOKEN)


def bearer_headers(token: str) -> dict[str, str]:
    """Return the header with a token, or no header for an empty token."""
    return {"Authorization": f"Bearer {token}"} if token else {}
