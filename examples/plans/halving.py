"""Reduce-scatter by recursive halving: partners exchange halves of what they still have. `ranks` is a power of 2."""

from narrowcast.plan import Program


def plan(ranks: int = 8) -> Program:
    p = Program("reduce_scatter", ranks, name="recursive halving")
    sums = {(r.index, c): r.input[c] for r in p.ranks for c in range(ranks)}
    half = ranks // 2
    while half:
        before = dict(sums)
        for r in p.ranks:
            for c in range(ranks):
                if (r.index ^ c) < half:  # r and the final rank of chunk c are in the same half
                    sums[r.index, c] = r.reduce(before[r.index, c], before[r.index ^ half, c])
        half //= 2
    for r in p.ranks:
        r.output[0] = sums[r.index, r.index]
    return p
