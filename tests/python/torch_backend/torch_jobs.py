"""Ranks that use the backend "narrowcast" of torch.distributed, and compare its results with gloo's."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
)
MOVED = (*DTYPES, torch.bool, torch.int16, torch.complex64)
SHAPES = ((), (1,), (7,), (3, 5), (2, 0), (40, 50))


def join(folder: str, rank: int, ranks: int, **options: Any) -> Any:
    """Initializes the backend. Returns a group of gloo with the same ranks."""
    import narrowcast.torch_backend  # noqa: F401

    options = {"timeout": timedelta(seconds=30), **options}
    dist.init_process_group("narrowcast", init_method=f"file://{folder}/store", rank=rank, world_size=ranks, **options)
    return dist.new_group(backend="gloo")


def values(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    # Small whole numbers: exact in every order of summation.
    made = torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(seed))
    return made.bool() if dtype == torch.bool else made.to(dtype)


# Types that gloo lacks, and the type in which it moves the same values.
STAND_INS = {torch.bool: torch.uint8, torch.int16: torch.int32, torch.complex64: torch.float32}


def collectives(*, folder, rank, ranks, emit):
    """Every collective against gloo."""
    gloo = join(folder, rank, ranks)
    wrong = []

    def compare(name: str, dtype: torch.dtype, shape: tuple[int, ...], run: Any) -> None:
        stand_in = STAND_INS.get(dtype, dtype)
        found, expected = run(None, dtype), run(gloo, stand_in)
        for one, other in zip(found, expected, strict=True):
            as_other = (torch.real(one) if one.is_complex() else one).to(stand_in)
            if one.dtype != dtype or one.shape != other.shape or not torch.equal(as_other, other):
                wrong.append([name, str(dtype), list(shape), str(one), str(other)])

    for dtype in MOVED:
        for shape in SHAPES:

            def fresh(kind: torch.dtype, count: int, first: int, dtype=dtype, shape=shape) -> list[torch.Tensor]:
                parts = [values(torch.int64, shape, first + i) for i in range(count)]
                return [(one.bool() if dtype == torch.bool else one).to(kind) for one in parts]

            def broadcast(group, kind, fresh=fresh):
                (tensor,) = fresh(kind, 1, rank)
                dist.broadcast(tensor, 1, group=group)
                return [tensor]

            def all_gather(group, kind, fresh=fresh):
                out = fresh(kind, ranks, 100)
                dist.all_gather(out, *fresh(kind, 1, rank), group=group)
                return out

            def gather(group, kind, fresh=fresh):
                out = fresh(kind, ranks, 100) if rank == 1 else None
                dist.gather(*fresh(kind, 1, rank), out, dst=1, group=group)
                return out or []

            def scatter(group, kind, fresh=fresh):
                (out,) = fresh(kind, 1, 100)
                dist.scatter(out, fresh(kind, ranks, 7) if rank == 1 else None, src=1, group=group)
                return [out]

            for call in (broadcast, all_gather, gather, scatter):
                compare(call.__name__, dtype, shape, call)
    for dtype in DTYPES:
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):

            def all_reduce(group, kind, op=op):
                tensor = values(kind, (6, 5), rank)
                dist.all_reduce(tensor, op, group=group)
                return [tensor]

            def strided(group, kind, op=op):
                tensor = values(kind, (6, 5), rank).t()
                dist.all_reduce(tensor, op, group=group)
                return [tensor]

            def reduce(group, kind, op=op):
                tensor = values(kind, (6, 5), rank)
                dist.reduce(tensor, 1, op, group=group)
                return [tensor] if rank == 1 else []

            for call in (all_reduce, strided, reduce):
                compare(f"{call.__name__} {op}", dtype, (6, 5), call)
    emit(wrong)
    dist.destroy_process_group()


def beyond_gloo(*, folder, rank, ranks, emit):
    """Calls that gloo lacks, against what they should be."""
    join(folder, rank, ranks)
    wrong = []

    def check(name: str, found: torch.Tensor, expected: torch.Tensor) -> None:
        if found.dtype != expected.dtype or not torch.equal(found, expected):
            wrong.append([name, str(found), str(expected)])

    everyone = [torch.arange(ranks * 6, dtype=torch.float32).view(ranks * 2, 3) + 100 * r for r in range(ranks)]
    mine, total = everyone[rank], sum(everyone)
    whole = torch.zeros(ranks * mine.size(0), 3)
    dist.all_gather_into_tensor(whole, mine)
    check("all_gather_into_tensor", whole, torch.cat(everyone))
    part = torch.zeros(2, 3)
    dist.reduce_scatter_tensor(part, mine)
    check("reduce_scatter_tensor", part, total[2 * rank : 2 * rank + 2])
    dist.reduce_scatter(part, list(mine.split(2)))
    check("reduce_scatter", part, total[2 * rank : 2 * rank + 2])
    check("the input is unchanged", mine, torch.arange(ranks * 6, dtype=torch.float32).view(ranks * 2, 3) + 100 * rank)
    exchanged = torch.zeros(ranks * 2, 3)
    dist.all_to_all_single(exchanged, mine)
    check("all_to_all_single", exchanged, torch.cat([one.split(2)[rank] for one in everyone]))
    # Rank r sends i + 1 rows to rank i.
    rows = [i + 1 for i in range(ranks)]
    source = torch.full((sum(rows), 2), rank, dtype=torch.int64)
    received = torch.zeros((ranks * (rank + 1), 2), dtype=torch.int64)
    dist.all_to_all_single(received, source, [rank + 1] * ranks, rows)
    check("uneven all_to_all_single", received[:, 0], torch.arange(ranks).repeat_interleave(rank + 1))
    outputs = [torch.zeros(rank + 1, dtype=torch.bool) for _ in range(ranks)]
    dist.all_to_all(outputs, [torch.ones(i + 1, dtype=torch.bool) for i in range(ranks)])
    check("all_to_all", torch.cat(outputs), torch.ones(ranks * (rank + 1), dtype=torch.bool))
    uneven = [torch.zeros(i + 2) for i in range(ranks)]
    dist.all_gather(uneven, torch.full((rank + 2,), float(rank)))
    check("uneven all_gather", torch.cat(uneven), torch.cat([torch.full((i + 2,), float(i)) for i in range(ranks)]))
    average = torch.full((4,), float(rank))
    dist.all_reduce(average, dist.ReduceOp.AVG)
    check("average", average, torch.full((4,), (ranks - 1) / 2))
    for op, expected in ((dist.ReduceOp.SUM, True), (dist.ReduceOp.PRODUCT, False), (dist.ReduceOp.MAX, True)):
        truth = torch.tensor([rank == 0, False])
        dist.all_reduce(truth, op)
        check(f"bool {op}", truth, torch.tensor([expected, False]))
    short = torch.tensor([30_000, -1], dtype=torch.int16)
    dist.all_reduce(short)
    wide = torch.tensor([30_000 * ranks, -ranks], dtype=torch.int32)
    check("int16", short, wide.to(torch.int16))
    number = torch.tensor([1 + 2j * rank])
    dist.all_reduce(number)
    check("complex", number, torch.tensor([ranks + 1j * ranks * (ranks - 1)]))
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    check("the work is done", torch.tensor(work.is_completed()), torch.tensor(True))
    check("the future", torch.cat(work.get_future().wait()), torch.full((3,), float(ranks)))
    gathered = [None] * ranks
    dist.all_gather_object(gathered, {"rank": rank})
    check("objects", torch.tensor([one["rank"] for one in gathered]), torch.arange(ranks))
    emit(wrong)
    dist.destroy_process_group()


def messages(*, folder, rank, ranks, emit):
    """Sends and receives: in turn, at the same time, larger than the staging memory, and in batches."""
    join(folder, rank, ranks)
    right, left = (rank + 1) % ranks, (rank - 1) % ranks
    results = []
    for count in (1, 1 << 20):
        out = torch.zeros(count)
        pending = [dist.isend(torch.full((count,), float(rank)), right), dist.irecv(out, left)]
        for work in pending:
            work.wait()
        results.append(bool((out == left).all()))
        out = torch.zeros(count)
        for work in dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, torch.full((count,), float(rank)), left),
                dist.P2POp(dist.irecv, out, right),
            ]
        ):
            work.wait()
        results.append(bool((out == right).all()))
    if rank == 0:
        dist.send(torch.arange(5), 1)
        dist.send(torch.arange(5, 10), 1, tag=7)
    if rank == 1:
        first, second = torch.zeros(5, dtype=torch.int64), torch.zeros(5, dtype=torch.int64)
        dist.recv(first, 0)
        dist.recv(second, 0, tag=7)
        results.append(torch.cat([first, second]).tolist() == list(range(10)))
    dist.barrier()
    emit(results)
    dist.destroy_process_group()


def groups(*, folder, rank, ranks, emit):
    """Groups of some of the ranks."""
    join(folder, rank, ranks)
    results = []
    for members in ([0, 2], [1], list(range(ranks))):
        group = dist.new_group(members)
        if rank in members:
            value = torch.tensor([rank + 1])
            dist.all_reduce(value, group=group)
            results.append([value.item(), dist.get_backend(group), dist.get_rank(group), dist.get_world_size(group)])
    emit(results)
    dist.destroy_process_group()


def training(*, folder, rank, ranks, emit):
    """DistributedDataParallel, whose C++ code calls the backend."""
    join(folder, rank, ranks)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 1))
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    generator = torch.Generator().manual_seed(1)
    whole = torch.randn(ranks * 8, 20, generator=generator)
    parallel(whole[8 * rank : 8 * rank + 8]).pow(2).mean().backward()
    found = [one.grad.clone() for one in model.parameters()]
    model.zero_grad()
    model(whole).pow(2).mean().backward()
    near = [bool(torch.allclose(a, b.grad, atol=1e-6)) for a, b in zip(found, model.parameters(), strict=True)]
    emit(near)
    dist.destroy_process_group()


def failing(*, folder, rank, ranks, emit):
    """Errors: what the backend lacks, and a rank that does not call."""
    gloo = join(folder, rank, ranks)
    group = dist.new_group([*range(ranks)], timeout=timedelta(seconds=1))
    names = []
    for call in (
        lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.BXOR),
        lambda: dist.group.WORLD.set_timeout(timedelta(seconds=3)),
        lambda: dist.all_reduce(torch.tensor([True]), dist.ReduceOp.AVG),
    ):
        try:
            call()
            names.append("nothing")
        except Exception as error:
            names.append(type(error).__name__)
    if rank != ranks - 1:
        begin = time.monotonic()
        try:
            dist.all_reduce(torch.ones(3), group=group)
            names.append("nothing")
        except Exception as error:
            names += [type(error).__name__, time.monotonic() - begin < 10]
    dist.barrier(group=gloo)
    emit(names)
    os._exit(0)
