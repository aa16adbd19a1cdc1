"""Step times from records: of hosts that are ahead of GPUs, with pauses, and of ranks that drift."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from narrowcast._try import record, steps

CALLS = 4


def entries_of(kind, number, **columns):
    found = np.zeros(number, record._ENTRY)
    found["kind"] = kind
    for name, values in columns.items():
        found[name] = values
    return found


def is_sampled(launches):
    """As LaunchTimer::is_sampled()."""
    return launches * np.uint32(0x9E3779B1) < np.uint32(1 << 29)


def rank_of(rank, host_ms, gpu_ms, duration_ms=2.0, ranks=2, comm_id=5, values=5000):
    """The record of a rank whose i-th step begins at these times. Its launches follow in equal distances."""
    count = len(host_ms)
    launches = np.arange(count * CALLS, dtype=np.uint32)

    def in_steps(begins):
        lengths = np.append(np.diff(begins), np.diff(begins)[-1])
        return (np.repeat(begins, CALLS) + np.repeat(lengths, CALLS) * (launches % CALLS) / CALLS) * 1e6

    calls = entries_of(
        record._CALL,
        len(launches),
        time_ns=in_steps(host_ms),
        count=values + launches % CALLS,
        launch=launches,
        dtype=7,
        operation=9,
    )
    chosen = is_sampled(launches)
    timed = entries_of(
        record._LAUNCH,
        int(chosen.sum()),
        time_ns=in_steps(gpu_ms)[chosen],
        count=np.broadcast_to(duration_ms, len(launches))[chosen] * 1e6,
        launch=launches[chosen],
    )
    return record.ProcessRecord([record.CommunicatorRecord(comm_id, rank, ranks, calls, timed)], np.empty(0, np.uint64))


def steps_of(*processes):
    found = steps.find_steps(processes, steps.find_pattern(processes))
    assert found is not None
    return found


def test_the_time_of_a_step_is_that_between_its_first_calls():
    times = 1000 + 30.0 * np.arange(80)
    found = steps_of(rank_of(0, times, times))
    assert found.measured == 69
    assert found.host_seconds() == pytest.approx(0.030)
    assert found.gpu_seconds() == pytest.approx(0.030)


def test_a_host_that_is_far_ahead_of_the_gpu_does_not_make_steps_short():
    gpu = 50.0 * np.arange(100)
    host = np.maximum(2.0 * np.arange(100), gpu - 2000)
    found = steps_of(rank_of(0, host, gpu))
    assert found.gpu_seconds() == pytest.approx(0.050)


def test_a_host_that_waits_in_some_steps_does_not_change_the_mean():
    # Four steps are put on streams at once, and then the host waits for them.
    host = np.floor(np.arange(200) / 4) * 200 + np.arange(200) % 4
    assert steps_of(rank_of(0, host, host)).host_seconds() == pytest.approx(0.050, rel=0.06)


def test_pauses_do_not_count():
    lengths = np.full(120, 20.0)
    lengths[:3] = 4000
    lengths[[47, 95]] = 900
    times = np.cumsum(lengths)
    found = steps_of(rank_of(0, times, times))
    assert found.host_seconds() == pytest.approx(0.020)
    assert found.gpu_seconds() == pytest.approx(0.020)


def test_ranks_that_drift_have_the_same_step_time():
    generator = np.random.default_rng(1)
    times = 40.0 * np.arange(100)
    for rank in range(2):
        own = times + generator.uniform(0, 60, 100)
        found = steps_of(rank_of(rank, np.maximum.accumulate(own), times))
        assert found.host_seconds() == pytest.approx(0.040, rel=0.03)


def test_marks_count_more_than_calls():
    times = 10.0 * np.arange(50)
    process = rank_of(0, times, times)
    marked = record.ProcessRecord(process.communicators, (20.0 * np.arange(30) * 1e6).astype(np.uint64))
    found = steps_of(process, marked)
    assert (found.communicator, found.process) == (None, marked)
    assert found.host_seconds() == pytest.approx(0.020)
    assert found.gpu_seconds() is None


def test_too_few_marks_or_steps_give_nothing():
    times = 10.0 * np.arange(steps.LEAST_STEPS)
    process = rank_of(0, times, times)
    assert steps.find_pattern([process]) is None
    marked = record.ProcessRecord([], (times * 1e6).astype(np.uint64))
    assert steps.find_steps([process, marked], None) is None


def test_the_longest_step_is_that_of_the_program():
    # Each step of the program is 20 layers of another communicator.
    times, layers = 200.0 * np.arange(60), 10.0 * np.arange(1200)
    both = record.ProcessRecord(
        rank_of(0, layers, layers, comm_id=1).communicators + rank_of(0, times, times, values=9000).communicators,
        np.empty(0, np.uint64),
    )
    assert steps_of(both).host_seconds() == pytest.approx(0.200)


def test_a_communicator_for_barriers_does_not_give_the_step():
    times, barriers = 20.0 * np.arange(100), 200.0 * np.arange(10)
    both = record.ProcessRecord(
        rank_of(0, barriers, barriers, comm_id=1, values=1).communicators + rank_of(0, times, times).communicators,
        np.empty(0, np.uint64),
    )
    assert steps_of(both).host_seconds() == pytest.approx(0.020)


def test_waits_for_the_last_rank_are_told_apart_from_transfers():
    times = 30.0 * np.arange(200)
    launches = np.arange(200 * CALLS)
    first = rank_of(0, times, times, np.where(launches % 2, 2.0, 7.0))
    second = rank_of(1, times, times, np.where(launches % 2, 6.0, 2.0))
    found = steps_of(first)
    own = steps.communication(first, *found.measured_ns(), found.measured, [first, second])
    assert own.calls == pytest.approx(CALLS, rel=0.02)
    assert own.executed == own.captured == 0
    assert own.gpu_seconds == pytest.approx(CALLS * 4.5e-3, rel=0.1)
    assert own.waiting_seconds == pytest.approx(CALLS * 2.5e-3, rel=0.15)
    alone = steps.communication(first, *found.measured_ns(), found.measured, [first])
    assert alone.waiting_seconds is None


def test_launches_may_have_been_recorded_in_any_order(tmp_path):
    times = 30.0 * np.arange(200)
    rng = np.random.default_rng(1)
    for rank in range(2):
        (own,) = rank_of(rank, times, times, 2.0 + 5 * (np.arange(200 * CALLS) % 2 == rank)).communicators
        header = np.frombuffer(record._MAGIC + bytes([record._VERSION]) + bytes(23), record._ENTRY)
        communicator = entries_of(record._COMMUNICATOR, 1, count=own.id, peer=rank, launch=2)
        entries = np.concatenate([header, communicator, own.calls, rng.permutation(own.launches)])
        entries.tofile(tmp_path / f"{rank}.calls")
    processes = record.read_folder(tmp_path)
    found = steps_of(*processes)
    assert found.gpu_seconds() == pytest.approx(0.030)
    own = steps.communication(found.process, *found.measured_ns(), found.measured, processes)
    assert own.waiting_seconds == pytest.approx(CALLS * 2.5e-3, rel=0.15)


def test_calls_do_not_wait_longer_than_they_take():
    times = 30.0 * np.arange(200)
    first, second = rank_of(0, times, times, np.arange(200 * CALLS) / 100 + 1), rank_of(1, times, times, 0.5)
    # The second rank was stopped later, and only the last calls, which take longest, were timed on both.
    (own,) = second.communicators
    late = dataclasses.replace(own, launches=own.launches[-20:])
    found = steps_of(first)
    both = [first, record.ProcessRecord([late], second.marks_ns)]
    of_step = steps.communication(first, *found.measured_ns(), found.measured, both)
    assert 0 < of_step.waiting_seconds < of_step.gpu_seconds
