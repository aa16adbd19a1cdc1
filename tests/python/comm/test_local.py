"""LocalRanks: all ranks driven by one thread."""

from __future__ import annotations

import copy
import gc
import pickle

import narrowcast
import numpy as np
import pytest
from narrowcast import local
from narrowcast.errors import Status


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
