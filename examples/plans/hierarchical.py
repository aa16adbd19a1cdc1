"""All-reduce of hosts with several GPUs: only the exchange between hosts, over the slower links, is encoded."""

from narrowcast.plan import Program, codec


def plan(ranks: int = 8, gpus: int = 4) -> Program:
    p = Program("all_reduce", ranks, chunks=gpus, name="hierarchical")
    hosts = [p.ranks[first : first + gpus] for first in range(0, ranks, gpus)]
    for c in range(gpus):
        sums = [host[c].reduce(r.input[c] for r in host) for host in hosts]
        for host in hosts:
            with codec("window"):
                total = host[c].reduce(sums)
            for r in host:
                r.output[c] = total
    return p
