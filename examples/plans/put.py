"""All-gather by one-sided stores: every rank writes into the outputs of the others, and signals."""

from narrowcast.plan import Program


def plan(ranks: int = 4) -> Program:
    p = Program("all_gather", ranks, name="put")
    for r in p.ranks:
        others = [peer for peer in p.ranks if peer is not r]
        r.signal(*others, relaxed=True)  # this rank has begun the call: its output may be written
        r.wait(*others, relaxed=True)
        for peer in others:
            r.put(r.input[0], peer.output[r])
        r.output[r] = r.input[0]
        r.signal(*others)
        r.wait(*others)
    return p
