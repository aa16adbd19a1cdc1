"""The launcher of rank processes, and the calls that they time."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

import narrowcast
import numpy as np
import pytest
from narrowcast._bench import launch
from narrowcast._bench.contenders import run_ours
from narrowcast._bench.launch import run_ranks
from narrowcast._bench.operations import Call, names
from narrowcast.types import value_type

SECONDS = 60


def test_the_launcher_reports_the_rank_that_failed(rank_jobs):
    for job, message in (("fails", "rank 1: the message of rank 1"), ("dies", "rank 1 was killed by signal 9")):
        with pytest.raises(narrowcast.RemoteError, match=message):
            run_ranks(f"{rank_jobs}:{job}", [{"rank": 0}, {"rank": 1}], lambda _: None, timeout_seconds=SECONDS)


def test_the_launcher_reports_a_message_that_it_reads_late(rank_jobs, monkeypatch):
    def read_late(self, stream, read=launch._Lines._read):
        time.sleep(0.5)
        read(self, stream)

    monkeypatch.setattr(launch._Lines, "_read", read_late)
    with pytest.raises(narrowcast.RemoteError, match="rank 1: the message of rank 1"):
        run_ranks(f"{rank_jobs}:fails", [{"rank": 0}, {"rank": 1}], lambda _: None, timeout_seconds=SECONDS)


def test_the_launcher_kills_ranks_after_the_timeout(rank_jobs):
    pids: list[int] = []
    begin = time.monotonic()
    with pytest.raises(narrowcast.RemoteError, match="ranks 0, 1 did not end within 2 seconds"):
        run_ranks(f"{rank_jobs}:sleeps", [{"rank": 0}, {"rank": 1}], pids.extend, timeout_seconds=2)
    assert time.monotonic() - begin < 20
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("operation", names())
def test_benchmarks_make_the_same_calls_as_the_methods(operation):
    class Buffer:
        def __init__(self, array):
            self.array, self.pointer = array, array.ctypes.data

    call = Call(operation, value_type("float32"), 100, 0, 1, op="max")
    values = np.arange(call.send_elems, dtype=np.float32)
    found, expected = Buffer(np.zeros(call.recv_elems, np.float32)), np.zeros(call.recv_elems, np.float32)
    with narrowcast.Communicator(narrowcast.unique_id(), 0, 1) as comm:
        run_ours(comm, "window")(call, Buffer(values), found, SimpleNamespace(handle=None))
        call.run(comm, values, expected, codec="window")
    assert (found.array == expected).all()
    assert expected.any()
