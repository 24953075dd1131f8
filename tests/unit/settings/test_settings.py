"""Where a setting comes from, and what people read when it is wrong."""

from pathlib import Path

import msgspec
import pytest

from holdfast.settings.settings import ConfigError, Settings, resolve, settings_help


def write(folder: Path, text: str) -> dict[str, str]:
    """A data folder with that settings file, and the environment that points to it."""
    (folder / "holdfast.toml").write_text(text)
    return {"HOLDFAST_DATA": str(folder)}


def test_defaults_hold_when_nothing_is_given() -> None:
    settings = resolve({}, {"XDG_DATA_HOME": "/x"})
    assert settings == Settings(data=Path("/x/holdfast"), host="127.0.0.1", port=8787, durability="full")
    assert settings.given == frozenset()


@pytest.mark.parametrize("base", [{}, {"XDG_DATA_HOME": ""}, {"XDG_DATA_HOME": "not/absolute"}])
def test_without_a_usable_xdg_folder_the_home_folder_is_used(
    base: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve({}, base).data == tmp_path / ".local/share/holdfast"


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    environ = write(tmp_path, 'port = 1111\nhost = "::1"\ndurability = "normal"')
    assert resolve({}, environ).port == 1111
    environ["HOLDFAST_PORT"] = "2222"
    assert resolve({}, environ).port == 2222
    settings = resolve({"port": "3333", "host": None}, environ)
    assert (settings.port, settings.host, settings.durability) == (3333, "::1", "normal")


def test_given_settings_are_distinguished_from_defaults(tmp_path: Path) -> None:
    assert resolve({"port": 8787}, write(tmp_path, 'host = "::1"')).given == {"port", "data", "host"}


def test_the_file_is_looked_for_in_the_folder_that_was_chosen(tmp_path: Path) -> None:
    write(tmp_path, "port = 1111")
    assert resolve({"data": tmp_path}, {"HOLDFAST_DATA": "/elsewhere"}).port == 1111


def test_a_folder_may_be_written_with_a_tilde_and_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert resolve({}, {"HOLDFAST_DATA": "~/kept"}).data == tmp_path / "kept"
    assert resolve({"data": Path("kept")}, {}).data == tmp_path / "kept"


def test_an_empty_variable_counts_as_not_set() -> None:
    assert resolve({}, {"HOLDFAST_PORT": ""}).port == 8787


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("port", "eighty", "a whole number from 0 to 65535"),
        ("port", "65536", "a whole number from 0 to 65535"),
        ("port", "-1", "a whole number from 0 to 65535"),
        ("host", "x" * 254, "an address or a name of this machine"),
        ("auth", "maybe", "on or off"),
        ("public_url", "example.org", "an address like https://example.org/holdfast"),
        ("public_url", "https://u:p@example.org", "an address like https://example.org/holdfast"),
        *(
            ("public_url", f"https://{rest}", "an address like https://example.org/holdfast")
            for rest in ("x/a/../b", "x/..", "x/%61", "x:0/", "x:65536", "x//a", "*", "a b", "x/a\n", "")
        ),
        *(
            ("allowed_hosts", text, "a list of names like box.lan or box.lan:8443")
            for text in (
                "*",
                "a b",
                "http://x/",
                "x/y",
                "x:0",
                "x:99999",
                "*.lan",
                "good.lan,a b",
                "-x",
                "x:",
            )
        ),
        ("run_steps_max", "0", "a whole number from 1 to 10000"),
        ("runs_at_once", "0", "a whole number from 1 to 10000"),
        ("durability", "none", "full or normal"),
        ("data", "~nobody-by-this-name/x", "a folder"),
    ],
)
def test_a_bad_value_is_named_with_its_place_and_what_is_allowed(name: str, text: str, allowed: str) -> None:
    variable = f"HOLDFAST_{name.upper()}"
    with pytest.raises(ConfigError) as caught:
        resolve({}, {variable: text})
    given = text.split(",") if name == "allowed_hosts" else text
    assert str(caught.value) == f"{variable}: {name} is {given!r}, but must be {allowed}."
    with pytest.raises(ConfigError, match=f"^--{name}: "):
        resolve({name: text}, {})


def test_common_addresses_and_host_names_are_accepted() -> None:
    for address in ("https://example.org", "http://[::1]:8787/", "https://Box_1.lan:65535/a.b/~c/", ""):
        assert resolve({"public_url": address}, {}).public_url == address
    names = ("box", "box.lan:8443", "10.0.0.5", "[fe80::1]:9000")
    assert resolve({"allowed_hosts": ",".join(names)}, {}).allowed_hosts == names


@pytest.mark.parametrize("text", ["port = 99999", "port = true", "port = 1.5", 'durability = "half"'])
def test_a_bad_value_in_the_file_names_the_file(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be") as caught:
        resolve({}, write(tmp_path, text))
    assert str(caught.value).startswith(f"{tmp_path}/holdfast.toml: ")
    assert caught.value.code == "bad_config"


def test_an_unknown_setting_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"holdfast.toml: there is no setting prot; there are data, host, port"
    ):
        resolve({}, write(tmp_path, "prot = 1"))
    with pytest.raises(ConfigError, match="there is no setting HOLDFAST_PROT; there are HOLDFAST_DATA"):
        resolve({}, {"HOLDFAST_PROT": "1"})


@pytest.mark.parametrize(
    "content",
    [
        b"port 8787", b"\xff\xfe", b"port = 1\nport = 2", b"port = " + b"1" * 5_000,
        b"port = 0x" + b"f" * 5_000, b"port = " + b"[" * 9_000,
    ],
    ids=["words", "bytes", "twice", "digits", "hex digits", "depth"],
)  # fmt: skip
def test_invalid_toml_is_reported_in_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_bytes(content)
    with pytest.raises(ConfigError, match="this is not TOML") as caught:
        resolve({"data": tmp_path}, {})
    assert "\n" not in str(caught.value)


def test_an_unreadable_settings_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").mkdir()
    with pytest.raises(ConfigError, match="this cannot be read"):
        resolve({"data": tmp_path}, {})


def test_the_data_folder_cannot_be_set_inside_itself(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="data cannot be set inside the folder that it names"):
        resolve({}, write(tmp_path, 'data = "/x"'))


def test_settings_cannot_be_changed_once_resolved() -> None:
    with pytest.raises(AttributeError):
        resolve({}, {}).port = 1  # type: ignore[misc]


def test_the_documented_defaults_match_the_settings() -> None:
    described = settings_help()
    assert list(described) == [
        "data", "host", "port", "auth", "public_url", "allowed_hosts", "open_browser", "durability", "model",
        "fallback_models", "model_windows", "model_takes", "approvals", "never_run", "run_steps_max",
        "run_tokens_max", "run_cost_usd_max",
        "run_time_s_max", "runs_at_once", "summarise_above", "resume", "memory", "memory_idle_s",
        "memory_recall_ms", "memory_in_doubt", "memory_webhook_url",
        "memory_embedding_url", "memory_embedding_model", "fetch_allow", "searxng_url", "telegram",
        "telegram_api_url", "channel_webhook_url", "stop_grace_s",
    ]  # fmt: skip
    defaults = {field.name: field.default for field in msgspec.structs.fields(Settings)}
    in_words = {"data", "public_url", "allowed_hosts", "model", "never_run"}
    in_words |= {"fallback_models", "model_windows", "model_takes", "fetch_allow", "searxng_url"}
    in_words |= {
        "channel_webhook_url",
        "memory_webhook_url",
        "memory_embedding_url",
        "memory_embedding_model",
    }
    for name in described.keys() - in_words:
        default = defaults[name]
        assert described[name].default == (f"{default:g}" if isinstance(default, float) else str(default))


def test_a_list_is_written_with_commas_in_the_environment(tmp_path: Path) -> None:
    found = resolve({"data": tmp_path}, {"HOLDFAST_ALLOWED_HOSTS": "a.example, b.example:8443,"})
    assert found.allowed_hosts == ("a.example", "b.example:8443")
    (tmp_path / "holdfast.toml").write_text('allowed_hosts = ["c.example"]\nnever_run = []\n')
    found = resolve({"data": tmp_path}, {})
    assert (found.allowed_hosts, found.never_run) == (("c.example",), ())
