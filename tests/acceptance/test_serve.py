"""`holdfast serve`, from the outside."""

import json
import signal
import socket
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import __version__
from tests.acceptance.conftest import CliHarness
from tests.acceptance.page_files import files_named_in
from tests.support.free_ports import own_port


def taken_port(port: int = 0) -> socket.socket:
    """A socket that listens on that port, or on any; one that is taken already is just as taken."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()
    except OSError:
        assert port, "any port must be free"
    return listener


def test_the_start_screen_ends_with_the_sign_in_link(holdfast: CliHarness, tmp_path: Path) -> None:
    server = holdfast.serve("--port", "0")
    screen = "\n".join(server.output_lines)
    assert __version__ in screen
    # A long path goes on in the next line of its column.
    unbroken = "".join(line.strip("│ ") for line in server.output_lines)
    assert str(tmp_path / "share" / "holdfast") in unbroken
    assert "Conversations  none yet" in screen
    assert "The scripted demo answers, as HOLDFAST_MODEL asks." in screen
    assert "Memory         on, but the demo remembers nothing" in screen
    warnings = json.loads(server.request("/health/ready").body)["unprotected"]
    folded = str(tmp_path / "share" / "holdfast") not in screen
    assert len(server.output_lines) <= 15 + 2 * len(warnings) + folded, "well within a plain terminal"
    assert server.output_lines[-1] == f"http://127.0.0.1:{server.port}/#code={server.code}"
    assert server.code.startswith("hf_") and len(server.code) > 40


def test_the_start_screen_names_a_webhook_and_its_key_exists(holdfast: CliHarness, tmp_path: Path) -> None:
    holdfast.environ |= {"HOLDFAST_MEMORY": "webhook", "HOLDFAST_MEMORY_WEBHOOK_URL": "http://127.0.0.1:1/x"}
    server = holdfast.serve("--port", "0")
    assert "Memory         webhook at 127.0.0.1:1" in "\n".join(server.output_lines)
    assert (tmp_path / "share" / "holdfast" / "memory-webhook.key").exists()


def test_the_page_loads_only_its_own_scripts(holdfast: CliHarness) -> None:
    server = holdfast.serve("--port", "0")
    reply = server.request("/")
    assert (reply.status, reply.content_type) == (200, "text/html; charset=utf-8")
    scripts = [address for address in files_named_in(reply.body) if address.endswith(".js")]
    assert scripts
    for script in scripts:
        assert script.startswith("./page/"), "nobody else's"
        assert server.request(script.removeprefix(".")).content_type == "text/javascript; charset=utf-8"
    assert reply.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
    assert server.request("/", method="HEAD").body == ""


@pytest.mark.parametrize(("path", "status"), [("/health/live", "live"), ("/health/ready", "ready")])
def test_health_is_reported_as_json(path: str, status: str, holdfast: CliHarness) -> None:
    reply = holdfast.serve("--port", "0").request(path)
    assert (reply.status, reply.content_type) == (200, "application/json")
    assert json.loads(reply.body)["status"] == status


def test_a_rejected_request_gets_a_problem_document(holdfast: CliHarness) -> None:
    server = holdfast.serve("--port", "0")
    missing = server.request("/no/such/page")
    assert (missing.status, missing.content_type) == (404, "application/problem+json")
    assert json.loads(missing.body) == {
        "title": "Not Found",
        "status": 404,
        "detail": "There is nothing at /no/such/page.",
        "code": "no_such_page",
    }
    sent = server.request("/", method="POST", **{"Content-Type": "application/json"})
    assert (sent.status, json.loads(sent.body)["code"]) == (405, "method_not_allowed")
    assert sent.headers["allow"] == "GET, HEAD, OPTIONS"


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1"]
)
def test_a_foreign_host_name_is_rejected(host: str, holdfast: CliHarness) -> None:
    reply = holdfast.serve("--port", "0").request("/", Host=host)
    assert (reply.status, json.loads(reply.body)["code"]) == (421, "wrong_host")


def test_local_host_names_are_accepted(holdfast: CliHarness) -> None:
    server = holdfast.serve("--port", "0")
    for host in ("localhost", f"LOCALHOST:{server.port}", "127.0.0.1", "127.1.2.3:80", "[::1]:8787"):
        assert server.request("/health/live", Host=host).status == 200, host


def test_when_the_default_port_is_taken_the_next_free_one_is_used(holdfast: CliHarness) -> None:
    with closing(taken_port(8787)):
        server = holdfast.serve()
        assert server.port > 8787
        assert server.request("/health/live").status == 200


@pytest.mark.parametrize("place", ["option", "environment", "file"])
def test_a_taken_explicit_port_is_an_error_with_a_remedy(
    place: str, holdfast: CliHarness, tmp_path: Path
) -> None:
    with closing(taken_port()) as listener:
        port = str(listener.getsockname()[1])
        words = ["--port", port] if place == "option" else []
        if place == "environment":
            holdfast.environ["HOLDFAST_PORT"] = port
        if place == "file":
            (tmp_path / "share" / "holdfast").mkdir(parents=True)
            (tmp_path / "share" / "holdfast" / "holdfast.toml").write_text(f"port = {port}")
        ended = holdfast.run("serve", *words)
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        f"holdfast: Port {port} on 127.0.0.1 is taken by another program.",
        "Choose another with --port, or leave it out to take the next free one.",
    ]
    assert ended.stdout == ""


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--port", "eighty"], "--port: port is 'eighty', but must be a whole number from 0 to 65535."),
        (["--durability", "some"], "--durability: durability is 'some', but must be full or normal."),
    ],
)
def test_a_bad_setting_prints_one_line_and_creates_nothing(
    words: list[str], problem: str, holdfast: CliHarness, tmp_path: Path
) -> None:
    ended = holdfast.run("serve", *words)
    assert (ended.returncode, ended.stderr) == (1, f"holdfast: {problem}\n")
    assert not (tmp_path / "share").exists()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_server_despite_an_open_connection(signum: int, holdfast: CliHarness) -> None:
    server = holdfast.serve("--port", "0")
    with closing(socket.create_connection(("127.0.0.1", server.port))) as browser:
        browser.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert browser.recv(4096).startswith(b"HTTP/1.1 200")
        server.process.send_signal(signum)
        _, stderr = server.process.communicate(timeout=60)
    assert (server.process.returncode, stderr) == (0, "")


def test_a_stopped_server_leaves_no_process_file_and_restarts(holdfast: CliHarness, tmp_path: Path) -> None:
    first = holdfast.serve("--port", str(own_port()))
    folder = tmp_path / "share" / "holdfast"
    assert len(list((folder / "processes").iterdir())) == 1
    first.process.terminate()
    first.process.communicate(timeout=60)
    assert list((folder / "processes").iterdir()) == []
    assert holdfast.serve("--port", str(first.port)).request("/health/ready").status == 200


def test_the_given_data_folder_is_used_and_private(holdfast: CliHarness, tmp_path: Path) -> None:
    folder = tmp_path / "a place of its own"
    holdfast.serve("--port", "0", "--data", str(folder))
    assert (folder / "holdfast.db").exists()
    assert folder.stat().st_mode & 0o077 == 0
    assert not (tmp_path / "share").exists()


def test_an_unusable_data_folder_is_reported_with_a_remedy(holdfast: CliHarness, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    ended = holdfast.run("serve", "--port", "0", "--data", str(tmp_path / "file"))
    assert ended.returncode == 1
    assert ended.stderr.startswith("holdfast: ")
    assert "Traceback" not in ended.stderr


def test_two_servers_share_one_folder(holdfast: CliHarness) -> None:
    servers = [holdfast.serve("--port", "0"), holdfast.serve("--port", "0")]
    assert [server.request("/health/ready").status for server in servers] == [200, 200]


def test_version_is_printed(holdfast: CliHarness) -> None:
    assert holdfast.run("--version").stdout == f"holdfast {__version__}\n"


def test_an_unknown_command_exits_with_2(holdfast: CliHarness) -> None:
    ended = holdfast.run("sreve")
    assert ended.returncode == 2
    assert "sreve" in ended.stderr and "Usage: holdfast " in ended.stderr
