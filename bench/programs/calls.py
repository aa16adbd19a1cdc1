"""The calls of collectives.py. Results are compared with those that torch computes on this rank from all inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.distributed as dist
from ranks import Job, bits
from torch.distributed import ReduceOp

WIDE_TYPES = (torch.float64, torch.int64)
SUMMED_TYPES = (torch.int8, torch.uint8, torch.int32, torch.float16, torch.bfloat16, torch.float32, *WIDE_TYPES)
MOVED_TYPES = (torch.bool, torch.bfloat16, torch.float32, torch.int64)
# Types that gloo does not support.
NARROW_TYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
PREMULTIPLIED_TYPES = (torch.float16, torch.float32, torch.float64)
REPLAYS = 4

_FOLDS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "SUM": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
}


def joined(parts: list[torch.Tensor]) -> torch.Tensor:
    """The concatenated bytes, because torch cannot concatenate some types."""
    return torch.cat([bits(part) for part in parts])


class Calls:
    def __init__(self, job: Job) -> None:
        self.job, self.rank, self.ranks, self.device = job, job.rank, job.ranks, job.device
        self.everyone = range(job.ranks)
        self.compared = 0
        self.nccl = dist.get_backend() == "nccl"

    def same(self, found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
        self.compared += 1
        self.job.same(bits(found), bits(expected), what)

    def random(self, count: int, kind: torch.dtype, rank: int, seed: int = 0) -> torch.Tensor:
        """Random bits of a rank, which every rank can compute."""
        seeded = torch.Generator(self.device).manual_seed(1000 * seed + rank)
        if kind == torch.bool:
            return torch.randint(2, (count,), generator=seeded, device=self.device).bool()
        raw = torch.randint(256, (count * kind.itemsize,), generator=seeded, device=self.device, dtype=torch.uint8)
        return raw.view(kind)

    def whole(self, count: int, kind: torch.dtype, rank: int, seed: int = 0) -> torch.Tensor:
        """Integers whose sums, products and means are exact in every type."""
        seeded = torch.Generator(self.device).manual_seed(1000 * seed + rank + 500)
        return torch.randint(1, 3, (count,), generator=seeded, device=self.device).mul(2).to(kind)

    def fold(self, name: str, values: list[torch.Tensor]) -> torch.Tensor:
        return functools.reduce(_FOLDS[name], values)

    def movement(self, count: int, kind: torch.dtype) -> None:
        job, rank, ranks, what = self.job, self.rank, self.ranks, f"{count} x {kind}"
        every = [self.random(count, kind, other) for other in self.everyone]
        own = every[rank].clone()

        def empty(elems: int = count) -> torch.Tensor:
            return torch.zeros(elems, dtype=kind, device=self.device)

        for root in self.everyone:
            got = own.clone() if rank == root else empty()
            dist.broadcast(got, root)
            self.same(got, every[root], f"broadcast from {root} of {what}")
            parts = [empty() for _ in self.everyone] if rank == root else None
            dist.gather(own, parts, root)
            if parts:
                self.same(joined(parts), joined(every), f"gather to {root} of {what}")
            got = empty()
            dist.scatter(got, [value.clone() for value in every] if rank == root else None, root)
            self.same(got, own, f"scatter from {root} of {what}")

        got = empty(ranks * count)
        dist.all_gather_into_tensor(got, own)
        self.same(got, joined(every), f"all_gather_into_tensor of {what}")
        got = empty(ranks * count)
        got[rank * count : (rank + 1) * count] = own
        dist.all_gather_into_tensor(got, got[rank * count : (rank + 1) * count])
        self.same(got, joined(every), f"all_gather_into_tensor in place of {what}")
        parts = [empty() for _ in self.everyone]
        dist.all_gather(parts, own)
        self.same(joined(parts), joined(every), f"all_gather of {what}")

        long = [self.random(ranks * count, kind, other, seed=1) for other in self.everyone]
        got = empty(ranks * count)
        dist.all_to_all_single(got, long[rank])
        expected = joined([value[rank * count : (rank + 1) * count] for value in long])
        self.same(got, expected, f"all_to_all_single of {what}")
        # The number of values that rank r sends to rank s; some are zero.
        self.unequal([[(count * ((r + s) % 3) + 1) // 2 for s in self.everyone] for r in self.everyone], long, what)
        if self.nccl:
            parts = [empty() for _ in self.everyone]
            dist.all_to_all(parts, list(long[rank].split(count)))
            self.same(joined(parts), expected, f"all_to_all of {what}")

        after, before = (rank + 1) % ranks, (rank - 1) % ranks
        if ranks % 2 == 0:
            got = empty()
            if rank % 2 == 0:
                dist.send(own, after)
                dist.recv(got, before)
            else:
                dist.recv(got, before)
                dist.send(own, after)
            self.same(got, every[before], f"send and recv of {what}")
        got, back = empty(), empty()
        both_ways = [
            dist.P2POp(dist.isend, own, after),
            dist.P2POp(dist.irecv, got, before),
            dist.P2POp(dist.isend, own, before, tag=1),
            dist.P2POp(dist.irecv, back, after, tag=1),
        ]
        for work in dist.batch_isend_irecv(both_ways):
            work.wait()
        self.same(got, every[before], f"batch_isend_irecv of {what}")
        self.same(back, every[after], f"batch_isend_irecv, the other way, of {what}")
        job.synchronize()

    def unequal(self, counts: list[list[int]], long: list[torch.Tensor], what: str) -> None:
        sent, received = counts[self.rank], [row[self.rank] for row in counts]
        got = torch.zeros(sum(received), dtype=long[0].dtype, device=self.device)
        dist.all_to_all_single(got, long[self.rank][: sum(sent)].clone(), received, sent)
        expected = [value[sum(row[: self.rank]) :][: row[self.rank]] for value, row in zip(long, counts, strict=True)]
        self.same(got, joined(expected), f"all_to_all_single with splits of {what}")

    def reductions(self, count: int, kind: torch.dtype) -> None:
        rank, what = self.rank, f"{count} x {kind}"
        every = [self.whole(count, kind, other) for other in self.everyone]
        long = [self.whole(self.ranks * count, kind, other, seed=1) for other in self.everyone]
        own, mine = every[rank], slice(rank * count, (rank + 1) * count)
        for name in _FOLDS:
            op = getattr(ReduceOp, name)
            self.reduced(own, self.fold(name, every), op, f"{name} of {what}")
            got = torch.zeros_like(own)
            dist.reduce_scatter_tensor(got, long[rank].clone(), op)
            self.same(got, self.fold(name, long)[mine], f"reduce_scatter_tensor {name} of {what}")
            for root in self.everyone:
                got = own.clone()
                dist.reduce(got, root, op)
                if rank == root:
                    self.same(got, self.fold(name, every), f"reduce to {root} {name} of {what}")
        if not self.nccl:
            return
        # Exact if the number of ranks is a power of 2.
        if kind.is_floating_point and self.ranks & (self.ranks - 1) == 0:
            self.reduced(own, self.fold("SUM", every) / self.ranks, ReduceOp.AVG, f"AVG of {what}")
        if kind in PREMULTIPLIED_TYPES:
            op = dist._make_nccl_premul_sum(0.5)
            self.reduced(own, self.fold("SUM", every) * 0.5, op, f"PREMUL_SUM of {what}")
        if self.ranks == 2 and kind.is_floating_point:
            # A sum of two values does not depend on the order.
            pair = [self.normal(count, kind, other) for other in self.everyone]
            self.reduced(pair[rank], pair[0] + pair[1], ReduceOp.SUM, f"SUM of normal values, {what}")

    def normal(self, count: int, kind: torch.dtype, rank: int) -> torch.Tensor:
        seeded = torch.Generator(self.device).manual_seed(rank)
        return torch.randn(count, generator=seeded, device=self.device).to(kind)

    def reduced(self, own: torch.Tensor, expected: torch.Tensor, op: ReduceOp, what: str) -> None:
        got = own.clone()
        dist.all_reduce(got, op)
        self.same(got, expected, f"all_reduce {what}")

    def objects(self) -> None:
        job, rank = self.job, self.rank
        every = [{"rank": other, "text": "x" * (100 * other + 1)} for other in self.everyone]
        got: list[object] = [None] * self.ranks
        dist.all_gather_object(got, every[rank])
        job.check(got == every, "all_gather_object")
        got = [every[0] if rank == 0 else None]
        dist.broadcast_object_list(got, 0)
        job.check(got == every[:1], "broadcast_object_list")
        got = [None]
        dist.scatter_object_list(got, every if rank == 0 else None, 0)
        job.check(got == [every[rank]], "scatter_object_list")
        got = [None] * self.ranks
        dist.gather_object(every[rank], got if rank == 0 else None, 0)
        job.check(rank != 0 or got == every, "gather_object")
        job.barrier()

    def streams_and_groups(self) -> None:
        """Concurrent calls of two groups of all ranks on two streams, and then calls of pairs of ranks."""
        count = 500_000
        groups = [dist.new_group() for _ in range(2)]
        every = [[self.whole(count, torch.float32, other, seed) for other in self.everyone] for seed in range(2)]
        streams = [torch.cuda.Stream() for _ in groups] if self.job.on_gpu else [None, None]
        self.job.synchronize()
        kept, pending = [], []
        for turn in range(6):
            which = turn % 2
            with torch.cuda.stream(streams[which]):
                summed = every[which][self.rank].clone()
                gathered = summed.new_empty(self.ranks * count)
                pending.append(dist.all_gather_into_tensor(gathered, summed.clone(), groups[which], async_op=True))
                pending.append(dist.all_reduce(summed, group=groups[which], async_op=True))
                kept.append((which, summed, gathered))
        for work in pending:
            work.wait()
        self.job.synchronize()
        for which, summed, gathered in kept:
            self.same(summed, self.fold("SUM", every[which]), f"all_reduce, async, of group {which}")
            self.same(gathered, joined(every[which]), f"all_gather_into_tensor, async, of group {which}")
        for first in range(self.ranks - 1):
            # All ranks create every group, to which two of them belong.
            pair = dist.new_group([first, first + 1])
            if self.rank in (first, first + 1):
                got = every[0][self.rank].clone()
                dist.all_reduce(got, group=pair)
                expected = every[0][first] + every[0][first + 1]
                self.same(got, expected, f"all_reduce of ranks {first} and {first + 1}")
                dist.destroy_process_group(pair)
        for group in groups:
            dist.destroy_process_group(group)

    def coalesced(self) -> None:
        if not self.nccl:
            return
        count, number = 70_000, 5
        every = [[self.whole(count, torch.bfloat16, other, seed) for other in self.everyone] for seed in range(number)]
        mine = [every[seed][self.rank].clone() for seed in range(number)]
        gathered = [own.new_empty(self.ranks * count) for own in mine]
        scattered = [own.new_empty(count // self.ranks) for own in mine]
        with dist._coalescing_manager(device=self.device, async_ops=True) as pending:
            for seed in range(number):
                dist.all_gather_into_tensor(gathered[seed], mine[seed])
        pending.wait()
        with dist._coalescing_manager(device=self.device):
            for seed in range(number):
                dist.reduce_scatter_tensor(scattered[seed], mine[seed][: count // self.ranks * self.ranks])
        with dist._coalescing_manager(device=self.device):
            for seed in range(number):
                dist.all_reduce(mine[seed])
        self.job.synchronize()
        for seed in range(number):
            total = self.fold("SUM", every[seed])
            self.same(gathered[seed], joined(every[seed]), "all_gather_into_tensor, coalesced")
            own = scattered[seed].numel() * self.rank
            self.same(scattered[seed], total[own : own + scattered[seed].numel()], "reduce_scatter_tensor, coalesced")
            self.same(mine[seed], total, "all_reduce, coalesced")

    def graph(self) -> None:
        """Calls captured once must give correct results at every replay, with the current values."""
        count, ranks = 120_000, self.ranks
        summed, own = (torch.zeros(count, dtype=torch.bfloat16, device=self.device) for _ in range(2))
        result, sent, got = (torch.zeros_like(own) for _ in range(3))
        gathered = own.new_zeros(ranks * count)
        scattered = own.new_zeros(count // ranks)
        exchanged = torch.zeros_like(own)
        after, before = (self.rank + 1) % ranks, (self.rank - 1) % ranks

        def calls() -> None:
            summed.copy_(own)
            dist.all_reduce(summed)
            dist.all_gather_into_tensor(gathered, own)
            dist.reduce_scatter_tensor(scattered, own[: scattered.numel() * ranks])
            dist.all_to_all_single(exchanged[: scattered.numel() * ranks], own[: scattered.numel() * ranks])
            result.copy_(own)
            dist.broadcast(result, ranks - 1)
            sent.copy_(own)
            pair = [dist.P2POp(dist.isend, sent, after), dist.P2POp(dist.irecv, got, before)]
            for work in dist.batch_isend_irecv(pair):
                work.wait()

        replay = self.job.graph(calls)
        part = scattered.numel()
        for turn in range(REPLAYS):
            every = [self.whole(count, torch.bfloat16, other, seed=10 + turn) for other in self.everyone]
            own.copy_(every[self.rank])
            replay()
            self.job.synchronize()
            total, mine = self.fold("SUM", every), slice(part * self.rank, part * (self.rank + 1))
            self.same(summed, total, f"all_reduce, replay {turn}")
            self.same(gathered, joined(every), f"all_gather_into_tensor, replay {turn}")
            self.same(scattered, total[mine], f"reduce_scatter_tensor, replay {turn}")
            swapped = joined([value[mine] for value in every])
            self.same(exchanged[: part * ranks], swapped, f"all_to_all_single, replay {turn}")
            self.same(result, every[-1], f"broadcast, replay {turn}")
            self.same(got, every[before], f"batch_isend_irecv, replay {turn}")
