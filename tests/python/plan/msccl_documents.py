"""Small MSCCL XML documents."""

from __future__ import annotations

NOP = ("i", -1, "o", -1, 0)


def step(
    s: int, kind: str, srcbuf: str, srcoff: int, dstbuf: str, dstoff: int, cnt: int = 1, depid=-1, deps=-1, hasdep=0
) -> str:
    return (
        f'<step s="{s}" type="{kind}" srcbuf="{srcbuf}" srcoff="{srcoff}" dstbuf="{dstbuf}" dstoff="{dstoff}" '
        f'cnt="{cnt}" depid="{depid}" deps="{deps}" hasdep="{hasdep}"/>\n'
    )


def tb(number: int, steps: str, send: int = -1, recv: int = -1, chan: int = 0) -> str:
    return f'<tb id="{number}" send="{send}" recv="{recv}" chan="{chan}">\n{steps}</tb>\n'


def gpu(number: int, blocks: str = "", i_chunks: int = 1, o_chunks: int = 1, s_chunks: int = 0) -> str:
    return f'<gpu id="{number}" i_chunks="{i_chunks}" o_chunks="{o_chunks}" s_chunks="{s_chunks}">\n{blocks}</gpu>\n'


def algo(ngpus: int, gpus: str, nchunksperloop: int = 1, coll: str = "allreduce", **attributes: object) -> str:
    defaults = {"name": "test", "proto": "Simple", "nchannels": 1, "inplace": 1}
    given = {name: value for name, value in (defaults | attributes).items() if value is not None}
    text = " ".join(f'{name}="{value}"' for name, value in given.items())
    return f'<algo {text} nchunksperloop="{nchunksperloop}" ngpus="{ngpus}" coll="{coll}">\n{gpus}</algo>\n'


def all_gather_ring(ranks: int, chunks: int = 1, in_place: bool = True, copies: bool = False) -> str:
    gpus = ""
    for rank in range(ranks):
        own = rank * chunks
        rows = []
        if not in_place and not copies:
            rows.append(("cpy", "i", 0, "o", own))
        rows.append(("s", "o", own, "o", own))
        for distance in range(1, ranks):
            piece = (rank - distance) % ranks * chunks
            rows.append(("r" if distance == ranks - 1 else "rcs", "o", piece, "o", piece))
        steps = "".join(step(index, *row, cnt=chunks) for index, row in enumerate(rows))
        head = "".join(f'<copy i_off="{i}" o_off="{own + i}"/>\n' for i in range(chunks)) if copies else ""
        block = tb(0, steps, (rank + 1) % ranks, (rank - 1) % ranks)
        gpus += gpu(rank, head + block, chunks, ranks * chunks)
    return algo(ranks, gpus, ranks * chunks, "allgather", inplace=int(in_place))


def all_reduce_pairs(ranks: int, proto: str = "Simple") -> str:
    """Each rank reduces one chunk, in place, from scratch chunks that all others fill."""
    gpus = ""
    for rank in range(ranks):
        peers = [peer for peer in range(ranks) if peer != rank]
        blocks = ""
        for index, peer in enumerate(peers):
            row = step(0, "s", "i", peer, "s", 0) + step(1, "r", "i", 0, "s", index, hasdep=1)
            row += step(2, "s", "i", rank, "i", rank, depid=ranks - 1, deps=2 * len(peers) - 2)
            blocks += tb(index, row + step(3, "r", "i", peer, "i", peer), peer, peer)
        rows = ""
        for index in range(len(peers)):
            # The second reduction and later ones come after a nop, as MSCCLang writes several dependences.
            if index:
                rows += step(2 * index - 1, "nop", *NOP, depid=index, deps=1)
            last = index == len(peers) - 1
            where = {"depid": index, "deps": 1}
            rows += step(2 * index, "re", "s", index, "i", rank, hasdep=int(last), **where)
        blocks += tb(ranks - 1, rows)
        gpus += gpu(rank, blocks, ranks, 0, ranks - 1)
    return algo(ranks, gpus, ranks, name="pairs", proto=proto)


def reduce_scatter_pairs(ranks: int, coll: str = "reduce_scatter") -> str:
    gpus = ""
    for rank in range(ranks):
        blocks = ""
        for index in range(ranks - 1):
            to, source = (rank + index + 1) % ranks, (rank - index - 1) % ranks
            rows = step(0, "s", "i", to, "o", 0)
            if index == 0:
                rows += step(1, "rrc", "i", rank, "o", 0, hasdep=1)
            else:
                rows += step(1, "rrc", "o", 0, "o", 0, depid=index - 1, deps=1, hasdep=1)
            blocks += tb(index, rows, to, source)
        gpus += gpu(rank, blocks, ranks, 1)
    return algo(ranks, gpus, ranks, coll, inplace=0)


DOCUMENTS = {
    "all-gather, in place": all_gather_ring(4),
    "all-gather, out of place": all_gather_ring(4, in_place=False),
    "all-gather that copies its input first": all_gather_ring(4, in_place=False, copies=True),
    "all-gather of several chunks": all_gather_ring(3, chunks=2),
    "all-reduce by pairs": all_reduce_pairs(4),
    "all-reduce by pairs, LL": all_reduce_pairs(4, proto="LL"),
    "reduce-scatter": reduce_scatter_pairs(3),
    "reduce-scatter of RCCL": reduce_scatter_pairs(3, coll="reducescatter"),
}
