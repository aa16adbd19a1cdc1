"""Communicators between processes: exact results, and errors within bounded time."""

from __future__ import annotations

import time
import weakref
from pathlib import Path

import narrowcast
import numpy as np
import pytest
from codec_names import EXACT
from narrowcast._bench.launch import run_ranks
from narrowcast._bench.operations import describe, names
from narrowcast.types import VALUE_TYPES

SECONDS = 60


@pytest.fixture
def run(rank_jobs):
    """Runs a function of rank_jobs.py on every rank of a new communicator. Returns the results of all ranks."""

    def run(job: str, ranks: int, **options):
        identity = narrowcast.unique_id().hex()
        arguments = [{"unique_id": identity, "rank": rank, "ranks": ranks, **options} for rank in range(ranks)]
        results: list[list] = []
        run_ranks(f"{rank_jobs}:{job}", arguments, results.append, timeout_seconds=SECONDS)
        return results

    return run


def test_every_operation_of_a_single_rank_has_the_result_of_numpy(run):
    """The conformance tests have more ranks."""
    cases = [
        (operation, kind.name, data, op, codec, count)
        for operation in names()
        if operation != "sendrecv"  # there are no peers to exchange messages with
        for kind in VALUE_TYPES
        for data, count in (("normal", 3001), ("random", 77))
        for op in (("sum", "prod", "min", "max", "avg") if describe(operation).reduces else ("sum",))
        for codec in (*EXACT, "auto")
    ]
    results = run("operations", 1, cases=cases)
    assert len(results) == len(cases)
    assert [row for rows in results for row in rows if row[-1]] == []


def test_rooted_calls_work_in_place_and_leave_other_ranks_unchanged():
    """Ranks other than the root pass no second buffer."""
    every = [np.zeros(150, np.float32) for _ in range(3)]
    mine = [whole[50 * rank :][:50] for rank, whole in enumerate(every)]
    sums = [np.full(50, rank + 1.0) for rank in range(3)]
    for rank, own in enumerate(mine):
        own[:] = rank + 1
    with narrowcast.LocalRanks(3) as comms:
        with narrowcast.group():
            for rank, comm in enumerate(comms):
                comm.gather(mine[rank], every[rank] if rank == 1 else None, root=1)
                comm.reduce(sums[rank], root=1)
        assert every[1].tolist() == np.repeat([1.0, 2.0, 3.0], 50).tolist()
        assert [whole.sum() for whole in (every[0], every[2])] == [50, 150]
        assert [np.unique(one).tolist() for one in sums] == [[1.0], [6.0], [3.0]]
        every[1] *= 2
        with narrowcast.group():
            for rank, comm in enumerate(comms):
                comm.scatter(every[rank] if rank == 1 else None, mine[rank], root=1)
    assert [np.unique(own).tolist() for own in mine] == [[2.0], [4.0], [6.0]]


def test_counters_distinguish_raw_and_wire_bytes(run):
    (results,) = run("counters", 2)
    for ((raw, raw_wire), (window, window_wire)), operations in results:
        assert raw == window == 200_000
        assert raw <= raw_wire < 1.01 * raw
        assert 0.65 * raw < window_wire < 0.75 * raw
        assert set(operations) == {"all_gather", "send", "recv"}
        assert operations["all_gather"][:2] == [2, 400_000]
        assert operations["send"] == [1, 200_000, 1]
        assert operations["recv"] == [1, 0, None]


def test_an_abort_ends_the_calls_that_close_waits_for(run):
    (results,) = run("aborted_while_closing", 2)
    for message, seconds in results:
        assert message == "the communicator is closed"
        assert 0.2 < seconds < 5


def test_a_stream_keeps_the_buffers_of_a_group_until_it_has_run_them():
    with narrowcast.Communicator(narrowcast.unique_id(), 0, 1) as comm, narrowcast.Stream() as stream:
        values, out = np.ones(100_000, np.float32), np.zeros(100_000, np.float32)
        alive = weakref.ref(values)
        with narrowcast.group():
            comm.send(values, 0, stream=stream)
            comm.recv(out, 0, stream=stream)
            del values
            stream.synchronize()  # no call has been launched
            assert alive() is not None
        stream.synchronize()
        assert alive() is None
        assert out.tolist() == [1.0] * 100_000


def test_an_error_in_a_with_block_stops_the_other_ranks(run):
    (results,) = run("leaves_with_an_error", 2)
    assert results[0] == "KeyError"
    assert results[1] in ("AbortedError", "RemoteError")


@pytest.mark.parametrize(
    "limits",
    [{"timeout_seconds": 1}, {"timeout_seconds": 0, "create_timeout_seconds": 1}],
    ids=["of all", "of its own"],
)
def test_a_missing_rank_causes_a_timeout(run, limits):
    (results,) = run("late", 2, limits=limits)
    assert results == ["PeerTimeoutError", "absent"]


def test_ranks_that_can_exchange_bytes_create_a_communicator(run):
    (results,) = run("exchanging", 3, case="right")
    assert [found[:2] for found in results] == [[6.0, [rank, 3]] for rank in range(3)]
    # Called once, with the same number of bytes on every rank.
    assert len({tuple(asked) for *_, asked in results}) == 1
    assert [len(asked) for *_, asked in results] == [1] * 3


@pytest.mark.parametrize(
    ("case", "name", "words", "cause", "is_told"),
    [
        (
            "raises",
            "RemoteError",
            "ConnectionResetError: the store has gone",
            "ConnectionResetError",
            False,
        ),
        ("stops", "KeyboardInterrupt", "", "NoneType", False),
        ("few", "RemoteError", "returned 2 parts for 3 ranks", "ValueError", False),
        ("short", "RemoteError", "bytes for rank 0, not", "ValueError", False),
        ("order", "RemoteError", "must be in rank order", "ValueError", False),
        ("rank", "InvalidArgumentError", "rank", "NoneType", True),
        ("backend", "ValueError", "'pigeon' is not a backend", "NoneType", True),
    ],
)
def test_errors_of_an_exchange_are_reported(run, case, name, words, cause, is_told):
    (results,) = run("exchanging", 3, case=case)
    assert results[1][0] == name
    assert words in results[1][1]
    assert results[1][2] == cause
    for found in (results[0], results[2]):
        assert found[0] == ("RemoteError" if is_told else "PeerTimeoutError")
        assert ("rank 1 cannot create the communicator" in found[1]) == is_told


def test_a_single_rank_works_and_may_close_twice():
    values = np.arange(5, dtype=np.float32)
    comm = narrowcast.Communicator(narrowcast.unique_id(), 0, 1)
    comm.all_reduce(values)
    assert values.tolist() == [0, 1, 2, 3, 4]
    comm.close()
    comm.close()
    with (
        narrowcast.Communicator(narrowcast.unique_id(), 0, 1) as again,
        pytest.raises(TypeError, match=r"stream is of type int, not a narrowcast\.Stream"),
    ):
        again.all_reduce(values, stream=0)
    stream = narrowcast.Stream()
    stream.close()
    stream.close()
    with pytest.raises(ValueError, match="the stream is closed"):
        stream.synchronize()


def test_communicators_of_the_host_backend_leave_no_hub_threads():
    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    begin = threads()
    for _ in range(20):
        narrowcast.Communicator(narrowcast.unique_id(), 0, 1).close()
    deadline = time.monotonic() + SECONDS
    while threads() > begin and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() <= begin
