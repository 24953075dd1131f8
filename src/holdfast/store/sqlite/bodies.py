"""Compress event bodies with a shared dictionary, since they have much in common.

A compressed body is the number of its dictionary and then raw DEFLATE; a plain one is JSON and begins with a
brace. Deltas stay plain: they are small, many, and soon pruned. A dictionary never changes, because bodies on
disk depend on it. A better one gets the next number.
"""

import zlib
from typing import Any

from holdfast.domain.events.codec import Event

_WINDOW_BITS, _MEMORY, _LEVEL = -13, 6, 6
_MARK = b"\x01"
_PLAIN = 0x7B  # {

# The most likely text comes last, where a reference to it is shortest.
_WORDS = (
    "about after again all also and another any are as at be because been before being between both but "
    "by can could did different do does down each every file first for found from function get given good "
    "great had has have here how however if in information into is it its just know large like line list "
    "long made make many may message might more most much must name need new next no not note now number "
    "of on one only or order other our out over part people place point possible problem question read "
    "result right run same see should show since small so some something state still string such system "
    "than that the their them then there these they thing think this those three through time to two "
    "under until up use used using value very want was way we well were what when where which while who "
    "why will with without word work would write you your error return import class self None True False "
    "https://www. .py .md \\n\\n \\n- \\n```\\n **"
)
_SHAPES = (
    '{"title":"","by":"model"}{"title":"","agent":"","model":"","workspace":"","previous_session_id":"s_d'
    '{"from_turn":,"reason":"retry"}{"run_id":"r_d","failure":{"code":"model_failed","detail":"'
    '{"run_id":"r_d","call_id":"c_d","decision":"approve"}{"run_id":"r_d","reason":"approval"}'
    '{"run_id":"r_d","by":"policy","attempt":1}{"run_id":"r_d","turn":1,"place":1000001,"message_id":"m_d'
    '{"run_id":"r_d","turn":1,"place":2,"message_id":"m_d","call_id":"c_d","name":"shell","arguments":"{\\"command\\":'
    '\\"path\\":\\"}","effect":"unsafe"}read_file write_file list_files idempotent pure'
    '{"turn":1,"place":2,"message_id":"m_d","call_id":"c_d","name":"shell","outcome":"done","parts":[{"type":"text",'
    '"text":"exit code 0"}],"digest":"","run_id":"r_d","status":"interrupted","late":true,"continues":"m_d'
    '{"type":"file","blob":"","name":"","media_type":"text/plain","size_bytes":'
    '{"type":"reasoning","text":""},{"type":"tool_call","call_id":"c_d","name":"shell","arguments":"{}"}'
    '{"run_id":"r_d","instructions_digest":""}{"run_id":"r_d"}{"run_id":"r_d","turn":1,"place":1,"message_id":"m_d'
    '","model":"openai:"}{"run_id":"r_d","message_id":"m_d","stop_reason":"stop","usage":{"input_tokens":1,'
    '"output_tokens":1,"cached_tokens":0,"cost_micros":0}}'
    '{"turn_id":"t_d","turn":1,"message_id":"m_d","parts":[{"type":"text","text":""}],"run_id":"r_d","key":"","replaces":"t_d'
    '{"turn":1,"place":1,"message_id":"m_d","role":"assistant","parts":[{"type":"text","text":""}],"digest":"'
    '","run_id":"r_d","pace":[100,'
)  # fmt: skip
_DICTIONARY = (_WORDS + _SHAPES).encode()


def compress(body: bytes) -> bytes:
    """Return `body` as it is stored: compressed, if that is smaller."""
    squeeze = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW_BITS, _MEMORY, zdict=_DICTIONARY)
    packed = _MARK + squeeze.compress(body) + squeeze.flush()
    return packed if len(packed) < len(body) or body[:1] == _MARK else body


def decompress(stored: bytes) -> bytes:
    """Return the original body, or the stored bytes if they are too damaged to decompress."""
    if not stored or stored[0] == _PLAIN or stored[:1] != _MARK:
        return stored
    try:
        return zlib.decompressobj(_WINDOW_BITS, _DICTIONARY).decompress(stored[1:])
    except zlib.error:
        return stored


def event_from_row(columns: tuple[Any, ...]) -> Event:
    """Return an event from its row: seq, at, kind, version, body."""
    seq, at, kind, version, body = columns
    return Event(seq, at, kind, version, decompress(body))
