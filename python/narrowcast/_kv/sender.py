"""The side that has computed blocks of a KV cache, and encodes those that another host asks for."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from .messages import Alive, Ask, Done, Free, Message, Offer, Refusal

_log = logging.getLogger(__name__)
Send = Callable[[str, Message], None]  # to a peer; raises if that is not possible


class Encoder(Protocol):
    """Encodes blocks of a KV cache into slots."""

    def encode(self, group: int, blocks: Sequence[int], slot: int) -> list[int]:
        """Returns the sizes of the frames when they are complete. Raises ValueError for other blocks than those of the
        group, and if they do not fit into a slot.
        """


class _Asked(NamedTuple):
    peer: str
    ask: Ask
    since: float


class _Lent(NamedTuple):
    slot: int
    until: float


class Sender:
    """Answers receivers. One thread calls it.

    slots: the numbers of those that it may use.
    lease: in seconds. A slot that nobody frees is used again after it, and blocks of a request for which nobody asks
        are released.
    released: called with each request whose blocks are not needed any more.
    """

    def __init__(
        self,
        encoder: Encoder,
        slots: Iterable[int],
        lease: float,
        send: Send,
        released: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._encoder, self._send, self._released, self._clock = encoder, send, released, clock
        self._free, self._lease = list(slots), lease
        self._asked: deque[_Asked] = deque()
        self._lent: dict[tuple[str, int], _Lent] = {}
        # A receiver may know that a request has finished before this side is told.
        self._running: set[str] = set()
        self._kept: dict[str, float] = {}

    @property
    def is_active(self) -> bool:
        """Whether anyone may ask for blocks."""
        return bool(self._running or self._kept)

    def expect(self, requests: Iterable[str]) -> None:
        """Requests that are computed and whose blocks are kept afterwards."""
        self._running.update(requests)

    def forget(self, requests: Iterable[str]) -> None:
        """Requests whose blocks are not kept after all."""
        self._running.difference_update(requests)

    def keep(self, request: str, seconds: float) -> None:
        """The blocks of a request are kept for so long, unless it has been released already."""
        if request in self._running:
            self._running.remove(request)
            self._kept[request] = self._clock() + seconds

    def receive(self, peer: str, message: Message) -> None:
        """Handles a message of a receiver."""
        if isinstance(message, Ask):
            self._extend(message.request)
            self._asked.append(_Asked(peer, message, self._clock()))
        elif isinstance(message, Free):
            lent = self._lent.pop((peer, message.part), None)
            if lent:
                self._free.append(lent.slot)
            self._asked = deque(one for one in self._asked if (one.peer, one.ask.part) != (peer, message.part))
        elif isinstance(message, Done):
            self._release(message.request)
        elif isinstance(message, Alive):
            for request in message.requests:
                self._extend(request)

    def step(self) -> bool:
        """Encodes a part, if one is asked for and a slot is free. Returns whether there was something to do."""
        now = self._clock()
        for key, lent in list(self._lent.items()):
            if now >= lent.until:
                del self._lent[key]
                self._free.append(lent.slot)
                _log.warning("%s has not read KV blocks in %g seconds; their slot is used again", key[0], self._lease)
        for request, until in list(self._kept.items()):
            if now >= until:
                self._release(request)
                _log.warning("the KV blocks of request %s were not fetched in time and are released", request)
        while self._asked and now - self._asked[0].since >= self._lease:
            self._asked.popleft()  # its receiver has given up
        if not self._asked or not self._free:
            return False
        peer, ask, _ = self._asked.popleft()
        try:
            self._answer(peer, ask)
        except Exception:
            _log.exception("no answer could be sent to %s", peer)
        return True

    def _answer(self, peer: str, ask: Ask) -> None:
        key = peer, ask.part
        if key in self._lent:
            return self._send(peer, Refusal(ask.part, f"part {ask.part} has been asked for twice"))
        if ask.request not in self._kept and ask.request not in self._running:
            return self._send(peer, Refusal(ask.part, f"the KV blocks of request {ask.request} are not kept"))
        slot = self._free.pop()
        try:
            sizes = self._encoder.encode(ask.group, ask.blocks, slot)
        except Exception as error:
            self._free.append(slot)
            _log.exception("KV blocks of request %s could not be encoded", ask.request)
            return self._send(peer, Refusal(ask.part, f"the blocks could not be encoded: {error}"))
        # Receivers count from when they ask, so that they never read a slot that may have been used again.
        self._lent[key] = _Lent(slot, self._clock() + self._lease)
        self._send(peer, Offer(ask.part, slot, tuple(sizes)))

    def _extend(self, request: str) -> None:
        if request in self._kept:
            self._kept[request] = max(self._kept[request], self._clock() + self._lease)

    def _release(self, request: str) -> None:
        if request in self._kept or request in self._running:
            self._kept.pop(request, None)
            self._running.discard(request)
            self._released(request)
