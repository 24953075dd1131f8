"""How tests come in: with the token in a server's data folder, remembered by the server's address."""

import os
from pathlib import Path

TOKEN = "hf_" + "a-token-that-only-tests-have-and-nobody-else-"[:43]
"""What servers that a test prepares itself let in."""
AUTH_HEADERS = {"Authorization": f"Bearer {TOKEN}"}

_TOKENS_BY_ADDRESS: dict[str, str] = {}


def write_token(folder: Path) -> None:
    """Put the tests' own token where a server looks for it, before it is started."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "token"
    if not path.exists():
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(TOKEN + "\n")


def register_token(address: str, folder: Path) -> str:
    """The token of a server that has started over `folder`; from now on known by its address."""
    path = folder / "token"
    token = path.read_text().strip() if path.exists() else ""
    _TOKENS_BY_ADDRESS[address.rstrip("/")] = token
    return token


def token_for(address: str) -> str:
    """The token of the server at an address; the tests' own one where none was remembered."""
    return _TOKENS_BY_ADDRESS.get(address.rstrip("/"), TOKEN)


def bearer_headers(token: str) -> dict[str, str]:
    """The head of a request that shows a token, or none."""
    return {"Authorization": f"Bearer {token}"} if token else {}
