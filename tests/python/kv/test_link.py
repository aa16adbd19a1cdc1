"""Messages and reads between two agents of NIXL, or of what stands in for it."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
import uuid

import numpy as np
import pytest
from narrowcast._kv.link import Link
from narrowcast._kv.messages import Alive, Done, Endpoint, Free, Hello
from narrowcast._kv.receiver import Peer
from nixl_agents import AGENTS

SLOTS, SLOT_BYTES, STRIDE = 3, 4096, 1024
SECONDS = 20
LARGE_BYTES = 64 << 20
# A process with a slot, which prints how to reach it.
PROCESS = f"""
import base64, json, time, uuid
import numpy as np
from narrowcast._kv.link import Link
from nixl_agents import real_agent

memory = np.ones({LARGE_BYTES}, np.uint8)
link = Link(real_agent(str(uuid.uuid4())), memory.ctypes.data, 1, memory.size, "DRAM", 0)
print(json.dumps([base64.b64encode(link.metadata).decode(), memory.ctypes.data]), flush=True)
while True:
    link.received()
    time.sleep(0.001)
"""


class Side:
    def __init__(self, create):
        self.memory = np.zeros(SLOTS * SLOT_BYTES, np.uint8)
        self.agent = create(str(uuid.uuid4()))
        address = self.memory.ctypes.data
        self.link = Link(self.agent, address, SLOTS, SLOT_BYTES, "DRAM", 0)
        self.endpoint = Endpoint("engine", self.link.metadata, address, 0, "DRAM", SLOTS, SLOT_BYTES, 30.0)


def until(function):
    begin = time.monotonic()
    while not (found := function()):
        assert time.monotonic() - begin < SECONDS
        time.sleep(0.001)
    return found


def cannot_send(link, peer):
    try:
        link.send(peer.name, Free(3))
    except Exception:
        return True
    return False


@pytest.fixture(params=sorted(AGENTS))
def sides(request):
    """A sender, and a receiver that is connected to it."""
    sender, receiver = Side(AGENTS[request.param]), Side(AGENTS[request.param])
    peer = Peer(receiver.link.connect(sender.link.metadata), sender.endpoint)
    receiver.link.send(peer.name, Hello(receiver.link.metadata))
    receiver.link.send(peer.name, Alive(("a",)))
    ((back, message),) = until(sender.link.received)
    assert message == Alive(("a",))
    yield sender, receiver, peer, back
    for side in (sender, receiver):
        side.link.close()


def test_both_sides_can_send(sides):
    sender, receiver, peer, back = sides
    sender.link.send(back, Done("request"))
    assert until(receiver.link.received) == [(peer.name, Done("request"))]


def test_frames_are_read_and_the_sender_is_told(sides):
    sender, receiver, peer, back = sides
    sender.memory[:] = np.random.default_rng(0).integers(1, 256, sender.memory.size)
    sizes = [1000, 1, STRIDE]
    handle = receiver.link.read(peer, 2, 1, STRIDE, sizes, Free(7))
    until(lambda: receiver.link.state(handle) != "PROC")
    assert receiver.link.state(handle) == "DONE"
    assert until(sender.link.received) == [(back, Free(7))]
    expected = np.zeros_like(receiver.memory)
    for number, size in enumerate(sizes):
        place, there = SLOT_BYTES + number * STRIDE, 2 * SLOT_BYTES + number * STRIDE
        expected[place : place + size] = sender.memory[there : there + size]
    assert np.array_equal(receiver.memory, expected)
    assert receiver.link.release(handle)


def test_memory_that_is_not_registered_is_not_read(sides):
    _, receiver, peer, _ = sides
    with pytest.raises(Exception, match=r"NOT_FOUND|INVALID"):
        receiver.link.read(peer, SLOTS, 1, STRIDE, [1000], Free(7))


def test_other_messages_are_ignored(sides):
    sender, receiver, peer, back = sides
    for content in (b"HB:a", b"\xff", b'["Hello", "bm8gYWdlbnQ="]'):
        receiver.agent.send_notif(peer.name, content)
    receiver.link.send(peer.name, Free(1))
    assert until(sender.link.received) == [(back, Free(1))]


def test_a_peer_can_be_connected_again(sides):
    sender, receiver, peer, back = sides
    receiver.link.disconnect(peer.name)
    assert receiver.link.connect(sender.link.metadata) == peer.name
    receiver.link.send(peer.name, Hello(receiver.link.metadata))
    receiver.link.send(peer.name, Free(2))
    assert until(sender.link.received) == [(back, Free(2))]
    sender.link.send(back, Done("request"))
    assert until(receiver.link.received) == [(peer.name, Done("request"))]


def test_nobody_else_can_be_connected(sides):
    with pytest.raises(Exception, match=r"NIXL|MISMATCH|INVALID"):
        sides[1].link.connect(b"no agent")


@pytest.mark.skipif("nixl" not in AGENTS, reason="nixl is not installed")
@pytest.mark.parametrize("stopped", [False, True], ids=["before", "meanwhile"])
@pytest.mark.parametrize("transport", ["all", "tcp"])
def test_reads_from_a_process_that_is_killed_fail(monkeypatch, transport, stopped):
    monkeypatch.setenv("UCX_TLS", transport)
    memory = np.zeros(LARGE_BYTES, np.uint8)
    link = Link(AGENTS["nixl"](str(uuid.uuid4())), memory.ctypes.data, 1, LARGE_BYTES, "DRAM", 0)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", PROCESS], stdout=subprocess.PIPE, text=True, env=environment) as other:
        try:
            metadata, address = json.loads(next(line for line in other.stdout if line.startswith("[")))
            endpoint = Endpoint("e", base64.b64decode(metadata), address, 0, "DRAM", 1, LARGE_BYTES, 30.0)
            peer = Peer(link.connect(endpoint.agent), endpoint)
            handle = link.read(peer, 0, 0, LARGE_BYTES, [LARGE_BYTES], Free(1))
            until(lambda: link.state(handle) != "PROC")
            assert link.state(handle) == "DONE"
            assert memory.all()
            if stopped:
                other.send_signal(signal.SIGSTOP)
                handle = link.read(peer, 0, 0, LARGE_BYTES, [LARGE_BYTES], Free(2))
        finally:
            other.kill()
    if not stopped:
        handle = link.read(peer, 0, 0, LARGE_BYTES, [LARGE_BYTES], Free(2))
    until(lambda: link.state(handle) != "PROC")
    # Shared memory can be read while the process is stopped.
    assert link.state(handle) == "ERR" or (stopped and transport == "all")
    assert link.release(handle)
    until(lambda: cannot_send(link, peer))
    link.close()
