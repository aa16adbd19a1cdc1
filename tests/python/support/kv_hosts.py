"""Two hosts that transfer KV blocks over a simulated network: Sender and Receiver as they are, on a clock that the test
moves.
"""

from __future__ import annotations

import random
from collections import deque

from narrowcast._kv.messages import Endpoint, pack, unpack
from narrowcast._kv.receiver import Blocks, Peer, Receiver
from narrowcast._kv.sender import Sender

STRIDE, SLOT_BYTES, LEASE = 64, 4 * 64, 30.0


class Coder:
    """A KV cache whose blocks are bytes. A frame is its length and a part of a block without the zeros at its end."""

    block_bytes = (STRIDE - 8, STRIDE - 8)

    def __init__(self, slots, blocks=()):
        self.blocks = dict(blocks)  # (group, number) -> bytes
        self.memory = [bytearray(SLOT_BYTES) for _ in range(slots)]
        self.corrupt = False

    def stride(self, group):
        return STRIDE

    def part_blocks(self, group):
        return SLOT_BYTES // STRIDE

    def encode(self, group, blocks, slot):
        if len(blocks) > SLOT_BYTES // STRIDE or any((group, block) not in self.blocks for block in blocks):
            raise ValueError("no such blocks")
        sizes = []
        for place, block in enumerate(blocks):
            content = self.blocks[group, block].rstrip(b"\0")
            frame = len(content).to_bytes(1, "little") + content
            self.memory[slot][place * STRIDE : place * STRIDE + len(frame)] = frame
            sizes.append(len(frame))
        return sizes

    def decode(self, group, blocks, slot, sizes):
        for place, (block, size) in enumerate(zip(blocks, sizes, strict=True)):
            frame = bytes(self.memory[slot][place * STRIDE :][:size])
            if frame[0] != size - 1 or self.corrupt:
                raise ValueError("a frame is corrupt")
            self.blocks[group, block] = frame[1:].ljust(self.block_bytes[group], b"\0")


class Host:
    """One side: its KV cache, and what it has reported."""

    def __init__(self, network, name, blocks=(), slots=4):
        self.name, self.network, self.coder = name, network, Coder(2 * slots, blocks)
        self.inbox = deque()
        self.fetched, self.released, self.lost = {}, [], []
        self.endpoint = Endpoint(name, b"agent", 0, 0, "DRAM", slots, SLOT_BYTES, LEASE)
        self.sender = Sender(self.coder, range(slots), LEASE, self.send, self.released.append, network.clock)
        self.receiver = Receiver(
            self.coder, range(slots, 2 * slots), self, self.send, self.finished, self.lost.append, network.clock
        )
        network.hosts[name] = self

    def finished(self, fetched):
        assert fetched.request not in self.fetched
        self.fetched[fetched.request] = fetched

    def send(self, peer, message):
        self.network.send(self.name, peer, message)

    def read(self, peer, remote_slot, slot, stride, sizes, then):
        """A read of receiver.Reader. Bytes arrive one after another, at any time until it is done."""
        read = {"peer": peer.name, "from": remote_slot, "to": slot, "sizes": sizes, "state": "PROC", "then": then}
        self.network.reads.append((self, read))
        return read

    def state(self, handle):
        return handle["state"]

    def release(self, handle):
        return handle["state"] != "PROC"

    def step(self):
        while self.inbox:
            peer, message = self.inbox.popleft()
            (self.receiver if type(message).__name__ in ("Offer", "Refusal") else self.sender).receive(peer, message)
        return self.sender.step() | self.receiver.step()


class Network:
    """Delivers messages and reads. Subclasses lose them."""

    def __init__(self):
        self.now, self.hosts, self.reads, self.sent = 0.0, {}, [], []

    def clock(self):
        return self.now

    def send(self, source, target, message):
        assert unpack(pack(message)) == message
        self.sent.append((source, message))
        self.deliver(source, target, message)

    def deliver(self, source, target, message):
        self.hosts[target].inbox.append((source, message))

    def advance(self):
        for host, read in self.reads:
            self.complete(host, read)
        self.reads = []

    def complete(self, host, read):
        source = self.hosts[read["peer"]].coder.memory[read["from"]]
        for place, size in enumerate(read["sizes"]):
            here = slice(place * STRIDE, place * STRIDE + size)
            host.coder.memory[read["to"]][here] = source[here]
        read["state"] = "DONE"
        self.send(host.name, read["peer"], read["then"])

    def run(self, steps=1000):
        """Until nothing happens any more."""
        for _ in range(steps):
            stepped = [host.step() for host in self.hosts.values()]
            progress = any(stepped) or self.reads or any(host.inbox for host in self.hosts.values())
            self.advance()
            if not progress:
                return
        raise AssertionError("the hosts do not come to rest")


class LossyNetwork(Network):
    """Loses and delays messages and reads, and fails reads, at random."""

    def __init__(self, seed, loss):
        super().__init__()
        self.random, self.loss, self.late = random.Random(seed), loss, []

    def deliver(self, source, target, message):
        chance = self.random.random()
        if chance < self.loss:
            return
        if chance < 3 * self.loss:
            self.late.append((self.now + self.random.uniform(0, 2 * LEASE), source, target, message))
        else:
            super().deliver(source, target, message)

    def advance(self):
        for entry in [one for one in self.late if one[0] <= self.now]:
            self.late.remove(entry)
            super().deliver(*entry[1:])
        for host, read in self.reads[:]:
            if "end" not in read:
                slow = self.random.random() < self.loss
                read["end"] = self.now + self.random.uniform(0, 2 * LEASE if slow else 1)
            if self.random.random() < self.loss / 10:
                read["state"] = "ERR"
            elif self.now >= read["end"]:
                self.complete(host, read)
            else:
                continue
            self.reads.remove((host, read))
        self.now += self.random.uniform(0, 0.2)


def content(seed, number):
    """A block, of a length of its own."""
    random_bytes = random.Random(f"{seed}-{number}")
    return random_bytes.randbytes(random_bytes.randrange(STRIDE - 8)).ljust(STRIDE - 8, b"\0")


def pair(network=None, blocks=40):
    """A sender with blocks of two groups, and a receiver."""
    network = network or Network()
    cache = {(group, number): content(group, number) for group in range(2) for number in range(blocks)}
    prefill, decode = Host(network, "prefill", cache), Host(network, "decode")
    decode.coder.blocks = dict.fromkeys(cache, b"")
    return network, prefill, decode, Peer("prefill", prefill.endpoint)


def wanted(*groups):
    """Lists of (remote, local) pairs of each group, as Receiver.fetch takes them."""
    return [Blocks(number, [one for one, _ in pairs], [one for _, one in pairs]) for number, pairs in enumerate(groups)]
