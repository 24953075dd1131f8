"""The base class of facts, and the types that several kinds share."""

from typing import ClassVar, Literal

import msgspec

Role = Literal["user", "assistant", "tool", "notice"]
Effect = Literal["pure", "idempotent", "unsafe"]
ResumeMode = Literal["auto", "ask", "never"]
Settlement = Literal["settled", "interrupted", "recovered"]
ToolOutcome = Literal["done", "failed", "denied", "not_run", "unknown"]
ToolDecision = Literal["approve", "deny", "rerun", "mark_done", "skip"]
WaitReason = Literal["approval", "in_doubt", "client_tool", "question", "limit"]
ApprovalScope = Literal["once", "session", "always"]
Actor = Literal["user", "model", "server", "policy"]
Ranges = tuple[tuple[int, int], ...]
"""Turn numbers as inclusive ranges, in order."""
PaceSamples = tuple[int, ...]
"""The pace at which a body was written: ms, chars, ms, chars …, relative to the previous sample."""
RequestTokens = tuple[int, ...]
"""The estimated tokens of a request and the provider's count; empty without a count."""


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """The base of every fact; the closed union is `AnyFact`."""

    version: ClassVar[int] = 1


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A failure, as a person may read it."""

    code: str
    detail: str
