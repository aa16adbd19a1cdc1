"""Communicators that are created in the background."""

from __future__ import annotations

import gc
import time
import weakref

import narrowcast
import numpy as np
import pytest


def start(unique_id, rank, ranks=2, **options):
    return narrowcast.Communicator.in_background(unique_id, rank, ranks, **options)


def test_creation_goes_on_while_this_thread_does_other_work():
    unique_id = narrowcast.unique_id()
    first = start(unique_id, 0, timeout_seconds=20)
    assert not first.done()
    with pytest.raises(TimeoutError, match=r"the communicator does not exist yet, after 0\.05 s"):
        first.result(0.05)
    second = start(unique_id, 1, timeout_seconds=20)  # the same thread
    with first.result() as one, second.result() as other, narrowcast.group():
        assert first.done()
        assert first.result() is one
        values = [np.ones(4, np.float32) for _ in range(2)]
        one.all_reduce(values[0])
        other.all_reduce(values[1])
    assert values[0].tolist() == [2] * 4


def test_errors_are_raised_by_the_result():
    pending = start(narrowcast.unique_id(), 0, create_timeout_seconds=0.2)
    for _ in range(2):
        with pytest.raises(narrowcast.PeerTimeoutError, match="not joined: 1"):
            pending.result()
    with pytest.raises(ValueError, match="unique_id has 3 bytes"):
        start(b"abc", 0).result()
    with pytest.raises(TypeError, match="'colour' is not an option"):
        start(narrowcast.unique_id(), 0, colour=3).result()


def test_cancelling_ends_the_creation_on_every_rank():
    unique_id = narrowcast.unique_id()
    ranks = [start(unique_id, rank, 3, timeout_seconds=0) for rank in range(2)]
    time.sleep(0.2)
    begin = time.monotonic()
    ranks[0].cancel()
    for pending in ranks:
        with pytest.raises(narrowcast.AbortedError):
            pending.result()
    assert time.monotonic() - begin < 20


def test_cancelling_afterwards_has_no_effect():
    pending = start(narrowcast.unique_id(), 0, 1)
    with pending.result() as comm:
        pending.cancel()
        comm.all_reduce(np.ones(4, np.float32))


def test_a_communicator_that_nobody_asks_for_is_closed():
    pending = start(narrowcast.unique_id(), 0, 1)
    comm = weakref.ref(pending.result())
    del pending
    gc.collect()
    assert comm() is None


def test_on_gpus_the_device_is_required():
    with pytest.raises(ValueError, match="in_background needs device="):
        start(narrowcast.unique_id(), 0, backend="cuda")
