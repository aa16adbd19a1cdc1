"""Messages between hosts that transfer KV blocks."""

from __future__ import annotations

import json

import pytest
from narrowcast._kv.messages import (
    Alive,
    Ask,
    Done,
    Endpoint,
    Free,
    Hello,
    MessageError,
    Offer,
    Refusal,
    pack,
    unpack,
)

MESSAGES = [
    Endpoint("engine", bytes(range(256)), 1 << 62, 3, "VRAM", 8, 1 << 26, 30.0),
    Hello(b"\0\xff"),
    Ask(7, "request", 1, (5, 0, 9)),
    Offer(7, 3, (100, 1)),
    Refusal(7, "why, \u00fc"),
    Free(0),
    Done("request"),
    Alive(("a", "b")),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: type(one).__name__)
def test_messages_come_back(message):
    assert unpack(pack(message)) == message


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"{}",
        b"[]",
        b"HB:a,b",
        b"[" * 100_000,
        b'["Nothing", 1]',
        b'[["Free"], 1]',
        b'["Free"]',
        b'["Free", 1, 2]',
        b'["Free", -1]',
        b'["Free", true]',
        b'["Free", 1.0]',
        b'["Free", 9223372036854775808]',
        b'["Done", 1]',
        b'["Hello", "?"]',
        b'["Offer", 1, 2, 3]',
        b'["Offer", 1, 2, [3, null]]',
        b'["Alive", [1]]',
        json.dumps(["Endpoint", "e", "", 0, 0, "DRAM", 1, 1, 0]).encode(),
        json.dumps(["Endpoint", "e", "", 0, 0, "DRAM", 1, 1, float("nan")]).encode(),
    ],
    ids=lambda content: repr(content[:30]),
)
def test_other_bytes_are_errors(content):
    with pytest.raises(MessageError):
        unpack(content)
