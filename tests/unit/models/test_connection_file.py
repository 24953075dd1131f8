"""The connections that were made in the settings: whatever they hold is read again."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdfast.models.connection_file import (
    FILE_NAME,
    connection_problem,
    read_connections,
    read_connections_or_empty,
    write_connections,
)
from holdfast.models.providers import PROVIDERS, SavedConnection
from holdfast.settings.settings import ConfigError

NAMES = st.sampled_from([provider.name for provider in PROVIDERS])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.dictionaries(NAMES, st.builds(SavedConnection, st.text(min_size=1), st.text())))
@example(
    {"mistral": SavedConnection("http://\N{GRINNING FACE}/", 'a"\\\x7f\x00\x1f\x85\r\n\u2028\U0010ffff')}
)
def test_any_saved_connections_are_read_back(tmp_path: Path, saved: dict[str, SavedConnection]) -> None:
    write_connections(tmp_path, saved)
    assert read_connections(tmp_path) == saved


@pytest.mark.parametrize(
    "text",
    [
        "base_url = ",
        "[providers.nobody]\nbase_url = 'http://x/'",
        "key = " + "1" * 5_000,
        "key = " + "[" * 9_000,
    ],
    ids=["no TOML", "nobody", "digits", "depth"],
)
def test_an_unreadable_connection_file_is_reported_and_counts_as_empty(tmp_path: Path, text: str) -> None:
    assert connection_problem(tmp_path) == ""
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(ConfigError, match="remove the file"):
        read_connections(tmp_path)
    assert read_connections_or_empty(tmp_path) == {}
    assert connection_problem(tmp_path).startswith("connection.toml: ")
