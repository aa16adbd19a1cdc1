"""Communicator.split."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import narrowcast
import numpy as np
import pytest
from narrowcast.comm import _ranks_of as ranks_of


def on_ranks(ranks, body, **options):
    """Runs body(comm) in a thread for every rank. Returns the results."""
    unique_id = narrowcast.unique_id()

    def work(rank):
        with narrowcast.Communicator(unique_id, rank, ranks, timeout_seconds=20, **options) as comm:
            return body(comm)

    with ThreadPoolExecutor(ranks) as threads:
        return list(threads.map(work, range(ranks)))


def total(comm):
    values = np.full(1000, 2.0**comm.rank, np.float32)
    return float(comm.all_reduce(values)[-1])


def test_ranks_of_a_color_form_a_communicator():
    def body(comm):
        with comm.split(comm.rank % 2) as part:
            assert part.ranks == (3 if comm.rank % 2 == 0 else 2)
            assert ranks_of(part.handle) == (part.rank, part.ranks)
            everyone = part.all_gather(np.array([comm.rank]), np.zeros(part.ranks, np.int64)).tolist()
        return part.rank, everyone, total(comm)

    assert on_ranks(5, body) == [
        (0, [0, 2, 4], 31),
        (0, [1, 3], 31),
        (1, [0, 2, 4], 31),
        (1, [1, 3], 31),
        (2, [0, 2, 4], 31),
    ]


def test_the_key_orders_ranks_and_equal_keys_keep_the_order():
    def body(comm):
        with comm.split(0, key=[1, 0, 1, -5][comm.rank]) as part:
            return part.rank

    assert on_ranks(4, body) == [2, 1, 3, 0]


def test_a_rank_without_a_color_joins_nothing():
    def body(comm):
        part = comm.split(None if comm.rank == 1 else 7)
        if part is None:
            return None
        with part:
            return total(part)

    assert on_ranks(3, body) == [3, None, 3]


def test_nothing_is_made_if_no_rank_has_a_color():
    assert on_ranks(2, lambda comm: comm.split(None)) == [None, None]


def test_a_part_outlives_the_communicator_and_can_be_split_again():
    def body(comm):
        part = comm.split(comm.rank // 2)
        comm.close()
        with part, part.split(0) as again:
            return total(part), total(again)

    assert on_ranks(4, body) == [(3, 3)] * 4


def test_options_are_those_of_the_communicator_unless_they_are_given():
    def body(comm):
        with comm.split(0) as same, comm.split(0, scratch_bytes=256 << 10) as smaller:
            return same.counters().scratch_bytes, smaller.counters().scratch_bytes

    for same, smaller in on_ranks(2, body, scratch_bytes=1 << 20):
        assert 256 << 10 < same <= 1 << 20
        assert smaller <= 256 << 10


@pytest.mark.parametrize(("color", "key", "name"), [(1.5, 0, "color is 1.5"), (0, "a", "key is 'a'")])
def test_arguments_that_are_not_integers_are_named(color, key, name):
    with narrowcast.LocalRanks(1) as (comm,), pytest.raises(TypeError, match=f"{name}, not an integer"):
        comm.split(color, key)


def test_a_split_of_a_dead_communicator_fails():
    with narrowcast.LocalRanks(1) as (comm,):
        comm.abort()
        with pytest.raises(narrowcast.AbortedError):
            comm.split(0)
