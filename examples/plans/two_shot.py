"""All-reduce in two steps: rank r reduces chunk r, and sends the result to all others."""

from narrowcast.plan import Program, codec


def plan(ranks: int = 4) -> Program:
    p = Program("all_reduce", ranks, chunks=ranks, name="two-shot")
    with codec("window"):
        for r in p.ranks:
            total = r.reduce(peer.input[r] for peer in p.ranks)
            for peer in p.ranks:
                peer.output[r] = total
    return p
