"""Broadcast in a binomial tree: in each round, every rank that has the values sends them to one that does not."""

from narrowcast.plan import Program


def plan(ranks: int = 8) -> Program:
    p = Program("broadcast", ranks, chunks=4, name="tree")
    p.ranks[0].output[:] = p.ranks[0].input
    have = 1
    while have < ranks:
        for sender, receiver in zip(p.ranks[:have], p.ranks[have : 2 * have], strict=False):
            receiver.output[:] = sender.output
        have *= 2
    return p
