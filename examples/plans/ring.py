"""All-reduce in a ring: chunk c starts at rank c and travels twice around, first to be reduced, then to be stored."""

from narrowcast.plan import Program


def plan(ranks: int = 4) -> Program:
    p = Program("all_reduce", ranks, chunks=ranks, name="ring")
    at = [r.input[r] for r in p.ranks]  # where the values of each chunk are
    for hop in range(1, 2 * ranks - 1):
        for c in range(ranks):
            r = p.ranks[(c + hop) % ranks]
            if hop < ranks:
                at[c] = r.reduce(at[c], r.input[c])
            if hop >= ranks - 1:
                r.output[c] = at[c]
                at[c] = r.output[c]
    return p
