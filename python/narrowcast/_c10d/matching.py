"""Which message goes to which receive: the first of its source and tag, in the order of sends and of receives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

# Called once, at the end of a message: with its error, if any, and the peer.
Done = Callable[[BaseException | None, int | None], None]


@dataclass(eq=False)
class Receive:
    """A receive that waits for a message, or for the rest of it."""

    source: int | None  # None: any rank
    tag: int
    target: memoryview
    deadline: float
    done: Done


@dataclass(eq=False)
class Message:
    """A message that is being read or has been read."""

    source: int
    tag: int
    buffer: memoryview  # the target of its receive, if that was there in time and has its size
    read: int = 0
    receive: Receive | None = None

    @property
    def complete(self) -> bool:
        return self.read == self.buffer.nbytes

    def deliver(self) -> None:
        """The message is complete and has a receive."""
        receive = self.receive
        assert receive is not None
        if receive.target.nbytes != self.buffer.nbytes:
            receive.done(
                RuntimeError(
                    f"rank {self.source} sent {self.buffer.nbytes} bytes with tag {self.tag}, and the tensor of the "
                    f"receive has {receive.target.nbytes}"
                ),
                self.source,
            )
            return
        if receive.target is not self.buffer:
            receive.target[:] = self.buffer
        receive.done(None, self.source)


class Inbox:
    """The receives of a rank, and the messages that nobody has received yet."""

    def __init__(self) -> None:
        self.posted: list[Receive] = []
        self._kept: list[Message] = []

    def post(self, receive: Receive) -> Message | None:
        """Adds a receive. Returns the message that it gets, if that has arrived, complete or not."""
        for message in self._kept:
            if message.tag == receive.tag and receive.source in (None, message.source):
                self._kept.remove(message)
                message.receive = receive
                return message
        self.posted.append(receive)
        return None

    def begin(self, source: int, tag: int, size: int) -> Message:
        """The message whose header has arrived: with its receive, or to be kept."""
        for receive in self.posted:
            if receive.tag == tag and receive.source in (None, source):
                self.posted.remove(receive)
                fits = receive.target.nbytes == size
                buffer = receive.target if fits else memoryview(bytearray(size))
                return Message(source, tag, buffer, receive=receive)
        self._kept.append(message := Message(source, tag, memoryview(bytearray(size))))
        return message

    def wants(self, source: int) -> bool:
        """Whether a message from this rank may be what a receive waits for."""
        return any(one.source in (None, source) for one in self.posted)

    def lost(self, message: Message) -> None:
        """The rest of this message will not arrive."""
        if message in self._kept:
            self._kept.remove(message)

    def take_posted(self, condition: Callable[[Receive], bool]) -> Iterator[Receive]:
        """Removes receives that no message has begun for."""
        taken = [one for one in self.posted if condition(one)]
        self.posted = [one for one in self.posted if one not in taken]
        yield from taken
