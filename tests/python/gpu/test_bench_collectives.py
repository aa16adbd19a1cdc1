"""`narrowcast bench` of collectives between GPUs, compared with NCCL if it is installed."""

from __future__ import annotations

import json

import pytest
from narrowcast._bench import nccl_library, operations
from narrowcast.cuda import device_count

pytestmark = pytest.mark.skipif(device_count() < 2, reason="fewer than 2 GPUs")

TINY = [
    "--backend",
    "cuda",
    "--ranks",
    "2",
    "-b",
    "1K",
    "-e",
    "64K",
    "-f",
    "64",
    "-n",
    "3",
    "-w",
    "1",
    "--batches",
    "2",
]


def rows_of(done):
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["machine"] != "unknown"
    assert report["device"]
    for row in report["rows"]:
        assert row["wrong"] == 0, row
        assert row["time_us"] > 0
    return report["rows"]


# A run takes seconds, mostly for set-up.
@pytest.mark.parametrize(
    ("operation", "graph_calls"), [*((name, 3) for name in operations.names()), ("all_reduce", 0), ("sendrecv", 0)]
)
def test_every_operation_is_correct_and_measured_with_nccl(cli, nccl, operation, graph_calls):
    arguments = ["--codec", "auto,raw,window", "--against", "nccl", "--cudagraph", graph_calls, "--json"]
    rows = rows_of(cli("bench", operation, *TINY, *arguments))
    assert len(rows) == 8
    assert all(row["speedup"] > 0 for row in rows if row["codec"])


@pytest.mark.parametrize("operation", ["all_gather", "all_reduce", "reduce_scatter", "scatter"])
def test_every_operation_is_correct_in_place(cli, operation):
    arguments = ["--codec", "raw,window", "--against", "none", "--cudagraph", 3, "--in-place", "--json"]
    assert len(rows_of(cli("bench", operation, *TINY, *arguments))) == 4


def test_every_variant_of_nccl_is_measured(cli, nccl):
    variants = [name for name in nccl_library.VARIANTS if nccl.lacks(name, "all_gather") is None]
    done = cli("bench", "all_gather", *TINY, "--json", "--cudagraph", 3)
    rows = rows_of(done)
    notes = json.loads(done.stdout)["notes"]
    # If the machine does not support windows, a note says so.
    assert [row["contender"] for row in rows[1 : len(rows) // 2]] == [
        name for name in variants if not any(note.startswith(f"without {name}:") for note in notes)
    ]


def test_one_way_and_a_limit_of_ctas(cli):
    arguments = ["--codec", "raw", "--against", "none", "--pattern", "one-way", "--ctas", "4", "--json"]
    assert len(rows_of(cli("bench", "sendrecv", *TINY, *arguments))) == 2
