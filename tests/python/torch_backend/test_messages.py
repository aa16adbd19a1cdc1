"""The messages between ranks of the backend "narrowcast", without torch."""

from __future__ import annotations

import os
import queue
import random
import socket
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

if sys.platform != "linux":
    pytest.skip("the sockets are of Linux", allow_module_level=True)

from narrowcast._c10d import messages
from narrowcast._c10d.messages import Mailbox
from narrowcast.errors import AbortedError, InternalError, PeerTimeoutError, RemoteError

LONG = 1 << 22  # bytes; no socket holds as many
SECONDS = 20


class Rank:
    """A mailbox, whose messages end in a queue."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.mailbox = mailbox

    def send(self, data: bytes, peer: int, tag: int = 0) -> queue.Queue:
        ended: queue.Queue = queue.Queue()
        self.mailbox.send(memoryview(data), peer, tag, lambda error, rank: ended.put((error, rank)))
        return ended

    last = None  # the latest receive

    def receive(self, size: int, source: int | None, tag: int = 0, **options) -> tuple[bytearray, queue.Queue]:
        target, ended = bytearray(size), queue.Queue()
        done = lambda error, rank: ended.put((error, rank))  # noqa: E731
        self.last = self.mailbox.receive(memoryview(target), source, tag, done, **options)
        return target, ended


@pytest.fixture
def ranks():
    made = []

    def start(count: int, seconds: float = SECONDS) -> list[Rank]:
        boxes = [Mailbox(rank, count, seconds) for rank in range(count)]
        for box in boxes:
            box.connect([one.address for one in boxes])
        made.extend(boxes)
        return [Rank(box) for box in boxes]

    yield start
    for box in made:
        box.close(AbortedError("the test is over"))


def end_of(ended: queue.Queue):
    return ended.get(timeout=SECONDS)


def test_messages_arrive_in_any_order_of_sends_and_receives(ranks):
    numbers = random.Random(1)
    everyone = ranks(3)
    sizes = {tag: numbers.choice([0, 1, 1000, 300_000, LONG]) for tag in range(6)}
    sends = [(a, b, tag) for a in range(3) for b in range(3) if a != b for tag in sizes]
    receives = sends.copy()
    numbers.shuffle(sends)
    numbers.shuffle(receives)
    content = {one: bytes([numbers.randrange(256)]) * sizes[one[2]] for one in sends}
    pending, results = [], []
    for sent, received in zip(sends, receives, strict=True):
        a, b, tag = sent
        pending.append(everyone[a].send(content[sent], b, tag))
        a, b, tag = received
        results.append((received, *everyone[b].receive(sizes[tag], a, tag)))
    for (a, b, tag), target, ended in results:
        assert end_of(ended) == (None, a)
        assert target == content[a, b, tag]
    assert [end_of(one)[0] for one in pending] == [None] * len(pending)


def test_messages_with_one_tag_keep_their_order(ranks):
    first, second = ranks(2)
    for i in range(50):
        first.send(bytes([i]) * (1 + i), 1)
    for i in range(50):
        target, ended = second.receive(1 + i, 0)
        assert end_of(ended) == (None, 0)
        assert target == bytes([i]) * (1 + i)


def test_a_long_message_to_one_rank_holds_up_no_message_to_another(ranks):
    first, _, third = ranks(3)
    waiting = first.send(bytes(LONG), 1)
    first.send(b"now", 2)
    target, ended = third.receive(3, 0)
    assert end_of(ended) == (None, 0)
    assert target == b"now"
    assert waiting.empty()


def test_a_receive_from_any_rank_says_which_it_was(ranks):
    first, second, third = ranks(3)
    target, ended = first.receive(5, None, 7)
    second.send(b"wrong", 0, 6)
    third.send(b"right", 0, 7)
    assert end_of(ended) == (None, 2)
    assert target == b"right"
    target, ended = first.receive(5, None, 6)
    assert end_of(ended) == (None, 1)


def test_a_message_of_another_size_is_an_error_of_its_receive_only(ranks):
    first, second = ranks(2)
    first.send(bytes(LONG), 1)
    first.send(b"next", 1)
    _, ended = second.receive(3, 0)
    error, _ = end_of(ended)
    assert f"rank 0 sent {LONG} bytes with tag 0, and the tensor of the receive has 3" in str(error)
    target, ended = second.receive(4, 0)
    assert end_of(ended) == (None, 0)
    assert target == b"next"


def test_what_a_rank_sent_before_it_ended_arrives_and_more_is_an_error(ranks):
    first, second = ranks(2)
    sent = first.send(b"last words", 1)
    assert end_of(sent)[0] is None
    first.mailbox.close()
    target, ended = second.receive(10, 0)
    assert end_of(ended) == (None, 0)
    assert target == b"last words"
    for pending in (second.receive(1, 0)[1], second.receive(1, None)[1], second.send(bytes(LONG), 0)):
        error, _ = end_of(pending)
        assert isinstance(error, RemoteError)
        assert "rank 0 has ended" in str(error)


def test_messages_in_flight_end_when_their_peer_ends(ranks):
    first, second = ranks(2)
    pending = [second.receive(1, 0)[1], second.send(bytes(LONG), 0)]
    first.mailbox.close(AbortedError("ended"))
    for one in pending:
        assert isinstance(end_of(one)[0], RemoteError)


def test_a_message_without_a_peer_times_out_and_others_go_on(ranks):
    first, second = ranks(2, seconds=0.3)
    begin = time.monotonic()
    for pending in (first.receive(1, 1)[1], first.receive(1, None)[1]):
        assert isinstance(end_of(pending)[0], PeerTimeoutError)
    assert time.monotonic() - begin < 5
    first.send(b"a", 1)
    assert end_of(second.receive(1, 0)[1]) == (None, 0)


def test_a_shorter_limit_of_one_receive_is_kept(ranks):
    first, _ = ranks(2, seconds=60)
    _, slow = first.receive(1, 1)
    _, ended = first.receive(1, 1, seconds=0.1)
    assert isinstance(end_of(ended)[0], PeerTimeoutError)
    assert slow.empty()


def test_connections_of_other_users_are_refused(ranks, monkeypatch):
    first, second = ranks(2)
    monkeypatch.setattr(messages.os, "geteuid", lambda: os.getuid() + 1)
    error, _ = end_of(first.send(b"secret", 1))
    assert "belongs to another user" in str(error)
    stranger = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stranger.connect(second.mailbox.address)
    _, ended = second.receive(6, 0, seconds=0.2)
    assert end_of(ended)[0] is not None
    stranger.settimeout(SECONDS)
    assert stranger.recv(1) == b""
    stranger.close()


def test_a_thread_that_waits_reads_messages_and_ends_with_the_mailbox(ranks):
    first, second = ranks(2)
    first.send(b"connected", 1)
    assert end_of(second.receive(9, 0)[1])[0] is None
    for end in (lambda: first.send(b"x", 1), lambda: second.mailbox.close(AbortedError("ended"))):
        _, ended = second.receive(1, 0)
        waiting = Thread(target=second.mailbox.assist, args=(second.last, SECONDS))
        waiting.start()
        time.sleep(0.1)
        assert waiting.is_alive()
        end()
        waiting.join(SECONDS / 2)
        assert not waiting.is_alive()
        end_of(ended)


def test_a_message_that_a_thread_waits_for_is_not_read_by_another(ranks):
    first, second = ranks(2)
    first.send(b"connected", 1)
    assert end_of(second.receive(9, 0)[1])[0] is None
    _, ended = second.receive(1, 0)
    box = second.mailbox
    (stream,) = box._incoming

    waiting = Thread(target=box.assist, args=(second.last, SECONDS))
    waiting.start()
    while stream not in box._assisted:
        time.sleep(0.01)
    with box._reporting():  # the thread of the mailbox may have got the event before
        first.send(b"x", 1)
        box._read(stream)
    waiting.join(SECONDS / 2)
    assert not waiting.is_alive()
    assert end_of(ended) == (None, 0)


def test_what_no_rank_can_have_sent_ends_all_messages_with_an_error(ranks):
    _, second = ranks(2)
    pending = [second.receive(1, 0)[1], second.receive(1, None, 5)[1]]
    forged = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    forged.connect(second.mailbox.address)
    forged.sendall(messages._HELLO.pack(0) + messages._HEADER.pack(9, 1 << 62))
    for one in pending:
        assert isinstance(end_of(one)[0], InternalError)
    forged.close()


def test_a_closed_mailbox_leaves_no_descriptors(ranks):
    def descriptors() -> set[str]:
        return {one.name for one in Path("/proc/self/fd").iterdir()}

    before = descriptors()
    everyone = ranks(2)
    _, ended = everyone[1].receive(1, 0)
    everyone[0].send(b"x", 1)
    assert end_of(ended)[0] is None
    for one in everyone:
        one.mailbox.close()
    assert descriptors() <= before
