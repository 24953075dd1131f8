"""A model server that only keeps time: all three wire protocols over plain sockets, as cheap as can be.

Its events follow the providers' references, with the fields that come with every token. The request's `model`
says what to stream: `TOKENS@RATE`.
"""

import asyncio
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import uvloop

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
_CHUNK = (
    b'{"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"small",'
    b'"system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":%b,"logprobs":null,'
    b'"finish_reason":%b}]%b}'
)
_ITEM = b'{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[]}'
_RESPONSE = (
    b'{"id":"resp_1","object":"response","created_at":1741290958,"status":"%b","error":null,'
    b'"incomplete_details":null,"instructions":null,"max_output_tokens":null,"model":"small","output":[],'
    b'"parallel_tool_calls":true,"previous_response_id":null,"store":false,"temperature":1.0,"text":'
    b'{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":1.0,"usage":%b,"metadata":{}}'
)
_USED = (
    b'{"input_tokens":9,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":9,'
    b'"output_tokens_details":{"reasoning_tokens":0},"total_tokens":18}'
)


@dataclass(frozen=True)
class Script:
    """The bytes to send before the tokens, for each of them, and after them."""

    before: bytes
    token: bytes
    after: bytes


def _event(name: bytes, fields: bytes) -> bytes:
    return b"event: " + name + b'\ndata: {"type":"' + name + b'",' + fields + b"}\n\n"


def _chunk(delta: bytes, finish: bytes = b"null", more: bytes = b"") -> bytes:
    return b"data: " + _CHUNK % (delta, finish, more) + b"\n\n"


SCRIPTS: Mapping[bytes, Script] = MappingProxyType(
    {
        b"/v1/chat/completions": Script(
            _chunk(b'{"role":"assistant","content":""}'),
            _chunk(b'{"content":" token"}'),
            _chunk(b"{}", b'"stop"', b',"usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}')
            + b"data: [DONE]\n\n",
        ),
        b"/v1/responses": Script(
            _event(
                b"response.created",
                b'"sequence_number":0,"response":' + _RESPONSE % (b"in_progress", b"null"),
            )
            + _event(b"response.output_item.added", b'"sequence_number":1,"output_index":0,"item":' + _ITEM),
            _event(
                b"response.output_text.delta",
                b'"sequence_number":4,"item_id":"msg_1","output_index":0,"content_index":0,"delta":" token",'
                b'"logprobs":[],"obfuscation":"aBcDeFgHiJ"',
            ),
            _event(b"response.output_item.done", b'"sequence_number":7,"output_index":0,"item":' + _ITEM)
            + _event(
                b"response.completed", b'"sequence_number":9,"response":' + _RESPONSE % (b"completed", _USED)
            ),
        ),
        b"/v1/messages": Script(
            _event(
                b"message_start",
                b'"message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"small",'
                b'"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":1}}',
            )
            + _event(b"content_block_start", b'"index":0,"content_block":{"type":"text","text":""}'),
            _event(b"content_block_delta", b'"index":0,"delta":{"type":"text_delta","text":" token"}'),
            _event(b"content_block_stop", b'"index":0')
            + _event(
                b"message_delta",
                b'"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":9}',
            )
            + b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
        ),
    }
)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    path = head.split(b" ", 2)[1].partition(b"?")[0]
    length = int((re.search(rb"content-length: (\d+)", head, re.IGNORECASE) or [0, 0])[1])
    found = re.search(rb'"model":\s*"(\d+)@([\d.]+)"', await reader.readexactly(length))
    assert found is not None, "the model is named TOKENS@RATE"
    tokens, rate, script = int(found[1]), float(found[2]), SCRIPTS[path]
    writer.write(HEAD + script.before)
    start = time.monotonic()
    for i in range(tokens):
        wait = start + i / rate - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        if writer.transport.is_closing():
            return
        writer.write(script.token)
    writer.write(script.after)
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(uvloop.run(main()))
