"""All-reduce of short messages: packets carry a flag with the values, so nothing is signalled."""

from narrowcast.plan import Program


def plan(ranks: int = 4) -> Program:
    p = Program("all_reduce", ranks, name="packets", scratch_copies=2, max_bytes=64 << 10)
    inbox = [r.scratch(ranks, packets=True) for r in p.ranks]
    for r in p.ranks:
        for peer in p.ranks:
            if peer is not r:
                r.put(r.input[0], inbox[peer][r])
    for r in p.ranks:
        r.output[0] = r.reduce(r.input[0] if peer is r else inbox[r][peer] for peer in p.ranks)
    return p
