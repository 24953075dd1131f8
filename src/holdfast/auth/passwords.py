"""Passwords, hashed with argon2id: slow and hungry on purpose, so not on the event loop, and few at once."""

import unicodedata

MEMORY_KB = 65_536
HASH_PASSES = 3


def hash_password(password: str) -> str:
    import argon2  # Loading it takes longer than most commands do, and few need it.

    return argon2.PasswordHasher(time_cost=HASH_PASSES, memory_cost=MEMORY_KB, parallelism=1).hash(
        _normalized(password)
    )


def verify_password(hashed: str, password: str) -> bool:
    import argon2

    try:
        return argon2.PasswordHasher().verify(hashed, _normalized(password))
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False


def _normalized(password: str) -> str:
    """Keyboards differ in how they compose the same letter."""
    return unicodedata.normalize("NFKC", password)
