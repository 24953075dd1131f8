"""Hash passwords with argon2id.

It is slow and needs much memory on purpose: run it off the event loop, and only a few at a time.
"""

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
    """Return a password in one Unicode form: keyboards compose the same letter differently."""
    return unicodedata.normalize("NFKC", password)
