"""A plain-Python MCP server of the older protocol, for tests: quick to start, and misbehaving on demand.

Arguments choose its behaviour: `rubbish` prints invalid messages, `crowd` has a thousand tools, `wrong` has
unusable tools, `rude` malformed ones, `unlisted` a malformed list, `exits` ends at once, `mute` never
answers, `floods` writes too much, `slow` starts late, `once` ends with its first call, `restless` adds a
tool at each request and sends a notification at once.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ANY = {"type": "object", "properties": {"path": {"type": "string"}}}
LIST_TOOL = {"readOnlyHint": True}
OVERSIZED_TEXT = 20_000_000
SURROGATE = '{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"\\ud800"}]}}'
ADDED_TOOL = {"name": "grown", "inputSchema": ANY, "annotations": LIST_TOOL}


def tools(words: list[str]) -> list[Any]:
    """Return the tools that it lists."""
    looks = (
        "look", "environment", "read", "connect", "spawn", "odd", "spell", "half", "strange", "complain",
        "with.dots and spaces", "big", "grow", "resources", "ask",
    )  # fmt: skip
    found: list[Any] = [{"name": "act", "description": "Acts.", "inputSchema": ANY}]
    found.append({"name": "act_again", "inputSchema": ANY, "annotations": {"idempotentHint": True}})
    found += [{"name": name, "inputSchema": ANY, "annotations": LIST_TOOL} for name in looks]
    found.append({"name": "look", "description": "Another.", "inputSchema": ANY})
    if "crowd" in words:
        found += [{"name": f"one_{number}", "inputSchema": ANY} for number in range(1_000)]
    if "wrong" in words:
        nonsense = {"type": "object", "properties": {"a": {"type": "nonsense"}}}
        huge = {"type": "object", "properties": {"a": {"type": "string", "description": "x" * 100_000}}}
        either = {"type": "object", "anyOf": [{"required": ["path"]}], "$schema": "http://example.org"}
        found.append({"name": "nonsense", "inputSchema": nonsense})
        found.append({"name": "huge", "inputSchema": huge})
        found.append({"name": "either", "inputSchema": either})
        found.append({"name": "n" * 100, "inputSchema": ANY, "description": "d" * 100_000})
    if "rude" in words:
        found[1:1] = [{"name": "flat", "inputSchema": {"type": "string"}}, {"name": "bare"}]
        found += [{"name": "texts", "inputSchema": "none"}, {"inputSchema": ANY}, 7]
    found += [{"name": f"more_{number}", "inputSchema": ANY} for number in range(words.count("asked"))]
    return [*found, ADDED_TOOL] if "grown" in words else found


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}], **more}


def write_message(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def perform_effect(path: str) -> dict[str, Any]:
    """Record the effect; then wait until a file appears beside it."""
    with Path(path).open("a") as file:
        file.write("done\n")
    for _ in range(3_000):
        if Path(f"{path}.go").exists():
            break
        time.sleep(0.01)
    return text("did it")


def spawn(path: str) -> dict[str, Any]:
    words = ["setsid", "-f", "sh", "-c", f"echo $$ >{path}; exec sleep 300"]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while not (Path(path).exists() and Path(path).read_text().strip()):
        time.sleep(0.01)
    return text(f"{os.getpid()} {Path.cwd()}")


def read_forbidden(name: str, path: str) -> dict[str, Any]:
    try:
        if name == "read":
            found = Path(path).read_text() if Path(path).is_file() else str(list(Path(path).iterdir()))
        else:
            with socket.create_connection(("127.0.0.1", int(path)), timeout=30):
                found = "connected"
    except OSError as error:
        return text(str(error), isError=True)
    return text(found)


def resources() -> dict[str, Any]:
    return {"content": [
        {"type": "resource", "resource": {"uri": "note://1", "text": "a note"}},
        {"type": "resource", "resource": {"uri": "blob://1", "blob": "AAAA", "mimeType": "x/y"}},
        {"type": "resource_link", "name": "page", "uri": "http://example.org/"},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
    ]}  # fmt: skip


def handle_call(id_: int, name: str, path: str, words: list[str]) -> None:
    """Answer a call, or misbehave."""
    if "once" in words:
        os.kill(os.getpid(), signal.SIGKILL)
    match name:
        case "act" | "act_again" | "look":
            result: dict[str, Any] = perform_effect(path)
        case "read" | "connect":
            result = read_forbidden(name, path)
        case "spawn":
            result = spawn(path)
        case "environment":
            result = text("\n".join(f"{key}={value}" for key, value in os.environ.items()))
        case "odd":
            result = text("a\0b")
        case "big":
            result = text("x" * int(path))
        case "spell":
            result = {"content": [], "structuredContent": {"spelt": "out"}}
        case "resources":
            result = resources()
        case "strange":
            result = {"content": "this is no list"}
        case "half":
            sys.stdout.write(SURROGATE % id_ + "\n")
            sys.stdout.flush()
            return
        case "complain":
            write_message({"id": id_, "error": {"code": -32000, "message": "I do not like that"}})
            return
        case "grow":
            words.append("grown")
            write_message({"method": "notifications/tools/list_changed"})
            result = text("there is one more")
        case _:
            result = text(f"this was {name}")
    write_message({"id": id_, "result": result})


def handle_message(message: dict[str, Any], words: list[str]) -> None:
    method, id_ = message.get("method"), message.get("id")
    params = message.get("params") or {}
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}}}
        write_message({"id": id_, "result": {**result, "serverInfo": {"name": "plain", "version": "1"}}})
    elif method == "tools/list":
        write_message({"id": id_, "result": {"tools": "none" if "unlisted" in words else tools(words)}})
        if "restless" in words:
            words.append("asked")
            write_message({"method": "notifications/tools/list_changed"})
    elif method == "tools/call" and isinstance(id_, int):
        handle_call(id_, params["name"], params.get("arguments", {}).get("path", ""), words)
    elif id_ is not None:
        write_message({"id": id_, "error": {"code": -32601, "message": "there is no such method"}})


def main(words: list[str]) -> None:
    if "exits" in words:
        print("nothing to do here", file=sys.stderr)
        sys.exit(3)
    if "floods" in words:
        sys.stdout.write("x" * OVERSIZED_TEXT)
    if "slow" in words:
        time.sleep(1)
    if "rubbish" in words:
        print("Welcome!\n\n{not json\n[1, 2]\n\x00\n" + '{"id": {}, "result": 1}', flush=True)
    for line in sys.stdin:
        if "mute" not in words:
            handle_message(json.loads(line), words)


if __name__ == "__main__":
    main(sys.argv[1:])
