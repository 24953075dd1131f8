"""How a further browser comes in: by a new link, which the command line gives."""

from tests.acceptance.conftest import CliHarness


def new_link(home: CliHarness) -> str:
    """A link that has not been used, from the server that runs in this home."""
    ended = home.run("link")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()[-1]
