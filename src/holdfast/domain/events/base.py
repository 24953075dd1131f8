"""What every fact is made of: the base of them all, and the words that several kinds share."""

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
"""Numbers of turns, as inclusive ranges in order."""
PaceSamples = tuple[int, ...]
"""How a body was written: ms, chars, ms, chars …, each the step since the sample before."""
RequestTokens = tuple[int, ...]
"""How many tokens a request was thought to have, and how many its provider counted; empty where none did."""


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """The base of every fact; the closed union is `AnyFact`."""

    version: ClassVar[int] = 1


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why something failed, as a person may read it."""

    code: str
    detail: str
