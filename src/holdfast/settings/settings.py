"""Every setting's name, type, default and help, and the order of its sources.

The command line overrides `HOLDFAST_*` variables, these override `holdfast.toml` in the data folder, and that
overrides the default. Other packages receive plain values, never these settings.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, get_args, get_origin, get_type_hints

import msgspec

from holdfast.domain.errors import HoldfastError
from holdfast.domain.mcp import BadMcpServer, McpServer, parse_servers
from holdfast.domain.shell.commands import NEVER_RUN
from holdfast.domain.toml import InvalidToml, parse_toml

FILE_NAME = "holdfast.toml"
PREFIX = "HOLDFAST_"
MCP = "mcp"
"""The table of the file with one subtable per MCP server."""
CHANGEABLE = frozenset({
    "approvals", "never_run", "resume", "runs_at_once",
    "run_steps_max", "run_tokens_max", "run_cost_usd_max", "run_time_s_max",
    "summarise_above",
})  # fmt: skip
"""Settings that users can change while a server runs."""
_PORT = r":([1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])"
_AUTHORITY = rf"([A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])({_PORT})?"
"""A host name or address as browsers send it, and a port. The server could never match another form."""
_PATH_SEGMENT = r"/(?!\.{1,2}(/|\Z))[A-Za-z0-9._~!$&'()*+,;=:@-]+"
"""A segment of a path that neither browsers nor proxies rewrite."""
_MODEL_TAKES = r"\A[a-z]+:\S+=(text|image|pdf)(\+(text|image|pdf))*\Z"
Url = Annotated[str, msgspec.Meta(pattern=r"\A(https?://\S+)?\Z")]
"""An HTTP address, or the empty string."""
Origin = Literal["command line", "environment", "file"]
"""The source of a value that is not the default."""


class ConfigError(HoldfastError):
    """{where}: {problem}."""

    code = "bad_config"


class SettingHelp(msgspec.Struct, frozen=True):
    """Help for a setting; `default` describes the default if its value alone does not."""

    help: str
    allowed: str
    default: str = ""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in effect. `given` names those that are not defaults."""

    data: Annotated[
        Path,
        SettingHelp(
            help="Folder that holds everything Holdfast keeps.",
            allowed="a folder",
            default="$XDG_DATA_HOME/holdfast, else ~/.local/share/holdfast",
        ),
    ]
    host: Annotated[
        str,
        msgspec.Meta(min_length=1, max_length=253),
        SettingHelp(
            help="Address to listen on; one beyond this machine needs a password or a token first.",
            allowed="an address or a name of this machine",
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        msgspec.Meta(ge=0, le=65535),
        SettingHelp(
            help="Port to listen on; 0 takes any. When it is not given and taken, the next free one is used.",
            allowed="a whole number from 0 to 65535",
        ),
    ] = 8787
    auth: Annotated[
        Literal["on", "off"],
        SettingHelp(
            help="Whether one has to sign in. `off` is for a machine of one's own, and listens on it alone.",
            allowed="on or off",
        ),
    ] = "on"
    public_url: Annotated[
        str,
        msgspec.Meta(pattern=rf"\A(https?://{_AUTHORITY}({_PATH_SEGMENT})*/?)?\Z"),
        SettingHelp(
            help="The address that people use, where it is a proxy's or a tunnel's; its path is taken off.",
            allowed="an address like https://example.org/holdfast",
        ),
    ] = ""
    allowed_hosts: Annotated[
        tuple[Annotated[str, msgspec.Meta(pattern=rf"\A{_AUTHORITY}/?\Z")], ...],
        SettingHelp(
            help="Further names, with a port where it is not the usual one, that the server answers to.",
            allowed="a list of names like box.lan or box.lan:8443",
        ),
    ] = ()
    open_browser: Annotated[
        Literal["auto", "never"],
        SettingHelp(
            help="`auto` opens the page at the start where there is a screen and a terminal.",
            allowed="auto or never",
        ),
    ] = "auto"
    durability: Annotated[
        Literal["full", "normal"],
        SettingHelp(
            help="`full` survives power loss; `normal` is faster and survives a kill of the process.",
            allowed="full or normal",
        ),
    ] = "full"
    model: Annotated[
        str,
        SettingHelp(
            help="Which model answers. Left empty: what your environment or machine offers, or the demo.",
            allowed="demo, local, or PROVIDER:NAME such as openai:NAME, anthropic:NAME or ollama:NAME",
            default="whatever is found",
        ),
    ] = ""
    fallback_models: Annotated[
        tuple[Annotated[str, msgspec.Meta(pattern=r"\A[a-z]+:\S+\Z", max_length=200)], ...],
        SettingHelp(
            help="Models that are asked, in this order, where the one that answers cannot.",
            allowed="a list of models like anthropic:NAME",
        ),
    ] = ()
    model_windows: Annotated[
        tuple[Annotated[str, msgspec.Meta(pattern=r"\A[a-z]+:\S+=[1-9]\d{3,7}\Z", max_length=220)], ...],
        SettingHelp(
            help="How many tokens models read at once, where their servers do not say, or say it wrong.",
            allowed="a list like openai:NAME=32768, each number from 1000 to 99999999",
        ),
    ] = ()
    model_takes: Annotated[
        tuple[Annotated[str, msgspec.Meta(pattern=_MODEL_TAKES, max_length=220)], ...],
        SettingHelp(
            help="Which files models are sent, where their servers do not say, or say it wrong.",
            allowed="a list like openai:NAME=image or openai:NAME=image+pdf; text alone is NAME=text",
        ),
    ] = ()
    approvals: Annotated[
        Literal["ask", "allow"],
        SettingHelp(
            help="Ask before actions that change something, or never ask.",
            allowed="ask or allow",
        ),
    ] = "ask"
    never_run: Annotated[
        tuple[Annotated[str, msgspec.Meta(pattern=r"\S")], ...],
        SettingHelp(
            help="Commands that never run, even if you allow them. `*` at the end matches anything.",
            allowed="a list of commands",
            default="commands that end the machine or wipe its disks",
        ),
    ] = NEVER_RUN
    run_steps_max: Annotated[
        int,
        msgspec.Meta(ge=1, le=10_000),
        SettingHelp(
            help="Pause an answer after this many steps.",
            allowed="a whole number from 1 to 10000",
        ),
    ] = 50
    run_tokens_max: Annotated[
        int,
        msgspec.Meta(ge=0),
        SettingHelp(
            help="Pause an answer after this many tokens, read and written. 0 = no limit.",
            allowed="a whole number from 0",
        ),
    ] = 2_000_000
    run_cost_usd_max: Annotated[
        float,
        msgspec.Meta(ge=0),
        SettingHelp(
            help="Pause an answer that has cost this much, where prices are known. 0 = no limit.",
            allowed="a number from 0",
        ),
    ] = 5.0
    run_time_s_max: Annotated[
        int,
        msgspec.Meta(ge=0),
        SettingHelp(
            help="Pause an answer after this many seconds of work. 0 = no limit.",
            allowed="a whole number from 0",
        ),
    ] = 3_600
    runs_at_once: Annotated[
        int,
        msgspec.Meta(ge=1, le=10_000),
        SettingHelp(
            help="Answers that run at the same time. More wait in a queue.",
            allowed="a whole number from 1 to 10000",
        ),
    ] = 100
    summarise_above: Annotated[
        int,
        msgspec.Meta(ge=0, le=95),
        SettingHelp(
            help="Summarise old messages when the context is this full (%). 0 = never.",
            allowed="a whole number from 0 to 95",
        ),
    ] = 70
    resume: Annotated[
        Literal["auto", "ask", "never"],
        SettingHelp(
            help="What an interrupted answer does after a restart: continue, ask you, or stay stopped.",
            allowed="auto, ask or never",
        ),
    ] = "auto"
    memory: Annotated[
        str,
        msgspec.Meta(pattern=r"\A[a-z][a-z0-9_-]{0,63}\Z"),
        SettingHelp(
            help="Who remembers: the built-in notes, a webhook of yours, an installed provider; or off.",
            allowed="notes, webhook, off, or the name of an installed provider",
        ),
    ] = "notes"
    memory_idle_s: Annotated[
        int,
        msgspec.Meta(ge=1, le=86_400),
        SettingHelp(
            help="Seconds after its last answer at which what was said in a conversation is remembered.",
            allowed="a whole number from 1 to 86400",
        ),
    ] = 900
    memory_recall_ms: Annotated[
        int,
        msgspec.Meta(ge=50, le=60_000),
        SettingHelp(
            help="Milliseconds for which an answer waits for what is remembered; then it begins without.",
            allowed="a whole number from 50 to 60000",
        ),
    ] = 250
    memory_in_doubt: Annotated[
        Literal["ask", "retry"],
        SettingHelp(
            help="When a memory may have been told already and cannot say so: ask you, or tell it again.",
            allowed="ask or retry",
        ),
    ] = "ask"
    memory_webhook_url: Annotated[
        Url,
        SettingHelp(
            help="Where memory=webhook sends to; signed with memory-webhook.key of the data folder.",
            allowed="an address like https://example.org/memory",
        ),
    ] = ""
    memory_embedding_url: Annotated[
        Url,
        SettingHelp(
            help="An OpenAI-compatible server whose embeddings let the notes be found by meaning too.",
            allowed="an address like http://127.0.0.1:11434/v1",
        ),
    ] = ""
    memory_embedding_model: Annotated[
        str,
        SettingHelp(help="The model that it is asked for.", allowed="a model's name"),
    ] = ""
    fetch_allow: Annotated[
        tuple[Annotated[str, msgspec.Meta(pattern=r"\A[\w.:/\[\]-]+\Z", max_length=260)], ...],
        SettingHelp(
            help="Hosts and networks that fetch_url may ask though they are not of the internet.",
            allowed="a list of hosts like wiki.lan or networks like 10.0.0.0/8",
        ),
    ] = ()
    searxng_url: Annotated[
        Url,
        SettingHelp(
            help="A SearXNG of yours that web_search asks; empty: what SEARXNG_URL or a search key names.",
            allowed="an address like http://127.0.0.1:8888",
        ),
    ] = ""
    telegram: Annotated[
        Literal["polling", "webhook", "off"],
        SettingHelp(
            help="How Telegram is listened to once there is a bot's token: by asking it, or by being called.",
            allowed="polling, webhook or off",
        ),
    ] = "polling"
    telegram_api_url: Annotated[
        str,
        msgspec.Meta(pattern=r"\Ahttps?://\S+\Z"),
        SettingHelp(
            help="Telegram's own server, or one of yours that speaks its Bot API.",
            allowed="an address like https://api.telegram.org",
        ),
    ] = "https://api.telegram.org"
    channel_webhook_url: Annotated[
        Url,
        SettingHelp(
            help="Where answers to what came in by the webhook channel are sent; empty: there is none.",
            allowed="an address like https://example.org/answers",
        ),
    ] = ""
    stop_grace_s: Annotated[
        float,
        msgspec.Meta(ge=0, le=600),
        SettingHelp(
            help="Seconds that answers may take to reach the end of a step when the server is stopped.",
            allowed="a number from 0 to 600",
        ),
    ] = 5.0
    mcp: tuple[McpServer, ...] = ()
    """The servers of the tables `[mcp.NAME]`, which only the file can set."""
    given: frozenset[str] = frozenset()
    origins: Mapping[str, Origin] = MappingProxyType({})
    """The source of each setting in `given`."""


def settings_help() -> Mapping[str, SettingHelp]:
    """Return the help of every setting by name, in the order of declaration."""
    hints = get_type_hints(Settings, include_extras=True)
    notes = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    values = {field.name: field.default for field in msgspec.structs.fields(Settings)}
    helps = {name: note[-1] for name, note in notes.items() if note}
    return MappingProxyType({
        name: each if each.default else msgspec.structs.replace(each, default=_format_default(values[name]))
        for name, each in helps.items()
    })  # fmt: skip


def resolve(command_line: Mapping[str, object], environ: Mapping[str, str]) -> Settings:
    """Return the settings in effect; None on the command line means that an option is absent.

    Raises ConfigError, which names the setting, its source and the allowed values.
    """
    chosen = {name: (f"--{name}", value) for name, value in command_line.items() if value is not None}
    # Compose files and service managers use an empty variable for "not set".
    variables = {key: text for key, text in environ.items() if key.startswith(PREFIX) and text}
    _refuse_unknown("the environment", variables, PREFIX)
    for key, text in variables.items():
        chosen.setdefault(key.removeprefix(PREFIX).lower(), (key, text))
    data = _convert("data", *chosen.get("data", ("the default", _default_folder(environ))))
    assert isinstance(data, Path)
    written = _read(data / FILE_NAME)
    mcp = _mcp_servers(data / FILE_NAME, written.pop(MCP, {}))
    for name, value in written.items():
        chosen.setdefault(name, (str(data / FILE_NAME), value))
    values = {name: _convert(name, *chosen[name]) for name in chosen}
    origins = {name: _origin(where) for name, (where, _) in chosen.items()}
    values |= {"data": data, "mcp": mcp, "given": frozenset(chosen), "origins": origins}
    return Settings(**values)  # type: ignore[arg-type]


def with_changes(settings: Settings, changes: Mapping[str, object]) -> Settings:
    """Return `settings` with changed values as the file will have them; None is the default.

    The values come from a program, so text never stands for another type. Raises ConfigError.
    """
    where = "what is wanted"
    _refuse_unknown(where, changes)
    hints = get_type_hints(Settings, include_extras=True)
    defaults = {name: getattr(Settings(data=settings.data), name) for name in changes}
    origins = {name: origin for name, origin in settings.origins.items() if name not in changes}
    values: dict[str, object] = {}
    for name, value in changes.items():
        try:
            values[name] = defaults[name] if value is None else msgspec.convert(value, hints[name])
        except (msgspec.ValidationError, TypeError):
            problem = f"{name} must be {settings_help()[name].allowed}"
            raise ConfigError(where=where, problem=problem) from None
        if value is not None:
            origins[name] = "file"
    return msgspec.structs.replace(settings, **values, origins=origins, given=frozenset(origins))


def _format_default(default: object) -> str:
    if default in ("", ()):
        return "none"
    return f"{default:g}" if isinstance(default, float) else str(default)


def _origin(where: str) -> Origin:
    return "command line" if where.startswith("--") else "environment" if where.startswith(PREFIX) else "file"


def _default_folder(environ: Mapping[str, str]) -> str:
    base = environ.get("XDG_DATA_HOME", "")
    # The XDG specification says to ignore relative paths.
    return f"{base}/holdfast" if base.startswith("/") else "~/.local/share/holdfast"


def _read(path: Path) -> dict[str, object]:
    """Return the values that the file sets; none if it does not exist."""
    try:
        found: dict[str, object] = parse_toml(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (InvalidToml, UnicodeDecodeError) as error:
        raise ConfigError(where=path, problem=f"this is not TOML: {error}") from None
    except OSError as error:
        raise ConfigError(where=path, problem=f"this cannot be read: {error.strerror}") from None
    _refuse_unknown(str(path), (name for name in found if name != MCP))
    if "data" in found:
        raise ConfigError(where=path, problem="data cannot be set inside the folder that it names")
    return found


def _mcp_servers(path: Path, tables: object) -> tuple[McpServer, ...]:
    try:
        return parse_servers(tables)
    except BadMcpServer as error:
        raise ConfigError(where=path, problem=str(error)) from None


def _refuse_unknown(where: str, names: Iterable[str], prefix: str = "") -> None:
    known = [prefix + (name.upper() if prefix else name) for name in settings_help()]
    for name in names:
        if name not in known:
            problem = f"there is no setting {name}; there are {', '.join(known)}"
            raise ConfigError(where=where, problem=problem)


def _convert(name: str, where: str, value: object) -> object:
    hint = get_type_hints(Settings, include_extras=True)[name]
    if isinstance(value, str) and get_origin(get_args(hint)[0]) is tuple:
        value = [word for each in value.split(",") if (word := each.strip())]
    try:
        # Text from a shell may stand for a number; a TOML value already has its type.
        return msgspec.convert(value, hint, strict=not isinstance(value, str), dec_hook=_convert_folder)
    except (msgspec.ValidationError, RuntimeError):
        allowed = settings_help()[name].allowed
        raise ConfigError(where=where, problem=f"{name} is {value!r}, but must be {allowed}") from None


def _convert_folder(kind: type, value: object) -> object:
    """Return a folder from text, with `~` expanded. Raises RuntimeError for the home of an unknown user."""
    assert kind is Path, kind
    if isinstance(value, Path):
        return value.absolute()
    if not isinstance(value, str) or not value:
        raise msgspec.ValidationError("a folder is text")
    return Path(value).expanduser().absolute()
