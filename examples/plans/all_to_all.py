"""All-to-all in one step. Rank r begins with its next rank, so that the ranks do not all send to the same one."""

from narrowcast.plan import Program


def plan(ranks: int = 4) -> Program:
    p = Program("all_to_all", ranks, name="all-pairs")
    for distance in range(ranks):
        for r in p.ranks:
            peer = p.ranks[(r.index + distance) % ranks]
            peer.output[r] = r.input[peer]
    return p
