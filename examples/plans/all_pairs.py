"""All-reduce in one step: every rank sends its values to all others, and reduces what it receives."""

from narrowcast.plan import Program, codec


def plan(ranks: int = 4) -> Program:
    p = Program("all_reduce", ranks, name="all-pairs")
    with codec("window"):
        for r in p.ranks:
            r.output[0] = r.reduce(peer.input[0] for peer in p.ranks)
    return p
