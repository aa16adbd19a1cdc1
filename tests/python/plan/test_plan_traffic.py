"""Executors send the bytes that their plans say."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import narrowcast
import numpy as np
import pytest
from conformance.plan_traffic import Blocks, Frames, Packets, Sent, traffic
from narrowcast._bench import operations
from narrowcast._native.codecs import forced
from narrowcast._native.operations import describe
from narrowcast._plan import loading
from narrowcast.plan import build, builders
from narrowcast.types import value_type
from plan.mscclpp_documents import DOCUMENTS
from plan.packet_documents import packets_relay
from thread_ranks import on_ranks, succeed

RECORDED = Path(__file__).parents[3] / "bench" / "results" / "h200" / "2026-11-24_plan_traffic.json"
PLANNED = tuple(name for name in operations.names() if name not in ("sendrecv", "all_to_all_v"))


@functools.lru_cache(8)
def values(kind: str, count: int, rank: int) -> np.ndarray:
    """As in tools/wire_bytes.py."""
    return (np.random.default_rng([count, rank, len(kind)]).standard_normal(count) * 0.02).astype(kind)


@functools.cache
def recorded(ranks: int) -> dict[str, dict[str, Any]]:
    cases: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text())["ranks"][str(ranks)]
    return cases


@pytest.mark.parametrize("operation", PLANNED)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_recorded_calls_of_hand_written_kernels_sent_what_their_plans_say(ranks, operation):
    cases = {case: one for case, one in recorded(ranks).items() if case.split()[0] == operation}
    assert len(cases) == 20
    many = ranks if describe(operation).send.parted else 1
    for case, call in cases.items():
        _, kind, codec, count = case.split()
        media: list[Any] = [Packets(16), Packets(128)]
        if call["candidate"] == f"blocks:{codec}":
            media = [Blocks(codec, block_bytes=4096)]
        plan = build(call["plan"], operation, ranks, codec=codec).model
        own = functools.partial(values, kind, many * int(count))
        found = [traffic(plan, own, int(count), value_type(kind), medium) for medium in media]
        sent = [Sent(*one) for one in call["sent"]]
        assert any(all(map(is_alike, sent, one)) for one in found), case


def is_alike(recorded_bytes: Sent, found: Sent) -> bool:
    """Since the record, encoders choose other widths for a few blocks."""
    difference = abs(recorded_bytes.wire_bytes - found.wire_bytes)
    return recorded_bytes.raw_bytes == found.raw_bytes and difference <= recorded_bytes.wire_bytes / 5000


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_recorded_calls_of_hand_written_kernels_had_the_results_of_the_host_backend(ranks):
    """By the hash in the record; it covers all ranks, also zeros where a rank has no result."""
    with narrowcast.LocalRanks(ranks) as comms:
        for case, recorded_call in recorded(ranks).items():
            operation, kind, codec, count = case.split()
            calls = [operations.Call(operation, value_type(kind), int(count), rank, ranks) for rank in range(ranks)]
            outputs = [np.zeros(call.recv_elems, kind) for call in calls]
            with narrowcast.group():
                for call, comm, output in zip(calls, comms, outputs, strict=True):
                    call.run(comm, values(kind, call.send_elems, call.rank), output, codec=codec)
            found = hashlib.sha256(b"".join(output.tobytes() for output in outputs)).hexdigest()[:16]
            assert found == recorded_call["results"], case


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_plan_sends_on_the_host_what_it_says(ranks):
    """Encoded and with counts that chunks do not divide, except where partial sums are sent."""
    kind = value_type("float32")

    def inputs(operation: str, count: int, rank: int) -> np.ndarray:
        return values("float32", count * (ranks if describe(operation).send.parted else 1), rank)

    with narrowcast.LocalRanks(ranks) as comms:
        for name, suited in builders().items():
            if name == "two_level" or (name == "halving_doubling" and ranks == 3):
                continue
            for operation, codec, count in itertools.product(suited, ("raw", "window"), (1, 1200, 1237)):
                sums = describe(operation).reduces and name not in ("all_pairs", "relay", "one_shot", "two_shot")
                if sums and (codec != "raw" or count != 1200):
                    continue
                root = ranks - 1 if describe(operation).has_root else 0
                plan = build(name, operation, ranks, root=root, codec=codec).model
                own = functools.partial(inputs, operation, count)
                expected = traffic(plan, own, count, kind, Frames(codec)) if not sums else raw_traffic(plan, count)
                for comm in comms:
                    comm.choose_plans(lambda call, plans, name=name: name if name in plans else "built-in")
                before = [comm.counters() for comm in comms]
                with narrowcast.group():
                    for rank, comm in enumerate(comms):
                        call = operations.Call(operation, kind, count, rank, ranks, root=root)
                        call.run(comm, own(rank), np.empty(call.recv_elems, np.float32), codec=forced(codec))
                found = [
                    Sent(after.raw_bytes - old.raw_bytes, after.wire_bytes - old.wire_bytes)
                    for old, after in zip(before, (comm.counters() for comm in comms), strict=True)
                ]
                assert found == expected, (name, operation, codec, count)


def raw_traffic(plan: Any, count: int) -> list[Sent]:
    """The bytes of float32, also of partial sums: these have as many as the inputs."""
    ones = np.zeros(count * len(plan.ranks), np.float32)
    return traffic(plan, lambda rank: ones, count, value_type("float32"), Frames("raw"), partial_sums=True)


@pytest.mark.parametrize("codec", ["raw", "window"])
def test_puts_messages_and_gets_count_where_they_are_made(codec):
    count, kind = 5000, value_type("float32")
    plan = loading.read(packets_relay(codec).encode(), "relay")

    def body(comm: Any) -> Sent:
        out = np.zeros(4 * count, np.float32)
        with comm.load_plan(plan, kind) as loaded:
            before = comm.counters()
            loaded(values("float32", count, comm.rank), out)
            after = comm.counters()
        assert np.array_equal(out, np.concatenate([values("float32", count, rank) for rank in range(4)]))
        return Sent(after.raw_bytes - before.raw_bytes, after.wire_bytes - before.wire_bytes)

    own = functools.partial(values, "float32", count)
    assert succeed(on_ranks(4, body)) == traffic(plan.model, own, count, kind, Frames(codec))


def test_reductions_by_a_switch_count_as_gets_from_the_other_ranks():
    count, kind = 5000, value_type("float32")
    plan = loading.read(json.dumps(DOCUMENTS["all-reduce by a switch"]).encode(), "switch")

    def body(comm: Any) -> Sent:
        out = values("float32", count, comm.rank).copy()
        with comm.load_plan(plan, kind) as loaded:
            before = comm.counters()
            loaded(out, out)
            after = comm.counters()
        assert np.array_equal(out, values("float32", count, 0) + values("float32", count, 1))
        return Sent(after.raw_bytes - before.raw_bytes, after.wire_bytes - before.wire_bytes)

    own = functools.partial(values, "float32", count)
    found = succeed(on_ranks(2, body))
    # Each rank gets one half and stores its sum.
    assert found == [Sent(4 * count, 4 * count)] * 2
    assert found == traffic(plan.model, own, count, kind, Frames("raw"))
