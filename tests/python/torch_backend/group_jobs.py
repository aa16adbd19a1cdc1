"""Ranks that use the backend "narrowcast" as torch's libraries do: through groups, through C++, and when calls fail."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch_jobs import join


class Checks:
    """Collects the names of checks that fail, with what was found."""

    def __init__(self) -> None:
        self.wrong: list[list[str]] = []

    def __call__(self, name: str, found: Any, expected: Any) -> None:
        same = torch.equal(found, expected) if isinstance(expected, torch.Tensor) else found == expected
        if not same:
            self.wrong.append([name, str(found), str(expected)])

    def error(self, name: str, call: Any, kind: type[Exception], text: str = "") -> None:
        try:
            found: Any = call()
        except Exception as error:
            found = error
        if not isinstance(found, kind) or text not in str(found):
            self.wrong.append([name, f"{type(found).__name__}: {found}", f"{kind.__name__}: {text}"])


def groups_as_libraries_use_them(*, folder, rank, ranks, emit):
    """Names, subgroups, meshes, functional collectives and sharded modules; initialization after the end."""
    import narrowcast.torch_backend  # noqa: F401
    import torch.distributed._functional_collectives as functional
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor

    check = Checks()
    store = dist.FileStore(f"{folder}/kept", ranks)
    for _ in range(2):
        dist.init_process_group("narrowcast", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=30))
        total = torch.ones(1)
        dist.all_reduce(total)
        check("all_reduce", total.item(), ranks)
        dist.destroy_process_group()
    join(folder, rank, ranks)
    world = dist.group.WORLD
    names = [None] * ranks
    dist.all_gather_object(names, world.group_name)
    check("all ranks know the group by one name", len({*names}), 1)
    group = dist.new_group([*range(ranks)], group_desc="all of them")
    check("groups have names of their own", group.group_name != world.group_name, True)
    check("description", group.group_desc, "all of them")
    check("sequence number", group._get_sequence_number_for_group(), 0)
    dist.all_reduce(torch.ones(1), group=group)
    check("sequence number after a call", group._get_sequence_number_for_group(), 1)
    dist.destroy_process_group(group)
    check("devices", [one.type for one in world._device_types], ["cpu", "cuda"][: 1 + bool(torch.cuda.device_count())])

    check("functional", functional.all_reduce(torch.ones(2), "sum", world) + 0, torch.full((2,), float(ranks)))
    whole = functional.all_gather_tensor(torch.full((1,), float(rank)), 0, world) + 0
    check("functional all_gather", whole, torch.arange(float(ranks)))
    mesh = init_device_mesh("cpu", (1, ranks), mesh_dim_names=("a", "b"))
    check("mesh", mesh["b"].get_group().size(), ranks)
    values = torch.arange(2.0 * ranks)
    check("DTensor", distribute_tensor(values, mesh["b"], [Shard(0)]).full_tensor(), values)
    layer = torch.nn.Linear(4, 4, bias=False)
    fully_shard(layer)
    layer(torch.full((1, 4), float(rank + 1))).sum().backward()
    check("fully_shard", layer.weight.grad.full_tensor(), torch.full((4, 4), (ranks + 1) / 2))
    emit(check.wrong)
    dist.destroy_process_group()


def forms_of_calls(*, folder, rank, ranks, emit):
    """The overloads of torch's process groups, several tensors a rank, and arguments that are wrong."""
    join(folder, rank, ranks)
    check, group, op = Checks(), dist.group.WORLD, dist.ReduceOp
    total = float(sum(range(1, ranks + 1)))

    def own(*shape: int) -> torch.Tensor:
        return torch.full(shape, float(rank + 1))

    for name, arguments, options in (
        ("tensor", lambda x: (x,), {}),
        ("tensor and op", lambda x: (x, op.SUM), {}),
        ("op=", lambda x: (x,), {"op": op.SUM}),
        ("list and op", lambda x: ([x], op.SUM), {}),
        ("list", lambda x: ([x],), {"opts": None}),
    ):
        for shape in ((), (3,)):
            tensor = own(*shape)
            group.allreduce(*arguments(tensor), **options).wait()
            check(f"allreduce, {name}", tensor, torch.full(shape, total))
    group.broadcast(x := own(2), root=ranks - 1).wait()
    check("broadcast, root=", x, torch.full((2,), float(ranks)))
    outputs = [torch.zeros(1) for _ in range(ranks)]
    group.allgather(outputs, own(1)).wait()
    check("allgather, tensor", torch.cat(outputs), torch.arange(1.0, ranks + 1))
    group.reduce(x := own(1), 0, op.MAX).wait()
    check("reduce", x.item(), ranks if rank == 0 else rank + 1)
    outputs = [torch.zeros(1) for _ in range(ranks)]
    at_root = dist.distributed_c10d.GatherOptions()
    at_root.rootRank = 1
    group.gather([outputs] if rank == 1 else [], [own(1)], at_root).wait()
    check("gather", [one.item() for one in outputs], [r + 1.0 if rank == 1 else 0.0 for r in range(ranks)])
    group.reduce_scatter(x := torch.zeros(1), [own(1)] * ranks, op.SUM).wait()
    check("reduce_scatter", x.item(), total)
    group.barrier(timeout=timedelta(seconds=20)).wait()

    pair = [own(2), own(2)]
    group.allreduce(pair).wait()
    check("allreduce of two tensors", torch.cat(pair), torch.full((4,), 2 * total))
    same = own(1)
    dist.all_reduce_coalesced([same, same])
    check("one tensor twice in all_reduce_coalesced", same.item(), total)
    inputs = [torch.tensor([10 * rank + i]) for i in range(2)]
    outputs = [[torch.zeros(1, dtype=torch.int64) for _ in range(2 * ranks)] for _ in range(2)]
    group.allgather(outputs, inputs).wait()
    check(
        "allgather of two tensors",
        [torch.cat(one).tolist() for one in outputs],
        [[10 * r + i for r in range(ranks) for i in range(2)]] * 2,
    )
    lists = [[torch.zeros(2), torch.zeros(0), torch.zeros(())] for _ in range(ranks)]
    dist.all_gather_coalesced(lists, [own(2), own(0), own()])
    check(
        "all_gather_coalesced",
        [[one.sum().item() for one in outputs] for outputs in lists],
        [[2.0 * r, 0.0, r] for r in range(1, ranks + 1)],
    )
    number = torch.tensor([1 + 2j * (rank + 1)]).conj()
    group.allreduce([number]).wait()
    check("conjugated", number.resolve_conj(), torch.tensor([ranks - 2j * total]))
    frozen = torch.inference_mode()(lambda: own(2))()
    dist.all_reduce(frozen, async_op=True).wait()
    check("tensor of inference mode", frozen + 0, torch.full((2,), total))

    one, two = torch.zeros(1), torch.zeros(2)
    for name, call, text in (
        ("no tensor", lambda: group.allreduce([]), "non-empty tensor list"),
        ("types", lambda: group.allreduce([one, one.double()]), "invalid tensor type at index 0"),
        ("root", lambda: group.broadcast(one, root=ranks), f"invalid root rank {ranks}"),
        ("outputs", lambda: group.allgather([[one]], [one]), "invalid output tensor list at index 0"),
        ("gathered", lambda: dist.all_gather_into_tensor(torch.zeros(2 * ranks + 1), two), "does not hold"),
        (
            "type of the part",
            lambda: dist.reduce_scatter_tensor(one.double(), torch.zeros(ranks)),
            "invalid tensor type",
        ),
        ("split", lambda: dist.all_to_all_single(two, two, [1, 2], [1, 1]), "do not add up to the 2 rows"),
        ("rows", lambda: dist.all_to_all_single(torch.zeros(ranks + 1), torch.zeros(ranks + 1)), "cannot share"),
        ("sparse", lambda: dist.broadcast(one.to_sparse(), 0), "invalid tensor layout"),
        ("peer", lambda: group.send([one], ranks, 0), f"invalid destination rank {ranks}"),
        ("device", lambda: dist.all_reduce(torch.empty(1, device="meta")), "on meta"),
    ):
        check.error(name, call, RuntimeError, text)
    check.error("two forms", lambda: group.allreduce(one, op.SUM, op=op.SUM), TypeError)
    check.error("timeout of a group", lambda: group.set_timeout(timedelta(1)), NotImplementedError)
    dist.all_reduce(one)  # none of these has begun a call
    emit(check.wrong)
    dist.destroy_process_group()


def reductions(*, folder, rank, ranks, emit):
    """Reductions that the library does not have itself, sparse sums, and exchanges of nothing."""
    join(folder, rank, ranks)
    check, op = Checks(), dist.ReduceOp
    generators = [torch.Generator().manual_seed(r) for r in range(ranks)]
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool):
        everyone = [
            torch.randint(0, 2 if dtype == torch.bool else 100, (7,), generator=g).to(dtype) for g in generators
        ]
        for kind, of_two in ((op.BAND, torch.bitwise_and), (op.BOR, torch.bitwise_or), (op.BXOR, torch.bitwise_xor)):
            expected = everyone[0]
            for one in everyone[1:]:
                expected = of_two(expected, one)
            mine = everyone[rank].clone()
            dist.all_reduce(mine, kind)
            check(f"{kind} {dtype}", mine, expected)
            mine = everyone[rank].clone()
            dist.reduce(mine, 1, kind)
            check(f"reduce {kind} {dtype}", mine, expected if rank == 1 else everyone[rank])
            part = torch.zeros(7, dtype=dtype)
            dist.reduce_scatter_tensor(part, everyone[rank].repeat(ranks), kind)
            check(f"reduce_scatter {kind} {dtype}", part, expected)
    check.error("float BAND", lambda: dist.all_reduce(torch.ones(1), op.BAND), TypeError)
    scaled = torch.full((3,), float(rank + 1))
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5))
    check("PREMUL_SUM", scaled, torch.full((3,), sum(range(1, ranks + 1)) / 2))

    for dense in (1, 0):
        sparse = torch.sparse_coo_tensor(
            torch.tensor([[rank, rank, ranks]]), torch.ones((3, 2)[: 1 + dense]), (ranks + 2, 2)[: 1 + dense]
        )
        dist.all_reduce(sparse)
        expected = torch.cat([torch.full((ranks,), 2.0), torch.tensor([float(ranks), 0.0])])
        check("sparse", sparse.to_dense(), expected[:, None].expand(-1, 2) if dense else expected)
    empty = torch.sparse_coo_tensor(torch.zeros((1, 0), dtype=torch.int64), torch.zeros(0), (4,))
    dist.all_reduce(empty)
    check("sparse without values", empty.to_dense(), torch.zeros(4))
    check.error("sparse product", lambda: dist.all_reduce(sparse, op.PRODUCT), RuntimeError, "unsupported reduction")
    check.error(
        "other sparse sizes",
        lambda: dist.all_reduce(torch.eye(2 + rank).to_sparse()),
        RuntimeError,
        "sparse tensors differ",
    )

    # Rank 0 sends to the last one; nobody else sends anything.
    last = ranks - 1
    for dtype in (torch.float32, torch.int16, torch.complex64):
        source, target = torch.ones(2 * (rank == 0), dtype=dtype), torch.zeros(2 * (rank == last), dtype=dtype)
        sent, received = [0] * last + [len(source)], [len(target)] + [0] * last
        dist.all_to_all_single(target, source, received, sent)
        check(f"all_to_all_single {dtype}", target, torch.ones(2 * (rank == last), dtype=dtype))
        targets = [torch.zeros(one, dtype=dtype) for one in received]
        dist.all_to_all(targets, [torch.ones(one, dtype=dtype) for one in sent])
        check(f"all_to_all {dtype}", torch.cat(targets), torch.ones(2 * (rank == last), dtype=dtype))
    emit(check.wrong)
    dist.destroy_process_group()


def message_orders(*, folder, rank, ranks, emit):
    """Orders of posting in which a queue per peer, or one for all of them, would not end."""
    join(folder, rank, ranks)
    check, long = Checks(), 1 << 21
    others = [one for one in range(ranks) if one != rank]
    inputs = {one: torch.full((long,), rank + 10.0 * one) for one in others}
    outputs = {one: torch.zeros(long, 2)[:, 0] for one in others}  # not contiguous
    pending = [dist.isend(inputs[one], one, tag=one) for one in others]
    pending += [dist.irecv(outputs[one], one, tag=rank) for one in reversed(others)]
    for work in pending:
        work.wait()
    for one in others:
        check(f"from {one}", outputs[one], torch.full((long,), one + 10.0 * rank))
    if rank == 0:
        for tag in (1, 2, 3):
            dist.send(torch.tensor([tag], dtype=torch.bfloat16), 1, tag=tag)
    if rank == 1:
        for tag in (3, 1, 2):
            found = torch.zeros(1, dtype=torch.bfloat16)
            dist.recv(found, 0, tag=tag)
            check("tag", found.item(), tag)
    number = torch.tensor(0)
    if rank == 0:
        check("sources", {dist.recv(number) for _ in others}, {*others})
    else:
        dist.send(torch.tensor(rank), 0)
    dist.barrier()
    if rank == 0:
        dist.send(torch.zeros(3), 1)
    if rank == 1:
        check.error("size", lambda: dist.recv(torch.zeros(2), 0), RuntimeError, "rank 0 sent 12 bytes")
    dist.group.WORLD.monitored_barrier()
    if rank != ranks - 1:
        barrier = dist.group.WORLD.monitored_barrier
        text = f"Rank {ranks - 1} failed to pass" if rank == 0 else "waiting for rank 0"
        check.error("monitored barrier", lambda: barrier(timedelta(seconds=1)), RuntimeError, text)
    dist.barrier()
    emit(check.wrong)
    dist.destroy_process_group()


def failures(*, folder, rank, ranks, emit):
    """A call whose peer does not come fails for everyone who waits for it, in Python and in C++."""
    import torch.distributed._functional_collectives as functional

    gloo = join(folder, rank, ranks)
    check, seconds = Checks(), timedelta(seconds=4)
    groups = [dist.new_group([*range(ranks)], timeout=seconds) for _ in range(3)]
    parallel = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1), process_group=groups[2])
    for _ in range(2):
        parallel(torch.ones(1, 4)).sum().backward()
    dist.barrier()
    if rank == 0:
        late = "waited 4 s for rank 1"
        work = dist.all_reduce(torch.ones(3), async_op=True, group=groups[0])
        total = functional.all_reduce(torch.ones(2), "sum", groups[1])
        short = timedelta(milliseconds=50)
        check.error("a limited wait", lambda: work.wait(short), TimeoutError, "not completed after 0.05 s")
        check("it goes on", (work.is_completed(), work.exception()), (False, None))
        then = work.get_future().then(lambda future: future.value())
        check.error("backward", parallel(torch.ones(1, 4)).sum().backward, RuntimeError, late)
        check.error("future", work.get_future().wait, RuntimeError, late)
        check.error("then", then.wait, RuntimeError, late)
        check.error("work", work.wait, TimeoutError, " timeout ")
        check("state", (work.is_completed(), work.is_success()), (True, False))
        check("exception", type(work.exception()).__name__, "PeerTimeoutError")
        check.error("functional", total.numpy, Exception, late)
    dist.barrier(group=gloo)
    emit(check.wrong)


def callbacks(*, folder, rank, ranks, emit):
    """What waits for calls: callbacks of futures that make calls, as communication hooks do, and C++."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    join(folder, rank, ranks)
    check = Checks()

    def again(future: Any) -> torch.Tensor:
        second = dist.all_reduce(future.value()[0] + 1, async_op=True).get_future()
        return second.then(lambda one: one.value()[0] + 1).wait()

    works = [dist.all_reduce(torch.ones(2) * i, async_op=True) for i in range(4)]
    found = [work.get_future().then(again) for work in works[:1]]
    check("a call in a callback", found[0].wait(), torch.full((2,), ranks + 1.0))
    for i, work in enumerate(works):
        work.wait()
        check("behind it", work.result()[0], torch.full((2,), float(ranks * i)))
    torch.manual_seed(0)
    parallel = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    # Only C++ holds the work that it waits for.
    with parallel.join(divide_by_initial_world_size=False):
        for _ in range(3):
            parallel(torch.ones(2, 64)).sum().backward()
    parallel = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for _ in range(4):
        parallel(torch.randn(2, 64)).sum().backward()
    gradients = [torch.zeros(64, 64) for _ in range(ranks)]
    dist.all_gather(gradients, parallel.module.weight.grad)
    check("gradients are alike", gradients[0], gradients[-1])
    emit(check.wrong)
    dist.destroy_process_group()


def ending(*, folder, rank, ranks, emit):
    """Rank 0 ends with an error, while it waits for a message; the others wait for rank 0."""
    join(folder, rank, ranks, timeout=timedelta(seconds=60))
    dist.barrier()
    begin = time.monotonic()
    if rank == 0:
        dist.irecv(torch.zeros(1), 1)
        dist.all_reduce(torch.zeros(1), async_op=True)
        emit([])
        raise SystemExit(0)
    check = Checks()
    check.error("a message", lambda: dist.recv(torch.zeros(1), 0), RuntimeError, "rank 0 has ended")
    if rank != 1:
        check.error("a collective", lambda: dist.all_reduce(torch.zeros(1)), RuntimeError)
    check("they learn of it soon", time.monotonic() - begin < 20, True)
    emit(check.wrong)
