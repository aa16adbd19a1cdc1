"""Functions for rank processes, started by `narrowcast._bench.launch`. Results are JSON values."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import narrowcast
import numpy as np
from narrowcast._bench import host_ranks, samples
from narrowcast._bench.contenders import Contender
from narrowcast._bench.operations import prepare
from narrowcast._native import cuda_driver
from narrowcast._native.codecs import forced
from narrowcast.comm import _ranks_of as ranks_of
from narrowcast.types import value_type


def communicator(unique_id: str, rank: int, ranks: int, **options: Any) -> narrowcast.Communicator:
    return narrowcast.Communicator(bytes.fromhex(unique_id), rank, ranks, timeout_seconds=30, **options)


def operations(*, unique_id, rank, ranks, cases, emit):
    """Every case (operation, type, data, reduction, codec, count) against the oracle."""
    with communicator(unique_id, rank, ranks) as comm:
        for operation, dtype, data, op, codec, count in cases:
            kind = value_type(dtype)
            sample = samples.sample(data, dtype)
            call = prepare(operation, comm, sample, kind, count, codec=forced(codec), op=op, root=ranks - 1)
            call.poison()
            call.run()
            emit([operation, dtype, op, codec, count, call.count_wrong()])


def registered(*, unique_id, rank, ranks, libraries, codec, emit):
    """The error and the hash of every result with a codec that the ranks have registered: [operation, error, hash]."""
    for library in libraries:
        narrowcast.register_codec(library)
    own = np.random.default_rng(rank).standard_normal(3 * 4096 + 5).astype(np.float32)
    every = [np.random.default_rng(one).standard_normal(own.size).astype(np.float32) for one in range(ranks)]
    with communicator(unique_id, rank, ranks) as comm:
        reduced, gathered = comm.all_reduce(own.copy(), codec=codec), comm.all_gather(own, codec=codec)
        sizes = comm.counters()
        broadcast = comm.broadcast(own.copy(), codec=codec)
    for name, found, right in (
        ("all_reduce", reduced, np.sum(every, axis=0, dtype=np.float64)),
        ("all_gather", gathered, np.concatenate(every)),
        ("broadcast", broadcast, every[0]),
    ):
        emit([name, float(np.abs(found - right).max()), found.tobytes().hex()[:4096]])
    emit(["ratio", sizes.wire_bytes / sizes.raw_bytes, ""])


def counters(*, unique_id, rank, ranks, emit):
    values = samples.of_rank(samples.sample("weights", "bfloat16"), rank, 100_000)
    out = np.zeros(ranks * 100_000, np.uint16)
    totals = []
    with communicator(unique_id, rank, ranks) as comm:
        assert ranks_of(comm.handle) == (rank, ranks)
        for codec in ("raw", "window!"):
            before = comm.counters()
            comm.all_gather(values, out, codec=codec, dtype="bfloat16")
            after = comm.counters()
            totals.append([after.raw_bytes - before.raw_bytes, after.wire_bytes - before.wire_bytes])
        with narrowcast.group():
            comm.send(values, (rank + 1) % ranks, codec="raw", dtype="bfloat16")
            comm.recv(out[:100_000], (rank - 1) % ranks, codec="raw", dtype="bfloat16")
        counted = comm.counters()
        operations = {name: [one.calls, one.raw_bytes, one.ratio] for name, one in counted.operations.items()}
        assert counted.calls == 4
        assert counted.raw_bytes == sum(one.raw_bytes for one in counted.operations.values())
        emit([totals, operations])


def aborted_while_closing(*, unique_id, rank, ranks, emit):
    """close() waits for a message that is never sent, until a thread aborts. A later abort fails."""
    comm = communicator(unique_id, rank, ranks)
    begin = time.monotonic()
    if rank == 0:
        stream = narrowcast.Stream()
        comm.recv(np.zeros(10, np.float32), 1, stream=stream)
        threading.Timer(0.3, comm.abort).start()
    else:
        while comm.async_error() is None:
            time.sleep(0.01)
    comm.close()
    seconds = time.monotonic() - begin
    try:
        comm.abort()
        emit("no error")
    except ValueError as error:
        emit([str(error), seconds])


def leaves_with_an_error(*, unique_id, rank, ranks, emit):
    """Rank 0's body raises inside `with`: the others do not wait for it."""
    try:
        with communicator(unique_id, rank, ranks) as comm:
            if rank == 0:
                raise KeyError("a defect in the user's code")
            comm.all_reduce(np.zeros(10, np.float32))
            emit("no error")
    except (KeyError, narrowcast.NarrowcastError) as error:
        emit(type(error).__name__)


def exchanging(*, unique_id, rank, ranks, case, emit):
    """Creates a communicator by exchange over another one, with an error on one rank."""
    limits = {"timeout_seconds": 30, "create_timeout_seconds": 1 if case != "right" else 30}
    asked: list[int] = []
    # The rank with the error.
    own, backend, wrong = rank, "host", ""
    if rank == 1 and case == "rank":
        own = ranks + 5
    elif rank == 1 and case == "backend":
        backend = "pigeon"
    elif rank == 1:
        wrong = case

    with communicator(unique_id, rank, ranks) as over:

        def exchange(mine):
            asked.append(len(mine))
            everyone = np.zeros((ranks, len(mine)), np.uint8)
            over.all_gather(np.frombuffer(mine, np.uint8), everyone, codec="raw")
            if wrong == "raises":
                raise ConnectionResetError("the store has gone")
            if wrong == "stops":
                raise KeyboardInterrupt
            return {"order": np.roll(everyone, 1, 0), "short": everyone[:, 1:].copy(), "few": everyone[1:]}.get(
                wrong, everyone
            )

        try:
            with narrowcast.Communicator.by_exchange(exchange, own, ranks, backend=backend, **limits) as comm:
                values = np.full(1000, rank + 1.0, np.float32)
                comm.all_reduce(values)
                emit([float(values[-1]), ranks_of(comm.handle), asked])
        except (KeyboardInterrupt, ValueError, narrowcast.NarrowcastError) as error:
            emit([type(error).__name__, str(error), type(error.__cause__).__name__])


def late(*, unique_id, rank, ranks, limits, emit):
    """The last rank does not join."""
    if rank == ranks - 1:
        emit("absent")
        return
    try:
        narrowcast.Communicator(bytes.fromhex(unique_id), rank, ranks, **limits)
        emit("no error")
    except narrowcast.NarrowcastError as error:
        emit(type(error).__name__)


def benches_late(*, rank, **arguments):
    """A benchmark that rank 1 joins too late."""
    if rank == 1:
        time.sleep(600)
    host_ranks.bench(rank=rank, **arguments)


def benches_in_groups(*, rank, **arguments):
    """A benchmark on the fakes. Writes the number of calls of each group to a file for each contender."""
    import fake_gpu_jobs

    begin = Contender.begin
    seen: dict[str, list[int]] = {}

    def begin_counted(self, *own):
        if self.name not in seen:
            sizes, run, group = seen.setdefault(self.name, []), self.run, self.group

            def counted(*call):
                if opened:
                    opened[-1] += 1
                run(*call)

            @contextlib.contextmanager
            def recorded():
                opened.append(0)
                with group():
                    yield
                sizes.append(opened.pop())

            opened: list[int] = []
            self.run, self.group = counted, recorded
        begin(self, *own)

    Contender.begin = begin_counted
    fake_gpu_jobs.bench(rank=rank, **arguments)
    for name, sizes in seen.items():
        (Path(os.environ["TEST_FOLDER"]) / f"{name}-{rank}").write_text(" ".join(map(str, sizes)))


def fails(*, rank, emit):
    emit(rank)
    if rank == 1:
        raise narrowcast.CorruptError("the message of rank 1")


def dies(*, rank, emit):
    emit(rank)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
    raise narrowcast.RemoteError("a peer died")


def sleeps(*, rank, emit):
    emit(os.getpid())
    time.sleep(600)


def choices_on_gpus(*, unique_id, rank, ranks, device, variables, emit):
    """Emits how a communicator of GPUs explains and runs an all_reduce, or the error of its creation."""
    os.environ.update(variables[rank])
    count = 6144
    try:
        with (
            cuda_driver.on_device(device),
            communicator(unique_id, rank, ranks, backend="cuda", device=device) as comm,
        ):
            explanation = comm.explain("all_reduce", count, dtype="float32")
            values = cuda_driver.DeviceBuffer(4 * count).write(np.full(count, rank + 1, np.float32))
            stream = cuda_driver.Stream()
            comm.all_reduce(values, stream=stream.handle, dtype="float32")
            stream.synchronize()
            sums = np.unique(values.read().view(np.float32))
            emit(
                {
                    "path": explanation.path,
                    "codec": explanation.codec,
                    "chosen": explanation.predicted.chosen,
                    "sentence": explanation.sentence,
                    "sum": float(sums[0]) if sums.size == 1 else None,
                    "ratio": comm.counters().ratio,
                }
            )
    except narrowcast.NarrowcastError as error:
        emit({"error": str(error)})


def counts_on_gpus(*, unique_id, rank, ranks, device, counts, emit):
    """Sends counts[rank] compressible values to every rank. Emits whether all arrived, and the ratio of bytes."""
    sent = np.tile(np.arange(0x3C00, 0x3D00, dtype=np.uint16), counts[rank] // 256 + 1)[: counts[rank]]
    first = np.cumsum([0, *counts])
    with (
        cuda_driver.on_device(device),
        communicator(unique_id, rank, ranks, backend="cuda", device=device) as comm,
    ):
        values, out = (cuda_driver.DeviceBuffer(2 * count) for count in (counts[rank], int(first[-1])))
        values.write(sent)
        out.fill(0xEE)
        stream = cuda_driver.Stream()
        comm.all_to_all_v(
            values,
            out,
            [counts[rank]] * ranks,
            counts,
            send_offsets=[0] * ranks,
            stream=stream.handle,
            dtype="bfloat16",
        )
        stream.synchronize()
        found = out.read().view(np.uint16)
        arrived = all(
            np.array_equal(found[first[peer] : first[peer + 1]] & 0xFF, np.arange(counts[peer], dtype=np.uint16) & 0xFF)
            for peer in range(ranks)
        )
        emit({"arrived": arrived, "ratio": comm.counters().ratio})
