"""`narrowcast bench` of collectives: with NCCL on fakes of the driver and NCCL, and on the host."""

from __future__ import annotations

import ctypes
import json
import sys

import pytest
from bench_on_the_host import ONE_SIZE
from narrowcast import errors
from narrowcast._bench import nccl_library, operations
from narrowcast._dropin import nccl_search
from narrowcast.cli.bench import collectives as bench_collectives
from narrowcast.cli.bench import report as bench_report
from narrowcast.cli.bench.collectives import Block
from narrowcast.types import value_type

BF16 = value_type("bfloat16")


@pytest.fixture
def on_fakes(fakes, rank_jobs, monkeypatch):
    """Measures an operation on the fakes. Returns the report."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fakes))
    monkeypatch.delenv("NCCL_NVLS_ENABLE", raising=False)

    def run(
        operation, ranks=2, size=16 << 10, library="libnccl.so.2", blocks=None, job="fake_gpu_jobs:bench", **changes
    ):
        settings = {
            "operation": operation,
            "dtype": "bfloat16",
            "data": "weights",
            "codecs": ["auto", "window"],
            "op": "sum",
            "root": ranks - 1,
            "pattern": "ring",
            "in_place": False,
            "iterations": 3,
            "warmup": 1,
            "batches": 2,
            "graph_calls": 0,
            "group_calls": 1,
            "blocking": False,
            "average": bench_report.SLOWEST,
            "report_cputime": False,
            "against": ["nccl", "nccl-symmetric"],
            "required": True,
            "nccl": str(fakes / library),
            "ctas": 0,
            "register": False,
            "hosts": 1,
            **changes,
        }
        count = operations.count_of(operation, size, BF16, ranks)
        return bench_collectives.measure(
            settings,
            blocks or [Block(value_type(settings["dtype"]), settings["op"], [1, count])],
            ranks,
            check=True,
            command="",
            quiet=True,
            job=job,
        )

    return run


# On GPUs, with the fakes.


# Graphs, in which buffers and groups differ, are measured with the operations that have most of both.
@pytest.mark.parametrize(
    ("operation", "graph_calls"),
    [*((name, 0) for name in operations.names()), ("all_reduce", 2), ("all_to_all", 2), ("sendrecv", 2)],
)
def test_every_operation_is_measured_with_nccl(on_fakes, operation, graph_calls):
    report = on_fakes(operation, graph_calls=graph_calls)
    assert report["device"] == "Fake GPU"
    assert report["versions"]["nccl"] == "2.28.9"
    assert report["contenders"] == ["auto", "window", "nccl", "nccl-symmetric"]
    assert report["notes"] == []
    assert [(row["contender"], row["codec"]) for row in report["rows"][:4]] == [
        ("narrowcast", "auto"),
        ("narrowcast", "window"),
        ("nccl", None),
        ("nccl-symmetric", None),
    ]
    assert len(report["rows"]) == 8
    for rows in (report["rows"][:4], report["rows"][4:]):
        assert [row["wrong"] for row in rows] == [0, 0, 0, 0]
        best = min(row["time_us"] for row in rows[2:])
        for row in rows[:2]:
            assert row["speedup"] == pytest.approx(best / row["time_us"])
        assert [row["speedup"] for row in rows[2:]] == [None, None]
    assert 0.6 < report["rows"][5]["ratio"] < 0.8
    assert report["rows"][6]["ratio"] is None


# With a larger output, a larger input, and buffers of one size.
# 80: more calls in the graph than sets of buffers, so reductions would read their own results.
@pytest.mark.parametrize(
    ("operation", "graph_calls"),
    [("all_gather", 0), ("scatter", 0), ("reduce_scatter", 80), ("all_reduce", 80)],
)
def test_operations_are_measured_in_place(on_fakes, operation, graph_calls):
    rows = on_fakes(operation, in_place=True, graph_calls=graph_calls, iterations=80 if graph_calls else 3)["rows"]
    assert [row["wrong"] for row in rows] == [0] * 8


@pytest.mark.parametrize(("operation", "graph_calls"), [("all_reduce", 0), ("sendrecv", 2)])
def test_groups_are_measured_with_nccl(on_fakes, operation, graph_calls):
    report = on_fakes(operation, group_calls=3, graph_calls=graph_calls)
    assert [row["wrong"] for row in report["rows"]] == [0] * 8
    assert "groups of 3" in bench_report.preamble(report)
    # Per call, not per group.
    alone = on_fakes(operation, graph_calls=graph_calls)
    assert [row["raw_bytes"] for row in report["rows"]] == [row["raw_bytes"] for row in alone["rows"]]


def test_calls_of_both_libraries_are_grouped(on_fakes, monkeypatch, tmp_path):
    monkeypatch.setenv("TEST_FOLDER", str(tmp_path))
    on_fakes("all_gather", job="rank_jobs:benches_in_groups", group_calls=3, codecs=["raw"], against=["nccl"])
    # 2 counts of 2 batches of 3 iterations, and the check's 3.
    for contender in ("raw", "nccl"):
        assert [(tmp_path / f"{contender}-{rank}").read_text().split() for rank in (0, 1)] == [["3"] * 18] * 2


@pytest.mark.parametrize("graph_calls", [0, 2])
def test_blocking_calls_are_measured(on_fakes, monkeypatch, graph_calls):
    # No error, because the stream is not held.
    monkeypatch.setenv("FAKE_LAUNCHES_WAIT", "1")
    report = on_fakes("all_reduce", blocking=True, graph_calls=graph_calls, against=[])
    assert [row["wrong"] for row in report["rows"]] == [0] * 4
    assert "each waited for" in bench_report.preamble(report)


def test_cpu_times_on_gpus_are_shorter_than_call_times(on_fakes):
    report = on_fakes("all_reduce", report_cputime=True, size=4 << 20, codecs=["window"])
    assert len(report["rows"]) == 6
    for row in report["rows"][3:]:
        assert 0 < row["cpu_us"] < row["time_us"]


@pytest.mark.parametrize(
    # Calls that the fake reduces, and those that it does not.
    ("kinds", "ops", "against"),
    [(("bfloat16", "float32"), ("sum",), ["nccl"]), (("int32", "float32"), ("sum", "max"), [])],
)
def test_all_types_and_reductions_are_measured(on_fakes, kinds, ops, against):
    blocks = [Block(value_type(kind), op, [1, 1000]) for kind in kinds for op in ops]
    rows = on_fakes("all_reduce", blocks=blocks, data="normal", codecs=["raw"], against=against)["rows"]
    assert [row["wrong"] for row in rows] == [0] * 8
    assert [(row["type"], row["redop"], row["count"]) for row in rows if row["codec"]] == [
        (block.kind.name, block.op, count) for block in blocks for count in block.counts
    ]


def test_sums_of_three_ranks_are_correct_in_any_order(on_fakes):
    rows = on_fakes("all_reduce", ranks=3, data="normal")["rows"]
    assert [row["wrong"] for row in rows] == [0] * 8


def test_one_way_sends_only_from_rank_0_to_rank_1(on_fakes):
    rows = on_fakes("sendrecv", ranks=3, pattern="one-way")["rows"]
    assert [row["wrong"] for row in rows] == [0] * 8
    assert rows[5]["raw_bytes"] == rows[5]["size_bytes"]


@pytest.mark.parametrize("operation", ["all_to_all", "gather", "scatter"])
def test_an_old_nccl_uses_sends_and_receives(on_fakes, operation):
    rows = on_fakes(operation, ranks=3, library="libnccl_old.so.2", against=["nccl"])["rows"]
    assert [row["wrong"] for row in rows] == [0] * 6


def test_wrong_values_are_counted(on_fakes, monkeypatch):
    monkeypatch.setenv("FAKE_NCCL_WRONG", "1")
    rows = on_fakes("all_reduce", codecs=["raw"])["rows"]
    # One value in every output that is compared, on both ranks.
    assert [row["wrong"] > 0 for row in rows] == [False, False, False, False, True, True]


def test_missing_variants_of_nccl_are_skipped_or_errors(on_fakes, monkeypatch):
    all_three = ["nccl", "nccl-symmetric", "nccl-ce"]
    report = on_fakes("all_gather", against=all_three)
    assert report["contenders"][2:] == all_three
    with pytest.raises(errors.RemoteError, match="NCCL does not use copy engines for all_reduce"):
        on_fakes("all_reduce", against=all_three)
    monkeypatch.setenv("FAKE_NCCL_NO_WINDOWS", "1")
    report = on_fakes("all_gather", against=all_three, required=False)
    assert report["contenders"][2:] == ["nccl"]
    assert len(report["notes"]) == 2
    monkeypatch.setenv("FAKE_NCCL_VERSION", "22602")
    report = on_fakes("all_gather", against=all_three, required=False)
    assert report["contenders"][2:] == ["nccl"]
    assert "NCCL 2.26.2 does not support symmetric windows" in report["notes"][0]
    with pytest.raises(errors.RemoteError, match="does not support symmetric windows"):
        on_fakes("all_gather", against=["nccl-symmetric"])


def test_without_nccl_narrowcast_is_measured_alone(on_fakes):
    report = on_fakes("all_reduce", against=[], nccl=None)
    assert report["contenders"] == ["auto", "window"]
    assert [row["speedup"] for row in report["rows"]] == [None] * 4
    with pytest.raises(errors.RemoteError, match="NCCL cannot be loaded"):
        on_fakes("all_reduce", library="libcuda.so.1")


def test_the_table_has_columns_for_every_contender(on_fakes):
    report = on_fakes("all_reduce", graph_calls=2)
    text = bench_report.preamble(report).splitlines()
    assert "graphs of 2 calls" in text[2]
    assert text[3].split() == ["#", "auto", "window", "nccl", "nccl-symmetric"]
    ours = ["time", "algbw", "busbw", "#wrong", "ratio", "speedup"]
    columns = ["size", "count", "type", "redop", "root", *ours, *ours, *ours[:4], *ours[:4]]
    assert text[4].lstrip("#").split() == columns
    line = bench_report.line(report["rows"][4:])
    assert len(line.split()) == len(columns)
    assert len(line) == len(text[4])


def test_the_default_nccl_is_the_wheel_or_the_one_of_the_loader(wheel, monkeypatch, tmp_path):
    monkeypatch.setattr(nccl_search, "_FOLDERS", ())
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert nccl_library.find() == "libnccl.so.2"
    wheel.write_bytes(b"NCCL")
    assert nccl_library.find() == str(wheel)
    assert not any(name.startswith("nvidia.") for name in sys.modules)
    with pytest.raises(FileNotFoundError):
        nccl_library.find(str(tmp_path / "nowhere"))


def test_the_configuration_has_the_layout_of_nccl_2_27():
    # Offsets of nccl.h on a 64-bit machine.
    offsets = {name: getattr(nccl_library.Config, name).offset for name, _ in nccl_library.Config._fields_}
    assert (offsets["version"], offsets["maxCTAs"], offsets["netName"], offsets["commName"]) == (12, 28, 32, 48)
    assert (offsets["CTAPolicy"], ctypes.sizeof(nccl_library.Config)) == (60, 72)
    assert nccl_library.config("nccl").CTAPolicy == -(2**31)
    assert nccl_library.config("nccl-ce").CTAPolicy == 2


# On the host.


@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter"])
def test_in_place_on_the_host(cli_here, operation):
    done = cli_here("bench", operation, *ONE_SIZE, "--ranks", "3", "--in-place", "--codec", "raw,window", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)["rows"]
    assert [(row["codec"], row["wrong"]) for row in rows] == [("raw", 0), ("window", 0)]


def test_one_way_on_the_host(cli_here):
    done = cli_here("bench", "sendrecv", *ONE_SIZE, "--ranks", "3", "--pattern", "one-way", "--json")
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["wrong"], row["raw_bytes"]) == (0, 4096)


def test_launches_that_wait_for_the_gpu_are_detected(on_fakes, monkeypatch):
    monkeypatch.setenv("FAKE_LAUNCHES_WAIT", "1")
    with pytest.raises(errors.RemoteError, match="launches of auto wait for the GPU"):
        on_fakes("all_reduce", against=[])
