"""The side that fetches blocks of a KV cache from another host, and decodes them into its own."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from .messages import Ask, Done, Endpoint, Free, Message, Offer, Refusal
from .sender import Send

_log = logging.getLogger(__name__)
# Of a request: one is encoded, one is read and one is decoded at a time.
_PARTS_AHEAD = 3


class Decoder(Protocol):
    """Decodes blocks of a KV cache from slots."""

    @property
    def block_bytes(self) -> Sequence[int]:
        """The raw bytes of a block of each group."""

    def stride(self, group: int) -> int:
        """The distance of frames in a slot."""

    def part_blocks(self, group: int) -> int:
        """How many blocks fit into a slot."""

    def decode(self, group: int, blocks: Sequence[int], slot: int, sizes: Sequence[int]) -> None:
        """Returns when the blocks are complete. Raises an exception if a frame is corrupt."""


class Reader(Protocol):
    """Reads slots of other hosts."""

    def read(self, peer: Peer, remote_slot: int, slot: int, stride: int, sizes: Sequence[int], then: Message) -> Any:
        """Begins to read frames from a slot into another one, and sends a message at the end. Returns a handle."""

    def state(self, handle: Any) -> str:
        """DONE, PROC or ERR."""

    def release(self, handle: Any) -> bool:
        """Whether nothing is written any more."""


class Peer(NamedTuple):
    """A sender."""

    name: str
    endpoint: Endpoint


class Blocks(NamedTuple):
    """Blocks of a group, at the sender and here."""

    group: int
    remote: list[int]
    local: list[int]


class Fetched(NamedTuple):
    """A request whose blocks are no longer awaited."""

    request: str
    failed: list[tuple[int, int]]  # groups and blocks here that were not received
    wire_bytes: int = 0
    raw_bytes: int = 0


@dataclass(eq=False)
class _Fetch:
    """A request that is being fetched."""

    request: str
    remote_request: str
    peer: Peer
    rest: deque[Blocks]  # that are still to be asked for
    open: set[int] = field(default_factory=set)  # parts
    wire_bytes: int = 0
    raw_bytes: int = 0


@dataclass
class _Part:
    fetch: _Fetch
    blocks: Blocks
    slot: int
    until: float
    handle: Any = None
    sizes: Sequence[int] = ()


class Receiver:
    """Fetches requests in their order. One thread calls it.

    slots: the numbers of those that it may use.
    finished: called with each request that has been fetched, or could not be.
    lost: called with a peer that could not be reached.
    """

    def __init__(
        self,
        decoder: Decoder,
        slots: Iterable[int],
        reader: Reader,
        send: Send,
        finished: Callable[[Fetched], None],
        lost: Callable[[Peer], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._decoder, self._reader, self._send, self._clock = decoder, reader, send, clock
        self._finished, self._lost = finished, lost
        self._free = list(slots)
        self._fetches: list[_Fetch] = []
        self._parts: dict[int, _Part] = {}
        self._stuck: list[tuple[Any, int]] = []  # reads that were given up, and the slots that they may still write
        self._next = 0

    @property
    def is_active(self) -> bool:
        """Whether a request is being fetched."""
        return bool(self._fetches or self._stuck)

    def fetch(self, request: str, remote_request: str, peer: Peer, blocks: Sequence[Blocks]) -> None:
        """Begins to fetch blocks."""
        one = _Fetch(request, remote_request, peer, deque(blocks))
        limits = [peer.endpoint.slot_bytes // self._decoder.stride(some.group) for some in blocks]
        if not all(limits):
            return self._end(one, f"the slots of {peer.name} are smaller than a block")
        one.rest.clear()
        for (group, remote, local), limit in zip(blocks, limits, strict=True):
            count = min(limit, self._decoder.part_blocks(group))
            for first in range(0, len(local), count):
                one.rest.append(Blocks(group, remote[first : first + count], local[first : first + count]))
        self._fetches.append(one)
        return None

    def receive(self, peer: str, message: Message) -> None:
        """Handles a message of a sender."""
        if not isinstance(message, Offer | Refusal):
            return
        part = self._parts.get(message.part)
        if part is None or part.fetch.peer.name != peer:
            if isinstance(message, Offer):
                self._tell(peer, Free(message.part))
        elif isinstance(message, Refusal):
            self._end(part.fetch, message.reason)
        elif part.handle is None:
            self._read(message, part)

    def step(self) -> bool:
        """Returns whether there was something to do."""
        self._stuck = [one for one in self._stuck if not self._freed(*one)]
        progress = False
        for number, part in list(self._parts.items()):
            if number in self._parts:  # a part that fails ends the others
                progress |= self._advance(number, part)
        for fetch in list(self._fetches):
            while self._free and fetch.rest and len(fetch.open) < _PARTS_AHEAD:
                self._ask(fetch)
                progress = True
            if not fetch.rest and not fetch.open and fetch in self._fetches:
                self._end(fetch)
        return progress

    def _ask(self, fetch: _Fetch) -> None:
        blocks = fetch.rest.popleft()
        number, self._next = self._next, self._next + 1
        self._parts[number] = _Part(fetch, blocks, self._free.pop(), self._clock() + fetch.peer.endpoint.lease)
        fetch.open.add(number)
        try:
            self._send(fetch.peer.name, Ask(number, fetch.remote_request, blocks.group, tuple(blocks.remote)))
        except Exception as error:
            self._end(fetch, f"{fetch.peer.name} cannot be reached: {error}", lost=True)

    def _read(self, offer: Offer, part: _Part) -> None:
        peer, stride = part.fetch.peer, self._decoder.stride(part.blocks.group)
        if (
            offer.slot >= peer.endpoint.slots
            or len(offer.sizes) != len(part.blocks.local)
            or not all(0 < size <= stride for size in offer.sizes)
        ):
            return self._end(part.fetch, f"{peer.name} offered slot {offer.slot} with frames of other sizes")
        part.sizes = offer.sizes
        try:
            part.handle = self._reader.read(peer, offer.slot, part.slot, stride, offer.sizes, Free(offer.part))
        except Exception as error:
            self._end(part.fetch, f"reading from {peer.name} failed: {error}", lost=True)
        return None

    def _advance(self, number: int, part: _Part) -> bool:
        state = "PROC" if part.handle is None else self._reader.state(part.handle)
        # Read after the state: a slot is unchanged only if it has been read before its lease ends.
        if self._clock() >= part.until:
            self._end(part.fetch, f"{part.fetch.peer.name} did not deliver a part in time")
        elif state == "PROC":
            return False
        elif state != "DONE":
            self._end(part.fetch, f"reading from {part.fetch.peer.name} failed", lost=True)
        else:
            try:
                self._decoder.decode(part.blocks.group, part.blocks.local, part.slot, part.sizes)
            except Exception as error:
                self._end(part.fetch, f"a part could not be decoded: {error}")
            else:
                part.fetch.wire_bytes += sum(part.sizes)
                part.fetch.raw_bytes += len(part.sizes) * self._decoder.block_bytes[part.blocks.group]
                part.fetch.open.remove(number)
                self._close(number)
        return True

    def _close(self, number: int) -> None:
        part = self._parts.pop(number)
        if part.handle is None:
            self._free.append(part.slot)
        elif not self._freed(part.handle, part.slot):
            self._stuck.append((part.handle, part.slot))

    def _freed(self, handle: Any, slot: int) -> bool:
        released = self._reader.release(handle)
        if released:
            self._free.append(slot)
        return released

    def _end(self, fetch: _Fetch, reason: str = "", *, lost: bool = False) -> None:
        """Ends a fetch, which has failed if there is a reason. What was decoded before stays valid."""
        failed = list(fetch.rest)
        for number in sorted(fetch.open):
            failed.append(self._parts[number].blocks)
            self._close(number)
            self._tell(fetch.peer.name, Free(number))
        if fetch in self._fetches:
            self._fetches.remove(fetch)
        fetch.rest.clear()
        fetch.open.clear()
        self._tell(fetch.peer.name, Done(fetch.remote_request))
        if reason:
            _log.error("KV blocks of request %s were not received: %s", fetch.request, reason)
        pairs = [(blocks.group, block) for blocks in failed for block in blocks.local]
        self._finished(Fetched(fetch.request, pairs, fetch.wire_bytes, fetch.raw_bytes))
        if lost:
            self._lost(fetch.peer)

    def _tell(self, peer: str, message: Message) -> None:
        try:
            self._send(peer, message)
        except Exception:
            _log.warning("%s cannot be told that KV blocks are not needed; it frees them after its lease", peer)
