"""Values that have no reductions and no codec are moved as bytes."""

from __future__ import annotations

import narrowcast
import numpy as np
import pytest

RANKS = 3
KINDS = [("bool", None), ("int16", None), ("uint16", "uint16"), ("bool", np.bool_), ("int16", "int16")]


def sample(name: str, rank: int, count: int) -> np.ndarray:
    bits = np.random.default_rng(rank).integers(0, 2 if name == "bool" else 1 << 15, count)
    return bits.astype(name)


@pytest.mark.parametrize(("name", "dtype"), KINDS)
@pytest.mark.parametrize("codec", ["auto", "raw", "window"])
def test_every_operation_that_moves_values_moves_them(name, dtype, codec):
    count = 101
    options = {"codec": codec, "dtype": dtype}
    with narrowcast.LocalRanks(RANKS) as comms:
        mine = [sample(name, rank, RANKS * count) for rank in range(RANKS)]
        all_ = [np.zeros((RANKS, RANKS * count), name) for _ in comms]
        exchanged, varied, copied, part = ([np.zeros(n, name) for _ in comms] for n in (RANKS * count, 6, 9, count))
        with narrowcast.group():
            for comm, own, out in zip(comms, mine, all_, strict=True):
                comm.all_gather(own, out, **options)
        with narrowcast.group():
            for comm, own, out in zip(comms, mine, exchanged, strict=True):
                comm.all_to_all(own, out, **options)
        with narrowcast.group():
            for comm, own, out in zip(comms, mine, varied, strict=True):
                comm.all_to_all_v(own, out, [2] * RANKS, [2] * RANKS, send_offsets=[5, 9, 20], **options)
        with narrowcast.group():
            for comm, own, out in zip(comms, mine, copied, strict=True):
                comm.broadcast(own[:9], out, root=1, **options)
        with narrowcast.group():
            for comm, out in zip(comms, part, strict=True):
                comm.scatter(mine[2], out, root=2, **options)
        gathered = np.zeros((RANKS, count), name)
        with narrowcast.group():
            for comm, out in zip(comms, part, strict=True):
                comm.gather(out, gathered, **options)
        received = np.zeros(count, name)
        with narrowcast.group():
            comms[0].send(part[0], 1, **options)
            comms[1].recv(received, 0, **options)
        counters = comms[0].counters().operations
    whole = np.stack(mine)
    assert all(np.array_equal(out, whole) for out in all_)
    for rank in range(RANKS):
        assert np.array_equal(exchanged[rank], np.concatenate([own.reshape(RANKS, -1)[rank] for own in mine]))
        start = [5, 9, 20][rank]
        assert np.array_equal(varied[rank], np.concatenate([own[start : start + 2] for own in mine]))
        assert np.array_equal(copied[rank], mine[1][:9])
        assert np.array_equal(part[rank], mine[2].reshape(RANKS, -1)[rank])
    assert np.array_equal(gathered, np.stack(part))
    assert np.array_equal(received, part[0])
    assert counters["send"].raw_bytes == part[0].nbytes


@pytest.mark.parametrize("name", ["bool", "int16"])
def test_reductions_reject_them(name):
    values = np.zeros(4, name)
    words = f"values holds {name} values, which communicators only move"
    with narrowcast.LocalRanks(1) as (comm,):
        for call in (comm.all_reduce, comm.reduce, lambda one: comm.reduce_scatter(one, one)):
            with pytest.raises(TypeError, match=words):
                call(values)
        with pytest.raises(ValueError, match=f"'{name}' values have no codec and no reductions"):
            comm.all_reduce(bytearray(4), dtype=name)


def test_uint16_without_its_type_may_be_bfloat16():
    with (
        narrowcast.LocalRanks(1) as (comm,),
        pytest.raises(TypeError, match="values holds uint16, which is not a value type: pass the type with dtype="),
    ):
        comm.broadcast(np.zeros(4, np.uint16))


def test_both_ends_have_the_same_type():
    with narrowcast.LocalRanks(1) as (comm,), pytest.raises(TypeError, match="out holds int16 values of 2 bytes"):
        comm.all_gather(np.zeros(4, bool), np.zeros(4, np.int16))
