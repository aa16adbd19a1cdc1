"""What the sender and the receiver of KV blocks tell each other.

The receiver asks for a part, which is encoded into a slot: registered memory of the sender. The sender offers the slot,
the receiver reads the frames, and the slot is free again:

    receiver                                sender
    Hello, once             ->
    Ask                     ->              encodes the blocks into a slot
                            <-              Offer, with the sizes of the frames, or Refusal
    reads the slot, then Free  ->
    Done                    ->              releases the blocks of the request
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from typing import Any

# Of the messages. It must be the same on both sides.
PROTOCOL_VERSION = 1


class MessageError(ValueError):
    """The bytes are not a message."""


@dataclass(frozen=True)
class Endpoint:
    """How a sender can be read. The handshake carries it."""

    engine: str
    agent: bytes  # NIXL's description of the process
    address: int  # of the first slot
    device: int
    memory: str  # NIXL's name of its kind
    slots: int
    slot_bytes: int
    lease: float  # in seconds, how long a slot stays unchanged after it has been offered


@dataclass(frozen=True)
class Hello:
    """The first message to a sender, which needs it to answer."""

    agent: bytes


@dataclass(frozen=True)
class Ask:
    """For blocks of a request. They fit into a slot."""

    part: int  # a number that this receiver uses once
    request: str  # its name at the sender
    group: int
    blocks: tuple[int, ...]  # in the KV cache of the sender


@dataclass(frozen=True)
class Offer:
    """The answer to an Ask: frames that lie in a slot, at equal distances."""

    part: int
    slot: int
    sizes: tuple[int, ...]  # in bytes


@dataclass(frozen=True)
class Refusal:
    """The other answer to an Ask."""

    part: int
    reason: str


@dataclass(frozen=True)
class Free:
    """The receiver has read a part, or does not want it any more."""

    part: int


@dataclass(frozen=True)
class Done:
    """The receiver needs no more blocks of a request."""

    request: str


@dataclass(frozen=True)
class Alive:
    """The receiver will ask for these requests later."""

    requests: tuple[str, ...]


Message = Endpoint | Hello | Ask | Offer | Refusal | Free | Done | Alive


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise MessageError(f"{value!r} is not a number from 0 to 2^63 - 1")
    return value


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value < 1e9:
        raise MessageError(f"{value!r} is not a time in seconds")
    return float(value)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise MessageError(f"{value!r} is not a text")
    return value


def _list_of(reader: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not list:
            raise MessageError(f"{value!r} is not a list")
        return tuple(map(reader, value))

    return read


_READERS: dict[Any, Callable[[Any], Any]] = {
    "int": _number,
    "float": _seconds,
    "str": _text,
    "bytes": lambda value: base64.b64decode(_text(value), validate=True),
    "tuple[int, ...]": _list_of(_number),
    "tuple[str, ...]": _list_of(_text),
}
_KINDS = {kind.__name__: kind for kind in (Endpoint, Hello, Ask, Offer, Refusal, Free, Done, Alive)}


def pack(message: Message) -> bytes:
    """The bytes of a message."""
    return json.dumps(
        [type(message).__name__, *astuple(message)], default=lambda raw: base64.b64encode(raw).decode()
    ).encode()


def unpack(content: bytes) -> Message:
    """The message in bytes that may come from anywhere. Raises MessageError."""
    try:
        name, *values = json.loads(content)
        kind: Any = _KINDS[name]
        message: Message = kind(*(_READERS[one.type](value) for one, value in zip(fields(kind), values, strict=True)))
        return message
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise MessageError(f"{content[:80]!r} is not a message: {error}") from None
