"""LocalRanks: all ranks driven by one thread."""

from __future__ import annotations

import copy
import gc
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import narrowcast
import numpy as np
import pytest
from narrowcast import local
from narrowcast.errors import Status
from narrowcast.plan import build


def test_one_thread_drives_all_ranks():
    values = [np.full(5000, 1.5 * rank, np.float32) for rank in range(3)]
    total, gathered = [np.zeros(5000, np.float32) for _ in range(3)], [np.zeros(15000, np.float32) for _ in range(3)]
    with narrowcast.LocalRanks(3, timeout_seconds=20) as comms:
        assert [comm.rank for comm in comms] == [0, 1, 2]
        assert len(comms) == comms[2].ranks == 3
        with narrowcast.group():
            for comm, own, out in zip(comms, values, total, strict=True):
                comm.all_reduce(own, out, codec="window")
        with narrowcast.group():
            for comm, own, out in zip(comms, values, gathered, strict=True):
                comm.all_gather(own, out)
    assert all((out == 4.5).all() for out in total)
    assert all((out == np.concatenate(values)).all() for out in gathered)


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_belongs_to_a_process_is_not_pickled_or_copied(copied):
    with narrowcast.LocalRanks(1) as comms, narrowcast.Stream() as stream:
        for owner in (comms, comms[0], stream):
            with pytest.raises(TypeError, match=f"a {type(owner).__name__} cannot be pickled or copied"):
                copied(owner)


@pytest.mark.parametrize(
    ("call", "results"),
    [
        (lambda c, values, out, parts: c.all_reduce(values), ("values", "values")),
        (lambda c, values, out, parts: c.all_reduce(values, out), ("out", "out")),
        (lambda c, values, out, parts: c.reduce(values), ("values", None)),
        (lambda c, values, out, parts: c.reduce(values, out, root=1), (None, "out")),
        (lambda c, values, out, parts: c.broadcast(values), ("values", "values")),
        (lambda c, values, out, parts: c.broadcast(values, out), ("out", "out")),
        (lambda c, values, out, parts: c.all_gather(values, parts), ("parts", "parts")),
        (lambda c, values, out, parts: c.gather(values, parts), ("parts", None)),
        (lambda c, values, out, parts: c.scatter(parts, out), ("out", "out")),
        (lambda c, values, out, parts: c.reduce_scatter(parts, out), ("out", "out")),
        (lambda c, values, out, parts: c.all_to_all(values, out), ("out", "out")),
        (lambda c, values, out, parts: c.all_to_all_v(values, out, [2, 2], [2, 2]), ("out", "out")),
        (lambda c, values, out, parts: c.recv(out, 1) if c.rank == 0 else c.send(values, 0), ("out", None)),
    ],
)
def test_a_call_returns_the_array_with_its_result(call, results):
    with narrowcast.LocalRanks(2) as comms:
        arrays = [
            {"values": np.ones(4, np.float32), "out": np.zeros(4, np.float32), "parts": np.ones((2, 4), np.float32)}
            for _ in comms
        ]
        with narrowcast.group():
            found = [call(comm, **own) for comm, own in zip(comms, arrays, strict=True)]
    for one, own, name in zip(found, arrays, results, strict=True):
        assert one is (own[name] if name else None)


def in_group(calls):
    with narrowcast.group():
        for call in calls:
            call()


def all_reduce(comms, values):
    """Sums on all ranks."""
    in_group(partial(comm.all_reduce, own) for comm, own in zip(comms, values, strict=True))
    return [float(own[0]) for own in values]


# Longer than the tests may take: what waits for a rank whose call is not made fails.
PATIENT = 500


def test_a_bad_argument_of_one_rank_is_an_error_at_once_and_the_ranks_go_on():
    values = [np.full(4, rank + 1, np.float32) for rank in range(3)]
    with narrowcast.LocalRanks(3, timeout_seconds=PATIENT) as comms:
        outs = [np.zeros(12 - (comm.rank == 1), np.float32) for comm in comms]
        with pytest.raises(ValueError, match="out holds 11 values, not 12"):
            in_group(partial(comm.all_gather, *one) for comm, *one in zip(comms, values, outs, strict=True))
        roots = [0, 9, 0]
        with pytest.raises(narrowcast.InvalidArgumentError, match="root is 9"):
            in_group(
                partial(comm.broadcast, own, root=root) for comm, own, root in zip(comms, values, roots, strict=True)
            )
        assert all_reduce(comms, values) == [6.0] * 3


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda comms, x: comms[0].all_reduce(x), "ncast_all_reduce: the all_reduce of rank 0 would wait for rank 1"),
        (lambda comms, x: comms[2].broadcast(x, root=2), "the broadcast of rank 2 would wait for rank 0"),
        (lambda comms, x: comms[1].all_to_all_v(x, None, [1, 1, 1], [1, 1, 1]), "the all_to_all_v of rank 1 would"),
        (lambda comms, x: comms[0].send(x, 2), "the send of rank 0 would wait for rank 2"),
        (lambda comms, x: comms[0].recv(x, 1), "the recv of rank 0 would wait for rank 1"),
        (lambda comms, x: comms[0].split(0), "waits until all 3 ranks have called it"),
        (lambda comms, x: comms[0].load_plan(build("ring", "all_reduce", 3), "float32"), "waits until all 3 ranks"),
        (lambda comms, x: comms[0].decline_plan("no file"), "waits until all 3 ranks"),
    ],
)
def test_a_call_that_waits_for_other_ranks_of_the_thread_is_an_error_at_once(call, name):
    with narrowcast.LocalRanks(3, timeout_seconds=PATIENT) as comms:
        with pytest.raises(narrowcast.InvalidArgumentError, match=name):
            call(comms, np.ones(4, np.float32))
        assert all_reduce(comms, [np.ones(4, np.float32) for _ in comms]) == [3.0] * 3


@pytest.mark.parametrize(
    "calls",
    [
        lambda comms: [comms[0].all_reduce, comms[1].all_reduce],
        lambda comms: [comm.all_reduce for comm in (*comms, comms[0], comms[1])],
        lambda comms: [*(comm.all_reduce for comm in comms), partial(comms[0].send, peer=2)],
    ],
)
def test_a_group_that_lacks_a_call_is_an_error_at_once(calls):
    values = np.ones(4, np.float32)
    with narrowcast.LocalRanks(3, timeout_seconds=PATIENT) as comms:
        with pytest.raises(narrowcast.InvalidArgumentError, match="of rank 0 would wait for rank 2"):
            in_group(partial(call, values) for call in calls(comms))
        assert (values == 1).all()
        assert all_reduce(comms, [np.ones(4, np.float32) for _ in comms]) == [3.0] * 3


def test_calls_on_streams_are_calls_that_others_can_wait_for():
    values = [np.ones(4, np.float32) for _ in range(3)]
    with (
        narrowcast.LocalRanks(3, timeout_seconds=PATIENT) as comms,
        narrowcast.Stream() as first,
        narrowcast.Stream() as second,
    ):
        comms[0].all_reduce(values[0], stream=first)
        with pytest.raises(narrowcast.InvalidArgumentError, match="of rank 1 would wait for rank 2"):
            comms[1].all_reduce(values[1])
        comms[2].all_reduce(values[2], stream=second)
        comms[1].all_reduce(values[1])
        comms[1].send(values[1], 0, stream=first)
        comms[0].recv(values[0], 1, stream=second)
    assert [float(own[0]) for own in values] == [3.0] * 3


def test_other_threads_can_drive_the_ranks():
    values = [np.ones(4, np.float32) for _ in range(3)]
    with narrowcast.LocalRanks(3, timeout_seconds=PATIENT) as comms, ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda comm, own: comm.all_reduce(own), comms, values))
        parts = list(threads.map(lambda comm: comm.split(comm.rank % 2), comms))
        assert [part.ranks for part in parts] == [2, 1, 2]
        for part in parts:
            part.close()
        assert all_reduce(comms, values) == [9.0] * 3


def test_calls_before_an_exception_run_if_other_threads_wait_for_them():
    identity, local = narrowcast.unique_id(), [np.ones(4, np.float32) for _ in range(2)]

    def work(rank):
        own = np.ones(4, np.float32)
        with narrowcast.Communicator(identity, rank, 2, timeout_seconds=20) as comm:
            if rank == 1:
                return float(comm.all_reduce(own)[0])
            with narrowcast.LocalRanks(2, timeout_seconds=PATIENT) as comms, pytest.raises(ZeroDivisionError):
                in_group([partial(comms[0].all_reduce, local[0]), partial(comm.all_reduce, own), lambda: 1 // 0])
            return float(own[0])

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(work, range(2))) == [2.0, 2.0]
    assert (local[0] == 1).all()


def test_local_ranks_are_closed_together():
    comms = narrowcast.LocalRanks(2)
    with pytest.raises(ValueError, match=r"closed together, by LocalRanks\.close"):
        comms[0].close()
    comms.close()
    comms.close()
    with pytest.raises(ValueError, match="the communicator is closed"):
        comms[1].counters()


def test_an_error_in_the_body_ends_waiting_calls():
    values = np.zeros(4, np.float32)
    stream = narrowcast.Stream()

    def waits_and_fails():
        with narrowcast.LocalRanks(2) as comms:
            comms[0].all_reduce(values, stream=stream)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        waits_and_fails()
    with pytest.raises(narrowcast.AbortedError):
        stream.synchronize()


def test_the_error_of_the_body_is_raised_if_closing_fails_too(monkeypatch):
    destroy = local._destroy

    def fails(handles):
        destroy(handles)
        return int(Status.INTERNAL)

    monkeypatch.setattr(local, "_destroy", fails)
    with pytest.raises(ZeroDivisionError), narrowcast.LocalRanks(2):
        raise ZeroDivisionError


def test_open_communicators_are_freed(monkeypatch):
    destroy, statuses = local._destroy, []
    monkeypatch.setattr(local, "_destroy", lambda handles: statuses.append(destroy(handles)))
    comms = narrowcast.LocalRanks(2)
    del comms
    gc.collect()
    assert statuses == [Status.OK]


def test_invalid_arguments_are_rejected():
    with pytest.raises(ValueError, match="devices has 1 numbers for 2 ranks"):
        narrowcast.LocalRanks(2, devices=[0])
    with pytest.raises(narrowcast.InvalidArgumentError, match="ranks is 0"):
        narrowcast.LocalRanks(0)
    with pytest.raises(ValueError, match="'gpu' is not a backend"):
        narrowcast.LocalRanks(2, backend="gpu")
