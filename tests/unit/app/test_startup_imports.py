"""What a server does not need it does not load: start-up takes well below a second, and little memory."""

import subprocess
import sys

HEAVY = ("mcp", "httpx2", "pydantic", "telegram", "prompt_toolkit", "markdown_it", "argon2", "xllamacpp")
LOOK = f"""
import sys
import holdfast.app
from holdfast.http.app import Api
Api([], openapi_config=None)
print([name for name in {HEAVY!r} if name in sys.modules])
"""


def test_serve_does_not_import_optional_parts() -> None:
    found = subprocess.run(
        [sys.executable, "-c", LOOK], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"
