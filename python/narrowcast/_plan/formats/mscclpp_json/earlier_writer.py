"""Writes the schema of MSCCL++ before 0.8, from a document of the current one.

A channel of this schema connects one buffer of a rank with one of another: an operation names it by both, and by its
position among those that connect the same. Operations have fewer operands, and so become several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, NoReturn, TypeVar

from ....errors import UnsupportedError
from .earlier_channels import Key, Link, RankChannels, connect

__all__ = ["earlier_document"]

_Json = dict[str, Any]
_T = TypeVar("_T")

_MAX_OPERANDS = 8  # of an operation, besides src and dst
# By names of the current schema: names in the earlier one.
_CTYPES = {"memory": "sm", "port": "proxy", "switch": "nvls"}
_LOCAL = {"copy": "copy", "cpkt": "tpkt", "upkt": "cpkt"}
_CONTROL = {"signal": ("signal", "o"), "wait": ("wait", "i"), "flush": ("flush", "o")}
# The earlier schema has no relaxed ones. Ordinary ones also order memory, so they can stand for these.
_CONTROL |= {f"rlx{name}": _CONTROL[name] for name in ("signal", "wait")}


class _Reduction(NamedTuple):
    plain: str
    sending: str  #: that also sends its result to operands of one buffer
    reads_peers: bool  #: whether the sources besides src are on other ranks
    put: str  #: sends the result to operands of further buffers


_REDUCE = _Reduction("re", "rs", False, "put")
_READ_REDUCE = _Reduction("rrc", "rrcs", True, "put")
_REDUCE_PACKETS = _Reduction("rpkt", "rspkt", False, "ppkt")
_REDUCTIONS = {
    "re": _REDUCE,
    "res": _REDUCE,
    "rre": _READ_REDUCE,
    "rres": _READ_REDUCE,
    "repkt": _REDUCE_PACKETS,
    "respkt": _REDUCE_PACKETS,
}


class _Here(NamedTuple):
    """Chunks of the rank."""

    buffer: str
    chunk: int


class _Far(NamedTuple):
    """Chunks of another rank."""

    kind: str
    peer: int
    number: int | None  #: of the port between the ranks
    buffer: str
    chunk: int


@dataclass(slots=True)
class _Op:
    """An operation whose channels have no numbers yet."""

    fields: _Json
    accesses: dict[str, list[tuple[Link, int]]] = field(default_factory=dict)  #: i, o: channels, and chunks behind them
    switches: tuple[int, ...] = ()  #: those of src and dst, among the switches of the rank


def earlier_document(document: _Json) -> _Json:
    """The document in the earlier schema. Raises UnsupportedError, with the operation, for what it cannot express."""
    packets = document["protocol"] == "LL"
    if packets != document["use_double_scratch_buffer"]:
        raise UnsupportedError("MSCCL++ before 0.8 has two copies of the scratch memory for packets, and only for them")
    ranks = [_Rank(gpu) for gpu in document["gpus"]]
    channels = connect([rank.channels for rank in ranks])
    header = ("name", "collective", "protocol", "inplace", "num_threads_per_block")
    limits = ("min_message_size", "max_message_size")
    return {
        **{name: document[name] for name in (*header, *limits)},
        "gpus": [rank.document(numbered) for rank, numbered in zip(ranks, channels, strict=True)],
    }


class _Rank:
    """The operations of a rank."""

    def __init__(self, gpu: _Json) -> None:
        self.gpu = gpu
        self.links: dict[str, list[tuple[int, int]]] = {"memory": [], "port": []}  # (peer, number)
        self.switches: list[tuple[str, list[_Json]]] = []
        for channel in gpu["channels"]:
            kind = channel["channel_type"]
            if kind == "switch":
                self.switches.append((channel["buffer_type"], channel["rank_groups"]))
                continue
            counts: dict[int, int] = {}
            for peer in channel["connected_to"]:
                self.links[kind].append((peer, counts.setdefault(peer, 0)))
                counts[peer] += 1
        default = "i" if gpu["input_chunks"] else "o"
        self.channels = RankChannels(gpu["id"], self.links, Key(default, default))
        self.blocks = [list(self.block(block)) for block in gpu["threadblocks"]]

    def refuse(self, message: str) -> NoReturn:
        raise UnsupportedError(f"{self.where}: {message}")

    def block(self, block: _Json) -> Iterator[_Op]:
        """The operations of a thread block. Sets what the functions below need: what numbers mean in this block."""
        self.ids = {refs["channel_type"]: refs["channel_ids"] for refs in block["channels"]}
        self.buffers = {refs["access_channel_type"]: refs["remote_buffer_ids"] for refs in block["remote_buffer_refs"]}
        for index, op in enumerate(block["ops"]):
            self.where = f"rank {self.gpu['id']} thread block {block['id']} operation {index}"
            yield from self.op(op)

    def op(self, op: _Json) -> Iterator[_Op]:
        name = op["name"]
        if name == "nop":
            yield _Op({"name": "nop"})
        elif name == "barrier":
            count = op["num_threadblocks"]
            yield _Op({"name": "barrier", "barrier_id": op["barrier_id"], "nthread_blocks": count})
        elif name in _CONTROL:
            yield from self.control(op)
        elif name in _LOCAL:
            source, target = op["src_buff"][0], op["dst_buff"][0]
            yield self.sized(_LOCAL[name], op, _ends(self.here(source), self.here(target)))
        elif name in ("put", "ppkt", "rppkt", "get"):
            yield from self.move(op)
        elif name in _REDUCTIONS:
            yield from self.reduce(op)
        elif name == "glres":
            yield self.switched(op)
        else:
            self.refuse(f"MSCCL++ before 0.8 has no {name}")

    def sized(self, name: str, op: _Json, fields: _Json, own: str = "", **fars: list[_Far]) -> _Op:
        """An operation with the size of `op`, which has one.

        own: buffer of the rank between which and the buffers of `fars` the channels are.
        fars: operands on other ranks, by "i" for those that are read and "o" for those that are written.
        """
        (size,) = {operand["size"] for operand in (*op["src_buff"], *op["dst_buff"])}
        made = _Op({"name": name, **fields, "ctype": "none", "cnt": size})
        for letter, operands in fars.items():
            made.accesses[letter] = [(self.link(far, own), far.chunk) for far in operands]
            made.fields["ctype"] = _CTYPES[operands[0].kind]
        return made

    def link(self, far: _Far, own: str) -> Link:
        """The channel by which an operation accesses memory of another rank."""
        key = Key(own, far.buffer)
        if far.number is None:
            return self.channels.access(far.kind, far.peer, key)
        if not self.channels.fix(far.peer, far.number, key):
            self.refuse("a port channel of MSCCL++ before 0.8 connects only one buffer with one other")
        return Link(far.kind, far.peer, far.number)

    def here(self, operand: _Json) -> _Here:
        return _Here(operand["type"], operand["index"])

    def far(self, operand: _Json, op: _Json, position: int) -> _Far:
        kind = op["channel_type"]
        remote = self.gpu["remote_buffers"][self.buffers[kind][operand["buffer_id"]]]
        number = self.links["port"][self.ids["port"][op["channel_ids"][position]]][1] if kind == "port" else None
        return _Far(kind, remote["rank"], number, remote["type"], operand["index"])

    def control(self, op: _Json) -> Iterator[_Op]:
        name, letter = _CONTROL[op["name"]]
        kind = op["channel_type"]
        links = [Link(kind, *self.links[kind][self.ids[kind][number]]) for number in op["channel_ids"]]
        # Which of them an operation can name together is known when all have their buffers.
        for link in links:
            yield _Op({"name": name, "ctype": _CTYPES[kind], "cnt": 1}, {letter: [(link, 0)]})

    def move(self, op: _Json) -> Iterator[_Op]:
        name = op["name"]
        gets = name == "get"
        near, others = (op["dst_buff"], op["src_buff"]) if gets else (op["src_buff"], op["dst_buff"])
        fars = [self.far(operand, op, i) for i, operand in enumerate(others)]
        heres = [self.here(operand) for operand in near] * (len(fars) if len(near) == 1 else 1)
        pairs = list(zip(heres, fars, strict=True))
        for part in _runs(pairs, lambda pair: (pair[0].buffer, pair[1].buffer)):
            owns = [{"buff": own.buffer, "off": own.chunk} for own, _ in part]
            listed = {"dsts" if gets else "srcs": owns[:1] if name == "rppkt" else owns}
            yield self.sized(name, op, listed, part[0][0].buffer, **{"i" if gets else "o": [far for _, far in part]})

    def reduce(self, op: _Json) -> Iterator[_Op]:
        """Reductions of parts of the sources, each into the result of the one before, and sends of the result.

        The last reduction also sends to the first targets.
        """
        reduction = _REDUCTIONS[op["name"]]
        src, dst = self.here(op["src_buff"][0]), self.here(op["dst_buff"][0])
        targets = _runs([self.far(operand, op, 0) for operand in op["dst_buff"][1:]], lambda far: far.buffer)
        sources: list[Any] = [
            self.far(operand, op, 0) if reduction.reads_peers else self.here(operand) for operand in op["src_buff"][1:]
        ]
        parts = _runs(sources, lambda source: source.buffer)
        # The first reduction would overwrite what later ones read.
        count = op["dst_buff"][0]["size"]
        if not reduction.reads_peers and any(_overlap(source, dst, count) for part in parts[1:] for source in part):
            self.refuse(f"an operation of MSCCL++ before 0.8 has {_MAX_OPERANDS} operands of one buffer at most")
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            fars = {"o": targets[0]} if is_last and targets else {}
            name = reduction.sending if fars else reduction.plain
            fields = _ends(dst if number else src, dst)
            if reduction.reads_peers:
                fars["i"] = part
            else:
                fields["srcs"] = [{"buff": source.buffer, "off": source.chunk} for source in part]
            yield self.sized(name, op, fields, dst.buffer, **fars)
        for part in targets[1:]:
            owns = [{"buff": dst.buffer, "off": dst.chunk}] * len(part)
            yield self.sized(reduction.put, op, {"srcs": owns}, dst.buffer, o=part)

    def switched(self, op: _Json) -> _Op:
        source, target = op["src_buff"][0], op["dst_buff"][0]
        switches = tuple(self.ids["switch"][operand["switch_channel_id"]] for operand in (source, target))
        buffers = [self.switches[switch][0] for switch in switches]
        made = self.sized("glres", op, _ends(_Here(buffers[0], source["index"]), _Here(buffers[1], target["index"])))
        made.fields["ctype"] = _CTYPES["switch"]
        made.switches = switches
        return made

    def document(self, numbered: Callable[[Link], tuple[Key, int]]) -> _Json:
        switches = [
            {
                "buff": buffer,
                "type": _CTYPES["switch"],
                "rankGroups": [{"size": group["size"], "ranks": group["ranks"]} for group in groups],
            }
            for buffer, groups in self.switches
        ]
        return {
            "id": self.gpu["id"],
            "inputChunks": self.gpu["input_chunks"],
            "outputChunks": self.gpu["output_chunks"],
            "scratchChunks": self.gpu["scratch_chunks"],
            "chunkGroups": 1,
            "threadblocks": [self.block_document(number, ops, numbered) for number, ops in enumerate(self.blocks)],
            "channels": [*self.channels.document(_CTYPES), *switches],
        }

    def block_document(self, number: int, ops: list[_Op], numbered: Callable[[Link], tuple[Key, int]]) -> _Json:
        # By type and buffers of channels: their positions in the rank, and those in the block.
        positions: dict[tuple[str, str, str], dict[int, int]] = {}

        def position(kind: str, key: Key, of_rank: int) -> int:
            own = positions.setdefault((_CTYPES[kind], *key), {})
            return own.setdefault(of_rank, len(own))

        written: list[_Json] = []
        for op in ops:
            fields = dict(op.fields)
            for letter, accesses in op.accesses.items():
                named = [(link.kind, *numbered(link), chunk) for link, chunk in accesses]
                (key,) = {key for _, key, _, _ in named}
                fields[f"{letter}_buff"] = key._asdict()
                fields[f"{letter}_cids"] = [
                    {"id": position(kind, key, of_rank), "off": chunk} for kind, _, of_rank, chunk in named
                ]
            for letter, switch in zip("io", op.switches, strict=False):
                buffer = self.switches[switch][0]
                same = [i for i, (other, _) in enumerate(self.switches) if other == buffer]
                fields[f"{letter}_cids"] = [{"id": position("switch", Key(buffer, buffer), same.index(switch))}]
            _append(written, fields)
        channels = [
            {"src": src, "dst": dst, "ctype": ctype, "cids": list(own)} for (ctype, src, dst), own in positions.items()
        ]
        return {"id": number, "ops": written, "channels": channels}


def _append(ops: list[_Json], op: _Json) -> None:
    """Appends an operation; a signal, wait or flush joins the one before, if both are of the same buffers."""
    last = ops[-1] if ops else {}
    if op["name"] in ("signal", "wait", "flush"):
        letter = "i" if op["name"] == "wait" else "o"
        ids = f"{letter}_cids"
        is_same = all(last.get(name) == op[name] for name in ("name", "ctype", f"{letter}_buff"))
        if is_same and len(last[ids]) < _MAX_OPERANDS and op[ids][0] not in last[ids]:
            last[ids] += op[ids]
            return
    ops.append(op)


def _ends(source: _Here, target: _Here) -> _Json:
    ends = {"src": 0, "srcbuff": source.buffer, "srcoff": source.chunk}
    return {**ends, "dst": 0, "dstbuff": target.buffer, "dstoff": target.chunk}


def _runs(values: list[_T], key: Callable[[_T], Any]) -> list[list[_T]]:
    """Consecutive values with the same key, as many as an operation can have."""
    runs = [list(run) for _, run in groupby(values, key)]
    return [run[first : first + _MAX_OPERANDS] for run in runs for first in range(0, len(run), _MAX_OPERANDS)]


def _overlap(one: _Here, other: _Here, count: int) -> bool:
    return one.buffer == other.buffer and abs(one.chunk - other.chunk) < count
