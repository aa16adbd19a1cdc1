"""The schema of MSCCL++ before 0.8: it names operands after channels, and operations otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from ...model import Operand, Step
from ..collectives import MAX_CHUNKS
from ..json_document import Value
from .operations import Op, Ref
from .schema import BUFFERS, INT_MAX, Schema

__all__ = ["EarlierSchema"]

_T = TypeVar("_T")
_KINDS = {"sm": "memory", "memory": "memory", "proxy": "port", "port": "port", "nvls": "switch"}
_CONTROL = {"signal": "o", "wait": "i", "flush": "o"}

# The name in the current schema, and where the operands are: x local (src, dst), L a list of local ones (srcs, dsts), C
# through channels (i_cids, o_cids). cpkt has another meaning in the current schema.
_OPERATIONS = {
    "copy": ("copy", "x", "x"),
    "cpkt": ("upkt", "x", "x"),
    "tpkt": ("cpkt", "x", "x"),
    "put": ("put", "L", "C"),
    "pws": ("pws", "L", "C"),
    "pwsf": ("pwsf", "L", "C"),
    "get": ("get", "C", "L"),
    "ppkt": ("ppkt", "L", "C"),
    "rppkt": ("rppkt", "L", "C"),
    "re": ("re", "xL", "x"),
    "rs": ("res", "xL", "xC"),
    "rrc": ("rre", "xC", "x"),
    "rrcs": ("rres", "xC", "xC"),
    "rpkt": ("repkt", "xL", "x"),
    "rspkt": ("respkt", "xL", "xC"),
}

# A channel is named by the buffers that it connects.
_Key = tuple[str, str, str]  # kind, buffer of this rank, buffer of the other


class EarlierSchema(Schema):
    """Names its values in camel case, and gives all operands of an operation one size, cnt."""

    chunk_keys = ("inputChunks", "outputChunks", "scratchChunks")
    barrier_key = "nthread_blocks"

    def scratch_copies(self) -> int:
        return 2 if self.packets else 1

    def begin_rank(self, rank: int, gpu: Value) -> None:
        self.rank = rank
        self.connections: dict[_Key, list[tuple[int, int]]] = {}  # (peer, index with this peer)
        self.switches: dict[str, list[list[int]]] = {}  # by buffer: ranks
        counts: dict[tuple[str, int], int] = {}
        for channel in gpu.optional("channels"):
            kind = channel["type"].choice(_KINDS)
            if kind == "switch":
                for group in channel["rankGroups"].items():
                    self.switches.setdefault(channel["buff"].choice(BUFFERS), []).append(self.read_switch(rank, group))
                continue
            key = (kind, channel["srcbuff"].choice(BUFFERS), channel["dstbuff"].choice(BUFFERS))
            for value in channel["connectedTo"].items():
                peer = value.integer(0, self.ranks - 1)
                index = counts[kind, peer] = counts.get((kind, peer), -1) + 1
                self.connections.setdefault(key, []).append((peer, index))

    def begin_block(self, block: Value) -> None:
        self.block_channels: dict[_Key, list[tuple[int, int]]] = {}
        self.block_switches: dict[str, list[list[int]]] = {}
        for channel in block.optional("channels"):
            key = (channel["ctype"].choice(_KINDS), channel["src"].choice(BUFFERS), channel["dst"].choice(BUFFERS))
            for value in channel["cids"].items():
                if key[0] == "switch":
                    self.block_switches.setdefault(key[1], []).append(_pick(value, self.switches.get(key[1], [])))
                else:
                    self.block_channels.setdefault(key, []).append(_pick(value, self.connections.get(key, [])))

    def through(self, op: Value, side: str) -> Iterator[tuple[Value, str, str, tuple[int, int]]]:
        """What i_cids or o_cids names: the element, the kind of channel, the buffer of the peer, the connection."""
        kind = op["ctype"].choice(_KINDS)
        buffers = op[f"{side}_buff"]
        key = (kind, buffers["src"].choice(BUFFERS), buffers["dst"].choice(BUFFERS))
        for value in op[f"{side}_cids"].items():
            connection = _pick(value["id"], self.block_channels.get(key, []))
            self.check_peer(self.rank, connection[0], value)
            yield value, kind, key[2], connection

    def control_op(self, name: str, op: Value) -> Iterator[Step]:
        side = _CONTROL.get(name)
        if side is None:
            op["name"].fail(f"{name[:40]!r} is not an operation of MSCCL++ before 0.8")
        channels = []
        for _, kind, _, (peer, index) in self.through(op, side):
            ends = (peer, self.rank) if name == "wait" else (self.rank, peer)
            channels.append(self.channel(kind, *ends, index))
        if not channels:
            op.fail(f"{name} names no channel")
        yield Step(name, channels=channels)

    def data_op(self, name: str, op: Value) -> Op | None:
        if name == "glres":
            return Op("glres", op, [self.switched(op, "src", "i")], [self.switched(op, "dst", "o")])
        if name not in _OPERATIONS:
            return None
        current, sources, targets = _OPERATIONS[name]
        result = Op(current, op, port="ctype" in op and op["ctype"].raw in ("proxy", "port"))
        result.sources = [ref for where in sources for ref in self.operands(op, where, "src", "i")]
        result.targets = [ref for where in targets for ref in self.operands(op, where, "dst", "o")]
        if current in ("pws", "pwsf"):
            if not result.port:
                op.fail(f"{name} needs a proxy channel")
            result.channels = [ref.operand.channel for ref in result.targets if ref.operand.channel is not None]
        return result

    def operands(self, op: Value, where: str, name: str, side: str) -> Iterator[Ref]:
        size = op["cnt"].integer(1, MAX_CHUNKS)
        if where == "x":
            buffer, chunk = op[f"{name}buff"].choice(BUFFERS), op[f"{name}off"].integer(0, MAX_CHUNKS)
            yield self.ref(op, Operand(buffer, chunk), size, op)
        elif where == "L":
            for value in op[f"{name}s"].items():
                operand = Operand(value["buff"].choice(BUFFERS), value["off"].integer(0, MAX_CHUNKS))
                yield self.ref(value, operand, size, op)
        else:
            for value, kind, buffer, (peer, index) in self.through(op, side):
                channel = self.channel(kind, self.rank, peer, index)
                operand = Operand(buffer, value["off"].integer(0, MAX_CHUNKS), channel=channel)
                yield self.ref(value, operand, size, op)

    def switched(self, op: Value, name: str, side: str) -> Ref:
        if op["ctype"].choice(_KINDS) != "switch":
            op["ctype"].fail("glres needs an nvls channel")
        buffer = op[f"{name}buff"].choice(BUFFERS)
        channel = next(iter(op[f"{side}_cids"].items()), op[f"{side}_cids"])
        switch = self.switch(_pick(channel["id"], self.block_switches.get(buffer, [])))
        operand = Operand(buffer, op[f"{name}off"].integer(0, MAX_CHUNKS), switch=switch)
        return self.ref(op, operand, op["cnt"].integer(1, MAX_CHUNKS), op)


def _pick(value: Value, known: list[_T]) -> _T:
    number = value.integer(0, INT_MAX)
    if number >= len(known):
        value.fail(f"there is no {number}: there are {len(known)} such channels")
    return known[number]
