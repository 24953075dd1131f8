"""The errors of the system: the docstring is the message, `code` is what clients switch on.

Codes are stable. `status` is the HTTP status of a response; `remedy`, if any, is what a person should do
next. `public_fields` names the fields that clients receive besides the message; `headers` are response
headers, as templates over the fields.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar


class HoldfastError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    remedy: ClassVar[str] = ""
    public_fields: ClassVar[tuple[str, ...]] = ()
    headers: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __init__(self, **fields: object) -> None:
        self.fields = fields
        template = " ".join((type(self).__doc__ or "").split())
        super().__init__(template.format(**fields))

    @property
    def advice(self) -> str:
        """The remedy with its fields filled in, or an empty string."""
        return self.remedy.format(**self.fields)

    @property
    def public_members(self) -> Mapping[str, object]:
        """The public fields that were given."""
        return {name: self.fields[name] for name in self.public_fields if name in self.fields}

    @property
    def response_headers(self) -> Mapping[str, str]:
        """The response headers with their fields filled in."""
        return {name: words.format(**self.fields) for name, words in self.headers.items()}


# Requests that cannot be fulfilled.


class NoSuchSession(HoldfastError):
    """There is no conversation {session_id}."""

    code, status = "no_such_session", 404


class NoSuchRun(HoldfastError):
    """There is no run {run_id}."""

    code, status = "no_such_run", 404


class NoSuchTurn(HoldfastError):
    """There is no such turn in conversation {session_id}: {turn}."""

    code, status = "no_such_turn", 404


class NoTurnLeft(NoSuchTurn):
    """There is no message left in conversation {session_id}."""


class NothingToRestore(NoSuchTurn):
    """Nothing was undone in conversation {session_id}."""

    code = "nothing_to_restore"


class RestoreRefused(HoldfastError):
    """These messages cannot be restored: the context was cleared after they were removed."""

    code, status = "restore_refused", 409
    remedy = "Branch the conversation, or say it again."


class NoSuchToolCall(HoldfastError):
    """There is no tool call {call_id} in this run."""

    code, status = "no_such_tool", 404


class AnswerRefused(HoldfastError):
    """This does not answer the question: {why}."""

    code, status = "answer_refused", 422


class NoSuchRule(HoldfastError):
    """There is no rule {rule_id}."""

    code, status = "no_such_rule", 404


class NoSuchQueuedCommit(HoldfastError):
    """Memory is owed nothing by the number {n} here."""

    code, status = "no_such_debt", 404


class CommitDecisionRefused(HoldfastError):
    """This cannot be answered with {decision} now: it is {state}."""

    code, status = "debt_refused", 409
    remedy = "Look at what memory is owed now; it has changed."


class NoSuchMemory(HoldfastError):
    """There is no memory {memory_id}."""

    code, status = "no_such_memory", 404


class ProviderFailure(HoldfastError):
    """Memory failed: {detail}."""

    code, status = "memory_failed", 502


class ProviderCannot(HoldfastError):
    """This memory has no way to {verb}."""

    code, status = "memory_cannot", 409


class MemoryOff(HoldfastError):
    """Memory is off."""

    code, status = "memory_off", 409
    remedy = "Set memory to notes, and start the server again."


class NoSuchChannel(HoldfastError):
    """There is no channel {name}."""

    code, status = "no_such_channel", 404


class NoSuchMcpServer(HoldfastError):
    """There is no MCP server {name}."""

    code, status = "no_such_mcp_server", 404


class NoSuchCode(HoldfastError):
    """Nobody waits with this code; it may have run out."""

    code, status = "no_such_code", 404
    remedy = "Have them write to the agent again: they are told another one."


class TooManyCodes(HoldfastError):
    """Too many wrong codes were tried."""

    code, status = "too_many_codes", 429
    remedy = "Wait until the hour is over."


class NoSuchSender(HoldfastError):
    """{sender} is not among those who may speak on {channel}."""

    code, status = "no_such_sender", 404


class NoSuchBlob(HoldfastError):
    """There is no stored file {digest}."""

    code, status = "no_such_blob", 404


class NoSuchToken(HoldfastError):
    """There is no token {token_id}."""

    code, status = "no_such_token", 404


class NoSuchSignIn(HoldfastError):
    """No browser is signed in as {sign_in_id}."""

    code, status = "no_such_sign_in", 404


class BadPassword(HoldfastError):
    """A password has {shortest} to {longest} characters."""

    code, status = "bad_password", 400


class SessionExists(HoldfastError):
    """Conversation {session_id} exists already."""

    code, status = "session_exists", 409


class SeqMismatch(HoldfastError):
    """Conversation {session_id} is at event {head}, not {expect}: it changed meanwhile."""

    code, status = "seq_mismatch", 409


class LeaseLost(HoldfastError):
    """Another process has claimed run {run_id}; this one must stop writing."""

    code, status = "lease_lost", 409


class LeaseHeld(HoldfastError):
    """Run {run_id} is held by a process that is alive."""

    code, status = "lease_held", 409


class KeyReused(HoldfastError):
    """Key {key} was used in this conversation for a different message."""

    code, status = "key_reused", 409


class RunRefused(HoldfastError):
    """Run {run_id} is {status}: it cannot {verb}."""

    code, status = "run_refused", 409


class SessionMoved(HoldfastError):
    """Conversation {session_id} goes on in {successor}."""

    code, status = "session_moved", 409
    remedy = "Go on in {successor}."


class SuccessorDeleted(NoSuchSession):
    """Conversation {session_id} went on in {successor}, which was deleted."""

    code, status = "successor_deleted", 409
    remedy = "Branch conversation {session_id} to go on from what was said there."


class NothingToSummarise(HoldfastError):
    """There is nothing to summarise in conversation {session_id} yet."""

    code, status = "nothing_to_summarise", 409


class SummaryRefused(HoldfastError):
    """Conversation {session_id} could not be summarised: {why}."""

    code, status = "summary_refused", 409
    remedy = "Try again in a moment."


class SummaryFailed(HoldfastError):
    """Conversation {session_id} could not be summarised: {why}"""

    code, status = "summary_failed", 502
    remedy = "Try again, or choose another model."


class Busy(HoldfastError):
    """Conversation {session_id} is busy: run {run_id} is {status}. Nothing was kept of this message."""

    code, status = "busy", 409


class ToolRefused(HoldfastError):
    """Tool call {call_id} is {state}: it cannot {verb}."""

    code, status = "tool_refused", 409


class RuleRefused(HoldfastError):
    """This rule cannot be made: {why}."""

    code, status = "rule_refused", 409


class CommandForbidden(HoldfastError):
    """This command is on the list of commands that are never run: {pattern}"""

    code, status = "never_run", 409
    remedy = "The list is the setting `never_run`."


class CommandNotCheckable(CommandForbidden):
    """This command {why} to be checked against the list of commands that are never run."""


class TooLarge(HoldfastError):
    """{what} is {size} long; the limit is {limit}."""

    code, status = "too_large", 413


class BadCursor(HoldfastError):
    """{cursor} is not a cursor of this list."""

    code, status = "bad_cursor", 400


class BadQuery(HoldfastError):
    """There is nothing in {query} to search for."""

    code, status = "bad_query", 400


class ImportConflict(HoldfastError):
    """Conversation {session_id} is here already and differs from the file at event {seq}."""

    code, status = "import_conflict", 409


class BadImport(HoldfastError):
    """{path} is not an export of a conversation: {why}."""

    code, status = "bad_import", 400


# Store failures. Nothing was acknowledged that is not stored.


class StoreFault(HoldfastError):
    """The store failed: {detail}."""

    code, status = "store_fault", 503
    remedy = "Run `holdfast doctor`."


class StoreClosed(StoreFault):
    """The store is closed."""

    code, remedy = "store_closed", ""


class StoreBusy(StoreFault):
    """Another process has held the store for {seconds} s."""

    code, remedy = "store_busy", "Find the process that uses {path} and stop it."


class DiskFull(StoreFault):
    """The disk that holds {path} is full."""

    code, status, remedy = "disk_full", 507, "Free some space; Holdfast goes on by itself."


class StoreReadOnly(StoreFault):
    """{path} cannot be written."""

    code, remedy = "store_read_only", "chmod u+rwX {path}, or choose another folder with --data."


class StoreUnreadable(StoreFault):
    """{path} cannot be opened: {detail}."""

    code, remedy = "store_unreadable", "Check that you own {path} and may read it."


class StoreCorrupt(StoreFault):
    """{path} is damaged: {detail}."""

    code, remedy = "store_corrupt", "Run `holdfast restore FILE` with your newest backup."


class StoreTooNew(StoreFault):
    """{path} was written by a newer Holdfast (format {found}; this one knows {known})."""

    code, remedy = "store_too_new", "Install the newer Holdfast, or restore an older backup."


class StoreInUse(StoreFault):
    """{path} is in use by another Holdfast process."""

    code, status, remedy = "store_in_use", 409, "Stop `holdfast serve` first."


class NotAStore(StoreFault):
    """{path} is not a Holdfast store."""

    code, remedy = "not_a_store", "Name a file that `holdfast backup` wrote."


class BadBackup(StoreFault):
    """{path} is not a backup that can be restored: {why}."""

    code, remedy = "bad_backup", "Name a file that `holdfast backup` wrote."


class NetworkFileSystem(StoreFault):
    """{path} is on a network file system ({kind}), where locks and syncs cannot be trusted."""

    code, remedy = "network_file_system", "Choose a folder on a local disk with --data."


class SqliteTooOld(StoreFault):
    """SQLite {found} can damage its files under several processes; {needed} or newer is needed."""

    code, remedy = "sqlite_too_old", "make setup"
