"""Communicators of the host backend run plans: built ones, written ones, and ones that must be rejected."""

from __future__ import annotations

import inspect
import json
import threading
from typing import Any

import narrowcast
import numpy as np
import pytest
from narrowcast._bench import oracle
from narrowcast._bench.operations import Call, describe
from narrowcast._plan.loading import read
from narrowcast.errors import InvalidArgumentError, MismatchError, PeerTimeoutError, RemoteError, UnsupportedError
from narrowcast.plan import Plan, Program, build, builders
from narrowcast.types import REDUCTIONS, VALUE_TYPES
from plan.in_place_documents import exchange_in_place
from plan.packet_documents import packets_in_loops
from thread_ranks import on_ranks, succeed

POISON = 0xA5


def integers(kind: Any, count: int, rank: int) -> np.ndarray:
    """The bits of zeros and ones, whose sums are exact in any order."""
    numbers = np.random.default_rng([count, rank]).integers(0, 2, count)
    return oracle.narrow(numbers.astype(oracle.widen(np.zeros(1, kind.numpy), kind).dtype), kind)


CASES = [(name, operation, ranks) for name, suited in builders().items() for operation in suited for ranks in (2, 4)]


@pytest.mark.parametrize(("name", "operation", "ranks"), CASES)
def test_built_plans_have_the_bits_of_the_oracle(name, operation, ranks):
    plan = build(name, operation, ranks, root=ranks - 1, codec="window", ranks_per_node=2 if name == "two_level" else 1)
    check_bits(plan, operation, ranks)


@pytest.mark.parametrize(
    ("name", "operation"), [("all_pairs", "reduce_scatter"), ("relay", "broadcast"), ("all_pairs", "all_gather")]
)
def test_plans_that_the_scheduler_replicated_have_the_bits_of_the_oracle(name, operation):
    plan = build(name, operation, 4, root=3, codec="window")
    scheduled = plan.schedule(1 << 26).plan
    assert scheduled.model.chunks > plan.model.chunks
    check_bits(scheduled, operation, 4)


def check_bits(plan: Plan, operation: str, ranks: int) -> None:
    row = describe(operation)
    assert plan.verify().verdict == "proved"

    def body(comm: Any) -> None:
        for turn, kind in enumerate(VALUE_TYPES):
            op = list(REDUCTIONS)[turn % 4] if row.reduces else "sum"
            with comm.load_plan(plan, kind, op=op) as loaded:
                for count in (0, 1, 131, 5003):
                    call = Call(operation, kind, count, comm.rank, ranks, op=op, root=ranks - 1)
                    parts = [integers(kind, call.send_elems, rank) for rank in range(ranks)]
                    out = np.full(call.recv_elems * kind.bytes, POISON, np.uint8).view(kind.numpy)
                    loaded(parts[comm.rank], out, dtype=kind)
                    if call.has_result:
                        assert np.array_equal(out, expected(call, parts)), (kind.name, count, op)

    succeed(on_ranks(ranks, body))


def expected(call: Call, inputs: list[np.ndarray]) -> np.ndarray:
    own = slice(call.rank * call.count, (call.rank + 1) * call.count)
    if call.operation in ("all_reduce", "reduce"):
        return oracle.reduce(inputs, call.op, call.kind)
    if call.operation == "reduce_scatter":
        return oracle.reduce([part[own] for part in inputs], call.op, call.kind)
    if call.operation == "all_to_all":
        return np.concatenate([part[own] for part in inputs])
    if call.operation in ("all_gather", "gather"):
        return np.concatenate(inputs)
    return inputs[call.root][own] if call.operation == "scatter" else inputs[call.root]


def test_a_program_runs_and_sums_in_place():
    program = Program("all_reduce", ranks=3)
    for rank in program.ranks:
        rank.output[0] = rank.reduce(peer.input[0] for peer in program.ranks)

    def body(comm: Any) -> float:
        loaded = comm.load_plan(program, "float32")
        values = np.full(1000, comm.rank + 1, np.float32)
        loaded(values, values)
        return float(values.sum())

    assert succeed(on_ranks(3, body)) == [6000.0] * 3


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_an_all_to_all_whose_plan_works_in_place_runs_in_place(chunks):
    plan = exchange_in_place(chunks)
    assert read(plan.encode(), "exchange").verify().verdict == "proved"

    def body(comm: Any) -> None:
        for kind in VALUE_TYPES:
            with comm.load_plan(plan, kind) as loaded:
                for count in (0, 1, 7, 131, 50_001):
                    call = Call("all_to_all", kind, count, comm.rank, 2)
                    parts = [integers(kind, call.send_elems, rank) for rank in range(2)]
                    values = parts[comm.rank].copy()
                    loaded(values, values, dtype=kind)
                    assert np.array_equal(values.view(np.uint8), expected(call, parts).view(np.uint8)), (
                        kind.name,
                        count,
                    )

    succeed(on_ranks(2, body))


def test_a_plan_that_only_works_in_place_refuses_other_buffers():
    plan = exchange_in_place(1)

    def body(comm: Any) -> None:
        with comm.load_plan(plan, "float32") as loaded:
            values = np.ones(6, np.float32)
            with pytest.raises(InvalidArgumentError, match="works in place only"):
                loaded(values, values.copy())
            with pytest.raises(InvalidArgumentError, match="overlap but are not in place"):
                loaded(values[:4], values[2:])
            with pytest.raises(UnsupportedError, match="works in place only, and the operation does not"):
                loaded.use()
        with pytest.raises(InvalidArgumentError, match="the operation does not work in place"):
            comm.all_to_all(values, values)

    succeed(on_ranks(2, body))


@pytest.mark.parametrize("in_place", ["no", "either"])
def test_an_all_to_all_whose_plan_is_proved_out_of_place_does_not_run_in_place(in_place):
    document = json.loads(build("all_pairs", "all_to_all", 2).json())

    def body(comm: Any) -> None:
        loaded = comm.load_plan(json.dumps({**document, "in_place": in_place}), "float32")
        values = np.ones(6, np.float32)
        with pytest.raises(InvalidArgumentError, match="the operation does not work in place"):
            loaded(values, values)

    succeed(on_ranks(2, body))


def run_packets_in_loops(values: np.ndarray, write_unit: int, read_unit: int, codec: str) -> list[int]:
    """Broadcasts twice. Returns by rank how many bytes were sent."""

    def body(comm: Any) -> int:
        for _ in range(2):
            out = np.zeros_like(values)
            with comm.load_plan(packets_in_loops(write_unit, read_unit, codec), "float32") as loaded:
                loaded(values, out)
            assert np.array_equal(out, values)
        return int(comm.counters().operations["broadcast"].wire_bytes)

    return succeed(on_ranks(2, body))


@pytest.mark.parametrize("read_unit", [8192, 0])
def test_loops_send_a_frame_of_each_unit_of_encoded_packets(read_unit):
    unit = 2048
    values = np.random.default_rng(1).standard_normal(200_001).astype(np.float32)  # several micro-batches
    frames = [narrowcast.encode(values[first : first + unit], codec="window") for first in range(0, values.size, unit)]
    sent = run_packets_in_loops(values, 4 * unit, read_unit, "window")
    assert sent == [2 * sum(len(frame) for frame in frames), 0]
    assert sent[0] < 2 * values.nbytes


@pytest.mark.parametrize("codec", ["raw", "window"])
@pytest.mark.parametrize(("write_unit", "read_unit"), [(1024, 16384), (16384, 1024), (48, 80), (0, 4096)])
def test_packets_are_written_before_they_are_read_by_loops_with_other_units(codec, write_unit, read_unit):
    values = np.random.default_rng(2).standard_normal(100_001).astype(np.float32)
    run_packets_in_loops(values, write_unit, read_unit, codec)


def test_a_refuted_plan_is_not_loaded_and_the_communicator_remains_usable():
    document = json.loads(build("all_pairs", "all_reduce", 2).json())
    document["ranks"][1]["groups"][0]["steps"].pop()  # rank 1 no longer receives the other half

    def body(comm: Any) -> str:
        with pytest.raises(InvalidArgumentError) as caught:
            comm.load_plan(json.dumps(document), "float32")
        comm.all_reduce(np.ones(3, np.float32))
        return str(caught.value)

    for message in succeed(on_ranks(2, body)):
        assert "is wrong (structure)" in message
        assert "2 messages are sent and 1 received" in message


def test_loading_a_refuted_program_names_its_line():
    p = Program("all_gather", 2)
    for r in p.ranks:
        for peer in p.ranks:
            peer.output[1 - r.index] = r.input[0]
    line = inspect.currentframe().f_lineno - 1

    def body(comm: Any) -> str:
        with pytest.raises(InvalidArgumentError) as caught:
            comm.load_plan(p, "float32")
        return str(caught.value)

    for message in succeed(on_ranks(2, body)):
        assert message.startswith("ncast_plan_load: the plan is wrong (result): rank ")
        assert message.endswith(f"test_run_plan.py:{line})")


@pytest.mark.parametrize(
    ("plan", "dtype", "reason"),
    [
        ('{"narrowcast_plan": 1, "nam', "float32", "line 1"),
        (build("ring", "all_reduce", 2), "float99", "float99"),
        (None, "float32", "the file has gone"),
    ],
)
def test_a_rank_without_a_plan_ends_the_others_with_the_reason(plan, dtype, reason):
    def body(comm: Any) -> str:
        if comm.rank == 0:
            with pytest.raises(RemoteError) as caught:
                comm.load_plan(build("ring", "all_reduce", 2), "float32")
            message = str(caught.value)
        elif plan is None:
            comm.decline_plan(message := reason)
        else:
            with pytest.raises((ValueError, InvalidArgumentError)) as failed:
                comm.load_plan(plan, dtype)
            message = str(failed.value)
        comm.all_reduce(np.ones(3, np.float32))
        return message

    remote, own = succeed(on_ranks(2, body))
    assert "rank 1 cannot load the plan: " in remote
    assert reason in remote
    assert reason in own


def test_a_reason_can_contain_names_of_files_that_are_not_unicode():
    def body(comm: Any) -> str | None:
        if comm.rank == 1:
            return comm.decline_plan("no file ring\udcff.json")
        with pytest.raises(RemoteError) as caught:
            comm.load_plan(build("ring", "all_reduce", 2), "float32")
        return str(caught.value)

    assert "no file ring?.json" in succeed(on_ranks(2, body))[0]


def test_different_plans_are_a_mismatch_and_the_communicator_remains_usable():
    def body(comm: Any) -> str:
        with pytest.raises(MismatchError, match="ranks load different plans") as caught:
            comm.load_plan(build(("ring", "tree")[comm.rank], "all_reduce", 2), "float32")
        comm.all_reduce(np.ones(3, np.float32))
        return str(caught.value)

    first, second = succeed(on_ranks(2, body))
    assert first == second


@pytest.mark.parametrize("name", ["ring", "two_shot"])
def test_calls_that_differ_are_a_mismatch(name):
    def body(comm: Any) -> None:
        loaded = comm.load_plan(build(name, "all_reduce", 2), "float32")
        values = np.ones(10 + comm.rank, np.float32)
        loaded(values, values)

    for error in on_ranks(2, body):
        assert isinstance(error, MismatchError)
        assert "count" in str(error)


@pytest.mark.parametrize("name", ["ring", "two_shot"])
def test_a_plan_and_an_operation_are_a_mismatch(name):
    def body(comm: Any) -> None:
        loaded = comm.load_plan(build(name, "all_reduce", 2), "float32")
        values = np.ones(10, np.float32)
        if comm.rank == 0:
            loaded(values, values)
        else:
            comm.all_reduce(values, codec="raw")

    for error in on_ranks(2, body):
        assert isinstance(error, MismatchError), error


@pytest.mark.parametrize("name", ["ring", "two_shot"])
def test_waits_for_a_rank_that_does_not_call_are_bounded(name):
    done = threading.Barrier(2)

    def body(comm: Any) -> None:
        loaded = comm.load_plan(build(name, "all_reduce", 2), "float32")
        try:
            if comm.rank == 0:
                loaded(np.ones(10, np.float32), np.ones(10, np.float32))
        finally:
            done.wait()

    error = on_ranks(2, body, timeout_seconds=1)[0]
    assert isinstance(error, PeerTimeoutError)
    assert "rank 0 waited 1 s for rank 1" in str(error)


def test_a_rank_that_leaves_ends_the_waits_for_it():
    def body(comm: Any) -> None:
        loaded = comm.load_plan(build("one_shot", "all_gather", 3), "float32")
        if comm.rank != 1:
            loaded(np.ones(10, np.float32), np.empty(30, np.float32))

    first, _, third = on_ranks(3, body)
    assert isinstance(first, RemoteError)
    assert isinstance(third, RemoteError)


def test_bad_arguments_are_named():
    def body(comm: Any) -> None:
        with pytest.raises(InvalidArgumentError, match="the plan has 2 ranks, and the communicator 1"):
            comm.load_plan(build("ring", "all_gather", 2), "float32")
        document = json.loads(build("all_pairs", "all_reduce", 1).json())
        for in_place, message in (("no", "does not work in place"), ("yes", "works in place only")):
            loaded = comm.load_plan(json.dumps({**document, "in_place": in_place}), "float32")
            values = np.ones(3, np.float32)
            with pytest.raises(InvalidArgumentError, match=message):
                loaded(values, values if in_place == "no" else values.copy())

    succeed(on_ranks(1, body))
    with pytest.raises(InvalidArgumentError, match="6, which is not a power of two"):
        build("halving_doubling", "all_reduce", 6)
    with pytest.raises(InvalidArgumentError, match="unknown algorithm"):
        build("rings", "all_reduce", 6)
