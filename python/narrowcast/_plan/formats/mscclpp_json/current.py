"""The schema of MSCCL++ 0.8 and later."""

from __future__ import annotations

from collections.abc import Iterator

from ...model import Operand, Step
from ..collectives import MAX_CHUNKS
from ..json_document import Value
from .operations import DATA_OPERATIONS, Op, Ref
from .schema import BUFFERS, INT_MAX, Schema

__all__ = ["CurrentSchema"]

_KINDS = {"memory": "memory", "port": "port", "switch": "switch"}
_REMOTE_KINDS = {"memory": "memory", "port": "port"}
_CONTROL = {
    "signal": ("signal", False),
    "rlxsignal": ("signal", True),
    "wait": ("wait", False),
    "rlxwait": ("wait", True),
    "flush": ("flush", False),
}
_SEMAPHORES = {"sem_release": "signal", "sem_acquire": "wait"}


class CurrentSchema(Schema):
    """Names its values in snake case, and gives every operand a size."""

    chunk_keys = ("input_chunks", "output_chunks", "scratch_chunks")
    barrier_key = "num_threadblocks"

    def scratch_copies(self) -> int:
        key = "use_double_scratch_buffer"
        return 2 if key in self.document and self.document[key].boolean() else 1

    def begin_rank(self, rank: int, gpu: Value) -> None:
        self.rank = rank
        self.connections: dict[str, list[tuple[int, int]]] = {"memory": [], "port": []}  # (peer, index with this peer)
        self.switches: list[tuple[str, list[int]]] = []  # (buffer, ranks)
        counts: dict[tuple[str, int], int] = {}
        for channel in gpu.optional("channels"):
            kind = channel["channel_type"].choice(_KINDS)
            if kind == "switch":
                # Plans in MSCCL++'s own tests say buff instead of buffer_type.
                key = "buffer_type" if "buffer_type" in channel or "buff" not in channel else "buff"
                buffer = channel[key].choice(BUFFERS)
                for group in channel["rank_groups"].items():
                    self.switches.append((buffer, self.read_switch(rank, group)))
                continue
            for value in channel["connected_to"].items():
                peer = value.integer(0, self.ranks - 1)
                index = counts[kind, peer] = counts.get((kind, peer), -1) + 1
                self.connections[kind].append((peer, index))
        self.remote_buffers = []
        for remote in gpu.optional("remote_buffers"):
            peer = remote["rank"].integer(0, self.ranks - 1)
            self.remote_buffers.append((peer, remote["type"].choice(BUFFERS)))
        self.semaphores = [semaphore["init_value"].integer(0, INT_MAX) for semaphore in gpu.optional("semaphores")]

    def begin_block(self, block: Value) -> None:
        self.block_channels: dict[str, list[int]] = {kind: [] for kind in _KINDS}
        self.block_buffers: dict[str, list[int]] = {"memory": [], "port": []}
        for channel in block.optional("channels"):
            kind = channel["channel_type"].choice(_KINDS)
            known = len(self.switches if kind == "switch" else self.connections[kind])
            for value in channel["channel_ids"].items():
                self.block_channels[kind].append(_index(value, known, f"the gpu has {known} {kind} channels"))
        for refs in block.optional("remote_buffer_refs"):
            kind = refs["access_channel_type"].choice(_REMOTE_KINDS)
            for value in refs["remote_buffer_ids"].items():
                known = len(self.remote_buffers)
                self.block_buffers[kind].append(_index(value, known, f"the gpu has {known} remote buffers"))

    def connections_of(self, op: Value) -> tuple[str, list[tuple[int, int]]]:
        """The kind and the connections of the channels that an operation names."""
        kind = op["channel_type"].choice(_REMOTE_KINDS)
        known = self.block_channels[kind]
        found = []
        for value in op["channel_ids"].items():
            index = _index(value, len(known), f"the thread block has {len(known)} {kind} channels")
            connection = self.connections[kind][known[index]]
            self.check_peer(self.rank, connection[0], value)
            found.append(connection)
        return kind, found

    def control_op(self, name: str, op: Value) -> Iterator[Step]:
        if name in _SEMAPHORES:
            channels = []
            for value in op["semaphore_ids"].items():
                known = len(self.semaphores)
                number = _index(value, known, f"the gpu has {known} semaphores")
                channels.append(self.semaphore(self.rank, number, self.semaphores[number]))
            relaxed = False
            kind = _SEMAPHORES[name]
        elif name in _CONTROL:
            kind, relaxed = _CONTROL[name]
            link, connections = self.connections_of(op)
            channels = []
            for peer, index in connections:
                ends = (peer, self.rank) if kind == "wait" else (self.rank, peer)
                channels.append(self.channel(link, *ends, index))
        else:
            op["name"].fail(f"{name[:40]!r} is not an operation of MSCCL++")
        if not channels:
            op.fail(f"{name} names no channel")
        yield Step(kind, channels=channels, relaxed=relaxed)

    def data_op(self, name: str, op: Value) -> Op | None:
        if name not in DATA_OPERATIONS:
            return None
        if name == "glre" and "src_buff" not in op:
            return self.group_load(op)
        port = "channel_type" in op and op["channel_type"].raw == "port"
        result = Op(name, op, port=port)
        connections: list[tuple[int, int]] | None = None
        if port:
            connections = self.connections_of(op)[1]
            if name in ("pws", "pwsf"):
                result.channels = [self.channel("port", self.rank, peer, index) for peer, index in connections]
        elif name in ("pws", "pwsf"):
            op.fail(f"{name} needs a port channel")
        result.sources = [self.operand(value, op, connections, i) for i, value in enumerate(op["src_buff"].items())]
        result.targets = [self.operand(value, op, connections, i) for i, value in enumerate(op["dst_buff"].items())]
        return result

    def operand(self, value: Value, op: Value, connections: list[tuple[int, int]] | None, position: int) -> Ref:
        chunk = value["index"].integer(0, MAX_CHUNKS)
        size = value["size"].integer(1, MAX_CHUNKS)
        if "buffer_id" in value:
            kind = op["channel_type"].choice(_REMOTE_KINDS)
            known = self.block_buffers[kind]
            index = _index(value["buffer_id"], len(known), f"the thread block has {len(known)} remote buffers")
            peer, buffer = self.remote_buffers[known[index]]
            self.check_peer(self.rank, peer, value)
            connection = (peer, 0)  # any connection gives access to the memory of the peer
            if connections is not None:
                if position >= len(connections) or connections[position][0] != peer:
                    op["channel_ids"].fail(f"element {position} must be a channel to rank {peer}, whose buffer is used")
                connection = connections[position]
            operand = Operand(buffer, chunk, channel=self.channel(kind, self.rank, *connection))
        elif "switch_channel_id" in value:
            operand = self.switched(value["switch_channel_id"], chunk)
        else:
            operand = Operand(value["type"].choice(BUFFERS), chunk)
        return self.ref(value, operand, size, op)

    def switched(self, value: Value, chunk: int) -> Operand:
        known = self.block_channels["switch"]
        index = known[_index(value, len(known), f"the thread block has {len(known)} switch channels")]
        buffer, ranks = self.switches[index]
        return Operand(buffer, chunk, switch=self.switch(ranks))

    def group_load(self, op: Value) -> Op:
        """glre, which names its operands differently from all others."""
        size = op["size"].integer(1, MAX_CHUNKS)
        channel = next(iter(op["channel_ids"].items()), op["channel_ids"])
        source = self.switched(channel, op["buffer_offset"].integer(0, MAX_CHUNKS))
        source.buffer = op["buffer_type"].choice(BUFFERS)
        target = op["dst_chunk"]
        stored = Operand(target["type"].choice(BUFFERS), target["index"].integer(0, MAX_CHUNKS))
        stored_size = target["size"].integer(1, MAX_CHUNKS)
        return Op("glre", op, [self.ref(op, source, size, op)], [self.ref(target, stored, stored_size, op)])


def _index(value: Value, known: int, explanation: str) -> int:
    number = value.integer(0, INT_MAX)
    if number >= known:
        value.fail(f"there is no {number}: {explanation}")
    return number
