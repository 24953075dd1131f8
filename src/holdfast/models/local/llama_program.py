"""Run llama.cpp's server with one model, as a program of its own that lives as long as its parent.

It knows nothing of Holdfast. The first line of standard input is its configuration as JSON: the folder of the
library, the file of weights, the model's name, the required key, and its limits. Once the server answers, the
program writes its address as one line to standard output. It ends when its standard input is closed. On Linux
the system also kills it when its parent has died, even while it loads.
"""

import json
import os
import signal
import sys
import threading
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4


def main() -> None:
    """Serve until nobody holds the other end of standard input."""
    parent = os.getppid()
    if sys.platform == "linux":
        import ctypes

        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # Other processes must not read the key in its memory.
    if os.getppid() != parent:
        return
    # A Ctrl+C in a terminal is for the parent, whose end then ends this program.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return
    threading.Thread(target=_exit_on_eof, daemon=True).start()
    # The parent must not take output of the library for the address.
    address_fd = os.dup(1)
    os.dup2(2, 1)
    server = _start_server(json.loads(line))
    os.write(address_fd, f"{server.listening_address}\n".encode())
    os.close(address_fd)
    while True:
        signal.pause()


def _exit_on_eof() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


def _set_sampling(sampling: Any) -> None:
    """Restrict sampling: a tiny model that chooses words freely loses its way, and then repeats itself."""
    sampling.temp, sampling.top_p = 0.2, 0.9
    sampling.penalty_repeat, sampling.penalty_last_n = 1.1, 256
    sampling.dry_multiplier, sampling.dry_penalty_last_n = 0.8, 512


def _start_server(config: dict[str, Any]) -> Any:
    sys.path.append(config["library"])
    import xllamacpp  # type: ignore[import-not-found,unused-ignore]

    params = xllamacpp.CommonParams()
    params.model.path = config["weights"]
    params.model_alias = {config["name"]}
    params.api_keys = [config["key"]]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = config["window_tokens"] * config["slots"]
    params.n_parallel = config["slots"]
    params.cache_ram_mib = config["cache_mb"]
    # Threads of a step wait for each other, so more threads than free cores slow it down badly.
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = config["threads"]
        cpu.poll = 0
    params.verbosity = config["verbosity"]
    params.cors_origins = ""
    params.offline = True
    params.ui = params.endpoint_slots = False
    _set_sampling(params.sampling)
    if config["template"]:
        params.chat_template = config["template"]
    return xllamacpp.Server(params)
