"""Messages between the ranks of one machine, over Unix sockets.

Each pair of ranks has up to two sockets, one per direction. A rank connects to a peer when it first sends to it or
waits for a message from it; the end of that connection says that the peer has ended. One thread reads and writes all of
them; a thread that waits for a message reads it itself.

A message is a header and its bytes. It is read only while a receive waits for that peer: otherwise it stays in the
socket, and holds up its sender. A message with a tag that nobody waits for is kept in memory, so that those behind it
arrive.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from ..errors import AbortedError, InternalError, NarrowcastError, PeerTimeoutError, RemoteError, SystemFailure
from .matching import Done, Inbox, Message, Receive

_HEADER: Final = struct.Struct("<qQ")  # tag, bytes
_HELLO: Final = struct.Struct("<i")  # the first bytes of a connection: the rank that sends on it
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid
_BUFFER_BYTES: Final = 1 << 20
# Read at once from one peer, before the others have their turn.
_TURN_BYTES: Final = 4 << 20
_UNLIMITED_SECONDS: Final = 1e9
# What epoll accepts is a few weeks.
_MOST_SELECT_SECONDS: Final = 3600.0


@dataclass(eq=False)
class _Send:
    parts: list[memoryview]  # what is left
    deadline: float
    done: Done
    begun: bool = False


@dataclass(eq=False)
class _Incoming:
    socket: socket.socket
    source: int | None = None  # until it has sent its rank
    head: bytearray = field(default_factory=bytearray)
    message: Message | None = None  # whose bytes are next


class Mailbox:
    """Sends and receives of one rank. All methods may be called from any thread."""

    def __init__(self, rank: int, size: int, seconds: float) -> None:
        """seconds: how long a message waits for the peer's call; 0: without a limit."""
        self._rank, self._size, self._seconds = rank, size, seconds if seconds > 0 else _UNLIMITED_SECONDS
        # In the abstract namespace, where a killed process leaves nothing behind. Other users can see the name, so both
        # ends of a connection check whose the other one is.
        self.address = b"\0narrowcast-c10d-" + secrets.token_hex(16).encode()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._listener.bind(self.address)
        self._listener.listen(max(size, 16))
        self._mutex = threading.Lock()
        self._quiet = threading.Condition(self._mutex)
        self._inbox = Inbox()
        self._outgoing: dict[int, socket.socket] = {}
        self._sends: dict[int, deque[_Send]] = {}
        self._incoming: list[_Incoming] = []
        self._assisted: set[_Incoming] = set()  # read by threads that wait
        self._ended: dict[int, NarrowcastError] = {}
        self._closed: NarrowcastError | None = None
        self._reports: list[Callable[[], None]] = []  # made without the mutex
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ, lambda: os.read(self._wake_read, 64))
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._thread: threading.Thread | None = None
        self._until = 0.0  # when the thread looks at deadlines next

    def connect(self, addresses: list[bytes]) -> None:
        """Before all messages: the addresses of all ranks."""
        self._addresses = addresses

    def send(self, payload: memoryview, peer: int, tag: int, done: Done) -> None:
        """Sends bytes, which must not change until `done` is called."""
        header = memoryview(_HEADER.pack(tag, payload.nbytes))
        one = _Send([header, payload] if payload.nbytes else [header], time.monotonic() + self._seconds, done)
        with self._reporting():
            if self._closed or not self._reach(peer):
                self._report(done, self._closed or self._ended[peer], peer)
                return
            waiting = self._sends.setdefault(peer, deque())
            waiting.append(one)
            if len(waiting) == 1:
                self._write(peer)
            if waiting:
                self._watch(one.deadline)

    def receive(
        self, target: memoryview, source: int | None, tag: int, done: Done, seconds: float | None = None
    ) -> Receive:
        """Fills `target` with a message of this tag from `source`; None: from any rank.

        seconds: how long to wait for it; None: as long as messages wait.
        """
        deadline = time.monotonic() + (self._seconds if seconds is None else seconds)
        one = Receive(source, tag, target, deadline, done)
        with self._reporting():
            if self._closed:
                self._report(done, self._closed, source)
                return one
            message = self._inbox.post(one)
            if message is not None:
                self._end_if_complete(message)
            else:
                for peer in self._sources(one):
                    self._reach(peer)
                for stream in [one for one in self._incoming if one.source is not None]:
                    self._read(stream)
                self._fail_hopeless()
            if self._is_waiting():
                self._watch(deadline)
        return one

    def assist(self, receive: Receive, seconds: float) -> None:
        """Reads the message of a receive on this thread, which saves waiting for another one.

        Returns earlier if there is nothing to read from yet, and after `seconds`.
        """
        end = time.monotonic() + min(seconds, self._seconds)
        with self._mutex:
            stream = next((one for one in self._incoming if one.source == receive.source), None)
            if (
                receive.source is None
                or stream is None
                or stream in self._assisted
                or not self._is_outstanding(receive, stream)
            ):
                return
            self._assisted.add(stream)
            self._update()
        poll = select.poll()
        poll.register(stream.socket, select.POLLIN)
        try:
            while poll.poll(min(max(0.0, end - time.monotonic()), _MOST_SELECT_SECONDS) * 1000):
                with self._reporting():
                    self._read(stream, assists=True)
                    if stream not in self._incoming or not self._is_outstanding(receive, stream):
                        return
        finally:
            with self._mutex:
                self._assisted.discard(stream)
                if not self._closed:
                    self._update()

    def wait(self, seconds: float) -> bool:
        """Waits until all sends and receives have ended. Returns whether they have."""
        with self._mutex:
            return self._quiet.wait_for(lambda: not self._is_waiting(), seconds)

    def close(self, error: NarrowcastError | None = None) -> None:
        """Ends all receives, and all sends if there is an error; otherwise waits for them."""
        with self._reporting():
            if error is None:
                self._quiet.wait_for(lambda: self._closed or not any(self._sends.values()), self._seconds)
            if not self._closed:
                self._closed = error or AbortedError("the process group was destroyed during this receive")
                for each in self._sends.values():
                    for one in each:
                        self._report(one.done, self._closed, None)
                self._sends.clear()
                for receive in self._inbox.take_posted(lambda _: True):
                    self._report(receive.done, self._closed, receive.source)
                for stream in [*self._incoming]:
                    self._drop(stream, self._closed)
                for sock in [self._listener, *self._outgoing.values()]:
                    self._discard(sock)
                if self._thread is None:
                    self._free()
                else:
                    os.write(self._wake_write, b"x")
        if self._thread not in (None, threading.current_thread()):
            self._thread.join()

    # The rest runs with the mutex, except _loop.

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        reports: list[Callable[[], None]] = []
        try:
            with self._mutex:
                try:
                    yield
                finally:
                    reports, self._reports = self._reports, []
                    if reports:
                        self._quiet.notify_all()
        finally:
            for report in reports:
                report()

    def _report(self, done: Done, error: BaseException | None, peer: int | None) -> None:
        self._reports.append(partial(done, error, peer))

    def _loop(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:
            self.close(InternalError(f"the messages between ranks failed: {error!r}"))
        finally:
            self._free()

    def _turn(self) -> bool:
        """Waits for sockets and deadlines. Returns whether the mailbox is open."""
        with self._mutex:
            if self._closed:
                return False
            longest = min(self._seconds, _MOST_SELECT_SECONDS)
            self._until = min([time.monotonic() + longest, *self._deadlines()])
        events = self._selector.select(max(0.0, self._until - time.monotonic()))
        with self._reporting():
            for key, _ in events:
                if not self._closed:
                    key.data()
            if not self._closed:
                self._expire(time.monotonic())
                self._update()
        return True

    def _free(self) -> None:
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _watch(self, deadline: float) -> None:
        """Leaves what is not done to the thread."""
        self._update()
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name=f"narrowcast-messages-{self._rank}", daemon=True)
            self._thread.start()
        elif deadline < self._until and threading.current_thread() is not self._thread:
            os.write(self._wake_write, b"x")

    def _update(self) -> None:
        """Waits for the sockets that there is something to do for."""
        for peer, sock in self._outgoing.items():
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._sends.get(peer) else 0)
            self._select(sock, events, partial(self._write, peer))
        for stream in self._incoming:
            unfinished = stream.source is None or stream.head or stream.message
            wanted = unfinished or self._inbox.wants(stream.source or 0)
            wanted = wanted and stream not in self._assisted
            self._select(stream.socket, selectors.EVENT_READ if wanted else 0, partial(self._read, stream))

    def _select(self, sock: socket.socket, events: int, handler: Callable[[], Any]) -> None:
        current = self._selector.get_map().get(sock)
        if current is None:
            if events:
                self._selector.register(sock, events, handler)
        elif not events:
            self._selector.unregister(sock)
        elif current.events != events:
            self._selector.modify(sock, events, handler)

    def _discard(self, sock: socket.socket) -> None:
        self._select(sock, 0, lambda: None)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that assists, which close() would not
        sock.close()

    def _is_outstanding(self, receive: Receive, stream: _Incoming) -> bool:
        """Whether a receive still waits for this stream. If not, its end has been or is being reported."""
        reads = stream.message is not None and stream.message.receive is receive
        return reads or receive in self._inbox.posted

    def _is_waiting(self) -> bool:
        reading = any(stream.message and stream.message.receive for stream in self._incoming)
        return bool(self._inbox.posted) or reading or any(self._sends.values())

    def _sources(self, receive: Receive) -> list[int]:
        if receive.source is not None:
            return [receive.source]
        return [peer for peer in range(self._size) if peer != self._rank]

    # Connections.

    def _reach(self, peer: int) -> bool:
        """Connects to a peer. Returns whether it is there."""
        if peer in self._outgoing or peer in self._ended:
            return peer in self._outgoing
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(self._addresses[peer])
            if not _is_own(sock):
                raise PermissionError(f"the socket of rank {peer} belongs to another user")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
            sock.sendall(_HELLO.pack(self._rank))
        except OSError as error:
            sock.close()
            gone = isinstance(error, ConnectionError)
            self._lose(peer, None if gone else SystemFailure(f"no connection to rank {peer}: {error}"))
            return False
        sock.setblocking(False)
        self._outgoing[peer] = sock
        return True

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            if not _is_own(sock):
                sock.close()
                continue
            sock.setblocking(False)
            self._incoming.append(stream := _Incoming(sock))
            self._read(stream)

    def _lose(self, peer: int, error: NarrowcastError | None = None) -> None:
        """The peer has ended. What it sent before can still be read."""
        lost = error or RemoteError(f"rank {peer} has ended or left the process group")
        lost = self._ended.setdefault(peer, lost)
        if peer in self._outgoing:
            self._discard(self._outgoing.pop(peer))
        for one in self._sends.pop(peer, ()):
            self._report(one.done, lost, peer)
        self._accept()
        self._fail_hopeless()

    def _drop(self, stream: _Incoming, error: NarrowcastError) -> None:
        """Nothing more is read from this connection."""
        self._incoming.remove(stream)
        self._discard(stream.socket)
        message = stream.message
        if message is not None:
            self._inbox.lost(message)
            if message.receive is not None:
                self._report(message.receive.done, error, message.source)

    def _fail_hopeless(self) -> None:
        """Ends receives whose message cannot arrive any more."""
        # A connection that has not sent its rank may be anyone's.
        alive = {stream.source for stream in self._incoming}

        def is_hopeless(one: Receive) -> bool:
            return None not in alive and all(peer in self._ended and peer not in alive for peer in self._sources(one))

        for receive in self._inbox.take_posted(is_hopeless):
            sources = self._sources(receive)
            none = RemoteError("there is no other rank to receive from")
            self._report(receive.done, self._ended[sources[0]] if sources else none, receive.source)

    def _deadlines(self) -> list[float]:
        reading = [stream.message.receive for stream in self._incoming if stream.message]
        receives = [*self._inbox.posted, *(one for one in reading if one)]
        return [one.deadline for one in receives] + [each[0].deadline for each in self._sends.values() if each]

    def _expire(self, now: float) -> None:
        for receive in self._inbox.take_posted(lambda one: one.deadline <= now):
            who = "no rank" if receive.source is None else f"rank {receive.source}"
            verb = "sent" if receive.source is None else "did not send"
            late = PeerTimeoutError(f"{who} {verb} a message with tag {receive.tag} before the timeout")
            self._report(receive.done, late, receive.source)
        for stream in [*self._incoming]:
            message = stream.message
            if message and message.receive and message.receive.deadline <= now:
                late = PeerTimeoutError(f"rank {message.source} did not send all of a message before the timeout")
                self._drop(stream, late)
                self._lose(message.source, late)
        for peer, waiting in [*self._sends.items()]:
            late = PeerTimeoutError(f"rank {peer} did not receive a message before the timeout")
            if waiting and waiting[0].begun and waiting[0].deadline <= now:
                self._lose(peer, late)  # the rest of the message would be taken for another one
            while waiting and waiting[0].deadline <= now:
                self._report(waiting.popleft().done, late, peer)

    # Reading and writing.

    def _write(self, peer: int) -> None:
        waiting, sock = self._sends.get(peer), self._outgoing.get(peer)
        if sock is None:
            return
        try:
            while waiting:
                one = waiting[0]
                sent = sock.sendmsg(one.parts, [], socket.MSG_NOSIGNAL)
                one.begun = True
                while one.parts and sent >= one.parts[0].nbytes:
                    sent -= one.parts.pop(0).nbytes
                if one.parts:
                    one.parts[0] = one.parts[0][sent:]
                    continue
                waiting.popleft()
                self._report(one.done, None, peer)
            # The peer never writes on this connection: it can only end it.
            if not sock.recv(1):
                self._lose(peer)
        except BlockingIOError:
            pass
        except OSError:
            self._lose(peer)

    def _read(self, stream: _Incoming, *, assists: bool = False) -> None:
        """Reads what has arrived, as far as anybody waits for it."""
        # A thread that assists would go on waiting for what another one has read.
        if stream not in self._incoming or (stream in self._assisted and not assists):
            return
        left = _TURN_BYTES
        try:
            while left > 0:
                message = stream.message
                if message is not None:
                    read = stream.socket.recv_into(message.buffer[message.read :])
                    message.read += read
                    left -= read
                    if message.complete:
                        stream.message = None
                        self._end_if_complete(message)
                elif stream.source is not None and not stream.head and not self._inbox.wants(stream.source):
                    return
                else:
                    read = self._read_head(stream)
                if not read:
                    self._end_of(stream)
                    return
        except BlockingIOError:
            pass
        except OSError:
            self._end_of(stream)

    def _read_head(self, stream: _Incoming) -> int:
        """Reads more of the sender's rank, or of a header."""
        form = _HELLO if stream.source is None else _HEADER
        part = stream.socket.recv(form.size - len(stream.head))
        stream.head += part
        if len(stream.head) == form.size:
            numbers = form.unpack(stream.head)
            stream.head.clear()
            if stream.source is None:
                (stream.source,) = numbers
            else:
                message = self._inbox.begin(stream.source, *numbers)
                stream.message = None if message.complete else message
                self._end_if_complete(message)
        return len(part)

    def _end_of(self, stream: _Incoming) -> None:
        source = stream.source
        error = RemoteError(f"rank {source} has ended or left the process group")
        self._drop(stream, error)
        if source is not None:
            self._lose(source, error)
        self._fail_hopeless()

    def _end_if_complete(self, message: Message) -> None:
        if message.complete and message.receive is not None:
            self._reports.append(message.deliver)


def _is_own(sock: socket.socket) -> bool:
    """Whether the other end belongs to this user."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())
