"""Small MSCCL++ plans, of both schemas."""

from __future__ import annotations

import json
from typing import Any

from narrowcast._plan.formats import mscclpp_json
from narrowcast._plan.model import PlanModel, Step

Json = dict[str, Any]


def local(kind: str, index: int = 0, size: int = 1) -> Json:
    return {"type": kind, "index": index, "size": size}


def remote(buffer_id: int, index: int = 0, size: int = 1) -> Json:
    return {"buffer_id": buffer_id, "index": index, "size": size}


def switched(index: int = 0, size: int = 1) -> Json:
    return {"switch_channel_id": 0, "index": index, "size": size}


def link(name: str, ids: list[int] | None = None, kind: str = "memory") -> Json:
    return {"name": name, "channel_ids": [0] if ids is None else ids, "channel_type": kind}


NOP = {"name": "nop"}


def block(number: int, ops: list[Json], channels: list[int] | None = None, alone: bool = False) -> Json:
    """Has the given channels of each kind, and all remote buffers through each; none of either if it is `alone`."""
    if alone:
        return {"id": number, "ops": ops, "channels": [], "remote_buffer_refs": []}
    ids = [0] if channels is None else channels
    return {
        "id": number,
        "ops": ops,
        "channels": [{"channel_type": kind, "channel_ids": ids} for kind in ("memory", "port")]
        + [{"channel_type": "switch", "channel_ids": [0]}],
        "remote_buffer_refs": [
            {"access_channel_type": kind, "remote_buffer_ids": [0, 1, 2]} for kind in ("memory", "port")
        ],
    }


def document(
    blocks: list[list[Json]],
    collective: str = "allreduce",
    chunks: tuple[int, int, int] = (2, 2, 2),
    connections: int = 1,
    switch: str = "i",
    **more: object,
) -> Json:
    """A plan of as many ranks as `blocks` has lists, two or one.

    Memory and port channels connect them, remote buffers 0, 1, 2 are input, output and scratch of the other rank.
    """
    ranks = len(blocks)
    gpus = []
    for rank, mine in enumerate(blocks):
        peers = [peer for peer in range(ranks) if peer != rank] * connections
        gpus.append(
            {
                "id": rank,
                "input_chunks": chunks[0],
                "output_chunks": chunks[1],
                "scratch_chunks": chunks[2],
                "channels": [{"channel_type": kind, "connected_to": peers} for kind in ("memory", "port")]
                + [
                    {
                        "channel_type": "switch",
                        "buffer_type": switch,
                        "rank_groups": [{"size": 1, "ranks": list(range(ranks))}],
                    }
                ],
                "remote_buffers": [
                    {"rank": peer, "type": kind, "access_channel_types": ["memory", "port"]}
                    for peer in sorted(set(peers))
                    for kind in "ios"
                ],
                "semaphores": [{"init_value": 0}, {"init_value": 3}],
                "threadblocks": mine,
            }
        )
    head = {"name": "test", "collective": collective, "protocol": "Simple", "inplace": True}
    return head | more | {"gpus": gpus}


def all_reduce_get() -> Json:
    """Reads the other rank's half, reduces it, and puts the result."""

    def rank(own: int) -> list[Json]:
        ops = [
            link("rlxsignal"),
            link("rlxwait"),
            NOP,
            {
                "name": "rres",
                "src_buff": [local("i", own), remote(0, own)],
                "dst_buff": [local("i", own), remote(0, own)],
                "channel_type": "memory",
                "reduce_op": "sum",
            },
            NOP,
            link("signal"),
            link("wait"),
        ]
        return [block(0, ops)]

    return document([rank(0), rank(1)], chunks=(2, 2, 0))


def all_reduce_packets(name: str = "respkt") -> Json:
    def rank(own: int) -> list[Json]:
        other = 1 - own
        ops = [
            {
                "name": "ppkt",
                "src_buff": [local("i", other)],
                "dst_buff": [remote(2, 0)],
                "channel_type": "memory",
            },
            {
                "name": name,
                "src_buff": [local("i", own), local("s", 0)],
                "dst_buff": [local("i", own), *([local("s", 2)] if name == "recspkt" else []), remote(2, 1)],
                "channel_type": "memory",
                "reduce_op": "sum",
            },
            {"name": "upkt", "src_buff": [local("s", 1)], "dst_buff": [local("i", other)]},
        ]
        return [block(0, ops)]

    return document([rank(0), rank(1)], chunks=(2, 2, 3), protocol="LL", use_double_scratch_buffer=True)


def all_gather_ports() -> Json:
    def rank(own: int) -> list[Json]:
        ops = [
            {
                "name": "pwsf",
                "src_buff": [local("o", own)],
                "dst_buff": [remote(1, own)],
                "channel_type": "port",
                "channel_ids": [0],
            },
            link("wait", kind="port"),
            NOP,
        ]
        return [block(0, ops)]

    return document([rank(0), rank(1)], "allgather", (1, 2, 0))


def all_reduce_switch(pipeline: bool = False) -> Json:
    def rank(own: int) -> list[Json]:
        reduce = {
            "name": "glres",
            "src_buff": [switched(own)],
            "dst_buff": [switched(own)],
            "channel_type": "switch",
            "reduce_op": "sum",
        }
        loop = {"name": "pipeline", "iter_context": {"unit_size": 4096, "num_chunks": 1}, "ops": [reduce]}
        sync = [NOP, link("signal"), link("wait"), NOP]
        return [block(0, [*sync, loop if pipeline else reduce, *sync])]

    return document([rank(0), rank(1)], chunks=(2, 2, 0))


def all_gather_groups() -> Json:
    """Two thread blocks move half of each chunk, and a third waits for both by a barrier and semaphores."""

    def rank(own: int) -> list[Json]:
        def half(number: int) -> list[Json]:
            put = {
                "name": "put",
                "src_buff": [local("o", own)],
                "dst_buff": [remote(1, own)],
                "channel_type": "memory",
                "tbg_info": {"tb_id": number, "tbg_size": 2},
            }
            return [put, {"name": "barrier", "barrier_id": 3, "num_threadblocks": 3}]

        last = [
            {"name": "barrier", "barrier_id": 3, "num_threadblocks": 3},
            link("signal"),
            link("wait"),
            NOP,
            {"name": "sem_release", "semaphore_ids": [0]},
            {"name": "sem_acquire", "semaphore_ids": [0]},
        ]
        return [block(0, half(0)), block(1, half(1)), block(2, last)]

    return document([rank(0), rank(1)], "allgather", (1, 2, 0))


DOCUMENTS = {
    "all-reduce that reads": all_reduce_get(),
    "all-reduce by packets": all_reduce_packets(),
    "all-reduce by packets, copied": all_reduce_packets("recspkt"),
    "all-gather by ports": all_gather_ports(),
    "all-reduce by a switch": all_reduce_switch(),
    "all-reduce by a switch in a pipeline": all_reduce_switch(pipeline=True),
    "all-gather by groups of thread blocks": all_gather_groups(),
}


# The schema before 0.8. Channels 0 of (i, i), 1 of (i, s).


def earlier(
    blocks: list[list[list[Json]]], collective: str = "allreduce", protocol: str = "Simple", scratch: int = 4
) -> Json:
    gpus = []
    for rank, mine in enumerate(blocks):
        peers = [1 - rank]
        gpus.append(
            {
                "id": rank,
                "inputChunks": 2,
                "outputChunks": 0 if collective == "allreduce" else 1,
                "scratchChunks": scratch,
                "chunkGroups": 1,
                "channels": [
                    {"srcbuff": "i", "dstbuff": "i", "type": "sm", "connectedTo": peers},
                    {"srcbuff": "i", "dstbuff": "s", "type": "sm", "connectedTo": peers},
                    {"srcbuff": "i", "dstbuff": "s", "type": "proxy", "connectedTo": peers},
                    {"buff": "i", "type": "nvls", "rankGroups": [{"size": 1, "ranks": [0, 1]}]},
                ],
                "threadblocks": [
                    {
                        "id": number,
                        "ops": ops,
                        "channels": [
                            {"src": "i", "dst": "i", "ctype": "sm", "cids": [0]},
                            {"src": "i", "dst": "s", "ctype": "sm", "cids": [0]},
                            {"src": "i", "dst": "s", "ctype": "proxy", "cids": [0]},
                            {"src": "i", "dst": "i", "ctype": "nvls", "cids": [0]},
                        ],
                    }
                    for number, ops in enumerate(mine)
                ],
            }
        )
    return {"name": "test", "collective": collective, "protocol": protocol, "inplace": True, "gpus": gpus}


def through(side: str, buffer: str = "i", off: int = 0) -> Json:
    """i_cids or o_cids with the channel to a buffer of the other rank."""
    return {f"{side}_buff": {"src": "i", "dst": buffer}, f"{side}_cids": [{"id": 0, "off": off}]}


def here(source: tuple[str, int], target: tuple[str, int]) -> Json:
    (srcbuff, srcoff), (dstbuff, dstoff) = source, target
    return {"src": 0, "srcbuff": srcbuff, "srcoff": srcoff, "dst": 0, "dstbuff": dstbuff, "dstoff": dstoff}


def earlier_all_reduce() -> Json:
    def rank(own: int) -> list[list[Json]]:
        signal = {"name": "signal", **through("o"), "ctype": "sm", "cnt": 1}
        wait = {"name": "wait", **through("i"), "ctype": "sm", "cnt": 1}
        nop = {"name": "nop", "deps": [{"tb": 0, "step": 1}]}
        both = {**through("i", off=own), **through("o", off=own)}
        reduce = {"name": "rrcs", **both, **here(("i", own), ("i", own)), "ctype": "sm", "cnt": 1}
        return [[signal, wait, nop, reduce, nop, signal, wait]]

    return earlier([rank(0), rank(1)])


def earlier_all_reduce_packets() -> Json:
    def rank(own: int) -> list[list[Json]]:
        other = 1 - own
        send = {"name": "ppkt", **through("o", "s", 0), "srcs": [{"buff": "i", "off": other}], "ctype": "sm", "cnt": 1}
        reduce = {
            "name": "rspkt",
            **through("o", "s", 1),
            "srcs": [{"buff": "s", "off": 0}],
            **here(("i", own), ("i", own)),
            "ctype": "sm",
            "cnt": 1,
        }
        # In this schema cpkt copies out of packets.
        copy = {"name": "cpkt", **here(("s", 1), ("i", other)), "ctype": "none", "cnt": 1}
        return [[send, reduce, copy]]

    return earlier([rank(0), rank(1)], protocol="LL")


EARLIER = {"all-reduce": earlier_all_reduce(), "all-reduce by packets": earlier_all_reduce_packets()}

#: Documents of both schemas.
ALL = {**DOCUMENTS, **{f"{name}, before 0.8": found for name, found in EARLIER.items()}}


def read(found: dict[str, Any]) -> PlanModel:
    """The plan of a document."""
    return mscclpp_json.read(json.dumps(found).encode())


def steps_of(op: dict[str, Any], **more: Any) -> tuple[PlanModel, list[Step]]:
    """The plan of an operation between two ranks, and the steps that rank 0 has for it."""
    plan = read(document([[block(0, [op])], [block(0, [])]], chunks=(8, 8, 8), **more))
    return plan, plan.ranks[0].groups[0].steps
