"""Communicators of several hosts: what crosses between them."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import narrowcast
import numpy as np
import pytest
from host_jobs import KIND, values_of
from narrowcast._bench import operations, oracle
from narrowcast._bench.launch import run_ranks
from narrowcast._native.operations import describe
from narrowcast.types import value_type

SUPPORT = str(Path(__file__).parents[1] / "support")
COUNT = 100_003
TOLERANCE = 0.02
CODECS = ["raw", "window"]
SHAPES = [(2, 4), (4, 2), (3, 3)]


@pytest.fixture(scope="module", params=SHAPES, ids=lambda shape: f"{shape[0]}x{shape[1]}")
def sent(request: pytest.FixtureRequest) -> tuple[int, int, list[dict[str, dict[str, int]]]]:
    """The hosts, the ranks of each, and what each rank sends to other hosts."""
    hosts, on_each = request.param
    rows: list[list[dict[str, dict[str, int]]]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NARROWCAST_HOSTID", "host 0")
        patch.setenv("PYTHONPATH", os.pathsep.join([SUPPORT, os.environ.get("PYTHONPATH", "")]))
        shared = {
            "unique_id": narrowcast.unique_id().hex(),
            "hosts": [rank // on_each for rank in range(hosts * on_each)],
            "count": COUNT,
            "codecs": CODECS,
        }
        arguments = [{**shared, "rank": rank} for rank in range(hosts * on_each)]
        run_ranks("host_jobs:traffic", arguments, rows.append, timeout_seconds=120)
    return hosts, on_each, rows[0]


def chunks(operation: str, hosts: int, on_each: int) -> tuple[float, float]:
    """How many times `count` values, and partial sums, cross between hosts, by all ranks together."""
    others, ranks = hosts - 1, hosts * on_each
    match operation:
        case "all_gather":
            return others * ranks, 0
        case "reduce_scatter":
            return 0, others * ranks
        case "all_reduce":
            return others, others
        case "broadcast":
            return others, 0
        case "reduce":
            return 0, others
        case "gather" | "scatter":
            return others * on_each, 0
        case "all_to_all" | "all_to_all_v":
            return others * on_each * ranks, 0
        case "sendrecv":  # to the next rank
            return hosts, 0
    raise AssertionError(operation)


@functools.cache
def coded_share(kind: str, ranks: int) -> float:
    """Encoded bytes of values, or of sums of `ranks` ranks, by raw ones."""
    values = values_of(COUNT, 0)
    if kind == "float32":
        values = functools.reduce(np.add, (oracle.widen(values_of(COUNT, rank), KIND) for rank in range(ranks)))
    frame = narrowcast.encode(values, dtype=kind, codec="window")
    return len(frame) / values.nbytes


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("operation", operations.names())
def test_hosts_exchange_the_bytes_of_the_schedule(sent, operation, codec):
    hosts, on_each, found = sent
    values, sums = chunks(operation, hosts, on_each)
    wide = value_type("float32")
    expected = COUNT * (values * KIND.bytes + sums * wide.bytes)
    if codec != "raw":
        expected = COUNT * (
            values * KIND.bytes * coded_share(KIND.name, 1) + sums * wide.bytes * coded_share(wide.name, on_each)
        )
    by_rank = [rank[codec][operation] for rank in found]
    assert sum(by_rank) == pytest.approx(expected, rel=TOLERANCE)
    if operation != "sendrecv" and not describe(operation).has_root:
        assert max(by_rank) == pytest.approx(expected / len(found), rel=TOLERANCE)
