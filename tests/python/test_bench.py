"""`narrowcast bench` of collectives: what it takes, prints and writes; on GPUs with fakes of the driver and of NCCL."""

from __future__ import annotations

import ctypes
import json
import sys
import time

import numpy as np
import pytest
from narrowcast import _nccl, _nccl_search, _near, _operations, _oracle, _samples, errors, plots
from narrowcast._cost_model import Times
from narrowcast.cli import bench_collectives, bench_report
from narrowcast.cli.bench_collectives import Block
from narrowcast.types import REDUCTIONS, VALUE_TYPES, value_type

BF16 = value_type("bfloat16")
ONE_SIZE = ["-b", "4K", "-e", "4K", "-n", "2", "-w", "1", "--backend", "host"]


@pytest.fixture
def on_fakes(fakes, rank_jobs, monkeypatch):
    """Measures an operation on the fakes; the report."""
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
            **changes,
        }
        count = _operations.count_of(operation, size, BF16, ranks)
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


@pytest.mark.parametrize("graph_calls", [0, 2])
@pytest.mark.parametrize("operation", _operations.NAMES)
def test_every_operation_runs_beside_nccl(on_fakes, operation, graph_calls):
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


@pytest.mark.parametrize("graph_calls", [0, 80])
@pytest.mark.parametrize("operation", sorted({*_operations.NAMES} - _operations.NOT_IN_PLACE))
def test_every_operation_runs_in_place(on_fakes, operation, graph_calls):
    # More calls in the graph than there are sets of buffers: reductions would meet their own results.
    rows = on_fakes(operation, in_place=True, graph_calls=graph_calls, iterations=80 if graph_calls else 3)["rows"]
    assert [row["wrong"] for row in rows] == [0] * 8


@pytest.mark.parametrize("graph_calls", [0, 2])
@pytest.mark.parametrize("operation", ["all_reduce", "all_to_all", "sendrecv"])
def test_groups_run_beside_nccl(on_fakes, operation, graph_calls):
    report = on_fakes(operation, group_calls=3, graph_calls=graph_calls)
    assert [row["wrong"] for row in report["rows"]] == [0] * 8
    assert "groups of 3" in bench_report.preamble(report)
    # Of a call, not of a group.
    alone = on_fakes(operation, graph_calls=graph_calls)
    assert [row["raw_bytes"] for row in report["rows"]] == [row["raw_bytes"] for row in alone["rows"]]


def test_groups_are_made_of_both_libraries_calls(on_fakes, monkeypatch, tmp_path):
    monkeypatch.setenv("TEST_FOLDER", str(tmp_path))
    on_fakes("all_gather", job="rank_jobs:benches_in_groups", group_calls=3, codecs=["raw"], against=["nccl"])
    # 2 counts of 2 batches of 3 iterations, and the check's 3.
    for contender in ("raw", "nccl"):
        assert [(tmp_path / f"{contender}-{rank}").read_text().split() for rank in (0, 1)] == [["3"] * 18] * 2


@pytest.mark.parametrize("graph_calls", [0, 2])
def test_calls_are_waited_for(on_fakes, monkeypatch, graph_calls):
    # What would wait for a stream that is held back is no error: nothing is held back.
    monkeypatch.setenv("FAKE_LAUNCHES_WAIT", "1")
    report = on_fakes("all_reduce", blocking=True, graph_calls=graph_calls, against=[])
    assert [row["wrong"] for row in report["rows"]] == [0] * 4
    assert "each waited for" in bench_report.preamble(report)


def test_the_host_has_made_calls_on_gpus_before_they_are_done(on_fakes):
    report = on_fakes("all_reduce", report_cputime=True, size=4 << 20, codecs=["window"])
    assert len(report["rows"]) == 6
    for row in report["rows"][3:]:
        assert 0 < row["cpu_us"] < row["time_us"]


@pytest.mark.parametrize(
    # What the fake reduces, and what it does not.
    ("kinds", "ops", "against"),
    [(("bfloat16", "float32"), ("sum",), ["nccl"]), (("int32", "float32"), ("sum", "max"), [])],
)
def test_blocks_of_types_and_reductions(on_fakes, kinds, ops, against):
    blocks = [Block(value_type(kind), op, [1, 1000]) for kind in kinds for op in ops]
    rows = on_fakes("all_reduce", blocks=blocks, data="normal", codecs=["raw"], against=against)["rows"]
    assert [row["wrong"] for row in rows] == [0] * 8
    assert [(row["type"], row["redop"], row["count"]) for row in rows if row["codec"]] == [
        (block.kind.name, block.op, count) for block in blocks for count in block.counts
    ]


def test_sums_of_three_ranks_are_right_in_either_order(on_fakes):
    rows = on_fakes("all_reduce", ranks=3, data="normal")["rows"]
    assert [row["wrong"] for row in rows] == [0] * 8


def test_one_way_sends_only_from_the_first_rank_to_the_second(on_fakes):
    rows = on_fakes("sendrecv", ranks=3, pattern="one-way")["rows"]
    assert [row["wrong"] for row in rows] == [0] * 8
    assert rows[5]["raw_bytes"] == rows[5]["size_bytes"]


@pytest.mark.parametrize("operation", ["all_to_all", "gather", "scatter"])
def test_an_old_nccl_sends_and_receives(on_fakes, operation):
    rows = on_fakes(operation, ranks=3, library="libnccl_old.so.2", against=["nccl"])["rows"]
    assert [row["wrong"] for row in rows] == [0] * 6


def test_wrong_values_are_counted(on_fakes, monkeypatch):
    monkeypatch.setenv("FAKE_NCCL_WRONG", "1")
    rows = on_fakes("all_reduce", codecs=["raw"])["rows"]
    # A value of every output that is looked at, on both ranks.
    assert [row["wrong"] > 0 for row in rows] == [False, False, False, False, True, True]


def test_what_nccl_lacks_is_left_out_or_an_error(on_fakes, monkeypatch):
    all_three = ["nccl", "nccl-symmetric", "nccl-ce"]
    report = on_fakes("all_gather", against=all_three)
    assert report["contenders"][2:] == all_three
    with pytest.raises(errors.RemoteError, match="no all_reduce by copy engine"):
        on_fakes("all_reduce", against=all_three)
    monkeypatch.setenv("FAKE_NCCL_NO_WINDOWS", "1")
    report = on_fakes("all_gather", against=all_three, required=False)
    assert report["contenders"][2:] == ["nccl"]
    assert len(report["notes"]) == 2
    monkeypatch.setenv("FAKE_NCCL_VERSION", "22602")
    report = on_fakes("all_gather", against=all_three, required=False)
    assert report["contenders"][2:] == ["nccl"]
    assert "NCCL 2.26.2 has no symmetric windows" in report["notes"][0]
    with pytest.raises(errors.RemoteError, match="no symmetric windows"):
        on_fakes("all_gather", against=["nccl-symmetric"])


def test_without_nccl_narrowcast_is_measured_alone(on_fakes):
    report = on_fakes("all_reduce", against=[], nccl=None)
    assert report["contenders"] == ["auto", "window"]
    assert [row["speedup"] for row in report["rows"]] == [None] * 4
    with pytest.raises(errors.RemoteError, match="NCCL cannot be loaded"):
        on_fakes("all_reduce", library="libcuda.so.1")


def test_a_table_has_the_columns_of_every_contender(on_fakes):
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


def test_the_default_library_is_the_wheels_or_the_loaders(wheel, monkeypatch, tmp_path):
    monkeypatch.setattr(_nccl_search, "_FOLDERS", ())
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert _nccl.find() == "libnccl.so.2"
    wheel.write_bytes(b"NCCL")
    assert _nccl.find() == str(wheel)
    assert not any(name.startswith("nvidia.") for name in sys.modules)
    with pytest.raises(FileNotFoundError):
        _nccl.find(str(tmp_path / "nowhere"))


def test_the_configuration_is_as_nccl_2_27_has_it():
    # Offsets of nccl.h on a 64-bit machine.
    offsets = {name: getattr(_nccl.Config, name).offset for name, _ in _nccl.Config._fields_}
    assert (offsets["version"], offsets["maxCTAs"], offsets["netName"], offsets["commName"]) == (12, 28, 32, 48)
    assert (offsets["CTAPolicy"], ctypes.sizeof(_nccl.Config)) == (60, 72)
    assert _nccl.config("nccl").CTAPolicy == -(2**31)
    assert _nccl.config("nccl-ce").CTAPolicy == 2


# On the host.


@pytest.mark.parametrize("operation", sorted({*_operations.NAMES} - _operations.NOT_IN_PLACE))
def test_the_host_runs_in_place(cli, operation):
    done = cli("bench", operation, *ONE_SIZE, "--ranks", "3", "--in-place", "--codec", "raw,window", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)["rows"]
    assert [(row["codec"], row["wrong"]) for row in rows] == [("raw", 0), ("window", 0)]


def test_one_way_on_the_host(cli):
    done = cli("bench", "sendrecv", *ONE_SIZE, "--ranks", "3", "--pattern", "one-way", "--json")
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["wrong"], row["raw_bytes"]) == (0, 4096)


def rows_on_the_host(cli, operation, *arguments):
    done = cli("bench", operation, *ONE_SIZE, "--ranks", "2", *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert all(row["wrong"] == 0 for row in report["rows"])
    return report


@pytest.mark.parametrize("operation", _operations.NAMES)
def test_groups_and_streams_on_the_host(cli, operation):
    (row,) = rows_on_the_host(cli, operation, "-m", "3", "-z", "0")["rows"]
    (alone,) = rows_on_the_host(cli, operation)["rows"]
    assert (row["raw_bytes"], row["wire_bytes"]) == (alone["raw_bytes"], alone["wire_bytes"])


def test_every_reduction_of_every_type_on_the_host(cli):
    report = rows_on_the_host(cli, "all_reduce", "-d", "all", "-o", "all")
    assert (report["dtype"], report["op"], report["data"]) == ("all", "all", "normal")
    assert [(row["type"], row["redop"]) for row in report["rows"]] == [
        (kind.name, op) for kind in VALUE_TYPES for op in REDUCTIONS
    ]
    assert {row["size_bytes"] for row in report["rows"]} == {4096}
    (row,) = rows_on_the_host(cli, "all_gather", "-o", "all")["rows"]
    assert row["redop"] == "none"


def test_sizes_are_added(cli):
    rows = rows_on_the_host(cli, "broadcast", "-b", "1K", "-e", "4K", "-i", "1K")["rows"]
    assert [row["size_bytes"] for row in rows] == [1024, 2048, 3072, 4096]


def test_the_host_has_made_calls_on_a_stream_before_they_are_done(cli):
    arguments = ("-b", "8M", "-e", "8M", "-C", "1")
    ((waited,), (made,)) = (rows_on_the_host(cli, "all_reduce", *arguments, "-z", z)["rows"] for z in (1, 0))
    assert made["cpu_us"] < 0.5 * made["time_us"]
    assert waited["cpu_us"] > 0.9 * waited["time_us"]
    text = cli("bench", "all_reduce", *ONE_SIZE, "--ranks", "2", "-C", "1").stdout
    assert "time: until the host has made a call" in text


def test_a_rank_that_does_not_come_is_waited_for_as_long_as_asked(rank_jobs, monkeypatch):
    def run(function, arguments, on_results, **limits):
        real("rank_jobs:benches_late", arguments, on_results, **limits)

    real = bench_collectives.run_ranks
    monkeypatch.setattr(bench_collectives, "run_ranks", run)
    begin = time.monotonic()
    with pytest.raises(errors.RemoteError, match="waited 1 s for ranks that have not joined: 1"):
        _measured_on_the_host(timeout_seconds=1)
    assert time.monotonic() - begin < 20


def _measured_on_the_host(**options):
    settings = {
        "operation": "all_reduce",
        "dtype": "bfloat16",
        "data": "weights",
        "codecs": ["raw"],
        "op": "sum",
        "root": 0,
        "pattern": "ring",
        "in_place": False,
        "iterations": 1,
        "group_calls": 1,
        "warmup": 0,
        "batches": 1,
        "blocking": True,
        "average": bench_report.SLOWEST,
        "report_cputime": False,
    }
    block = Block(BF16, "sum", [64])
    return bench_collectives.measure(settings, [block], 2, check=False, command="", quiet=True, **options)


@pytest.mark.parametrize(("given", "limit"), [([], 60), (["-T", "7"], 7), (["-T", "0"], 0)])
def test_the_limit_of_waiting_reaches_the_ranks(cli_here, monkeypatch, given, limit):
    seen = {}

    def run(function, arguments, on_results, *, timeout_seconds):
        seen.update(arguments[1], together=timeout_seconds)
        raise errors.RemoteError("enough")

    monkeypatch.setattr(bench_collectives, "run_ranks", run)
    assert cli_here("bench", "all_reduce", *ONE_SIZE, *given).returncode == 1
    assert seen["timeout_seconds"] == limit
    # One size, a warm-up, two calls, and two more.
    assert seen["together"] == (300 + 5 * limit if limit else 1e7)


def test_windows_leave_out_the_default_of_nccl(cli_here, monkeypatch):
    seen = {}

    def run(function, arguments, on_results, **_):
        seen.update(arguments[0])
        raise errors.RemoteError("enough")

    monkeypatch.setattr(bench_collectives, "run_ranks", run)
    monkeypatch.setattr(bench_collectives, "device_count", lambda: 2)
    for register, against in ((0, ["nccl", "nccl-symmetric"]), (2, ["nccl-symmetric"])):
        assert cli_here("bench", "all_reduce", "-b", "4K", "-e", "4K", "-R", register).returncode == 1
        assert (seen["register"], seen["against"]) == (register > 0, against)
    assert cli_here("bench", "all_reduce", "-b", "4K", "-e", "4K", "-R", 2, "--against", "nccl").returncode == 1
    assert (seen["register"], seen["against"]) == (True, ["nccl"])


@pytest.mark.parametrize("given", [["-J", "out.json"], ["--json", "out.json"], ["--json=out.json"]])
def test_a_report_goes_to_a_file(cli, tmp_path, given):
    done = cli("bench", "all_reduce", *given, *ONE_SIZE, "--ranks", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("# all_reduce, 2 ranks")
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["command"].startswith("narrowcast bench all_reduce --minbytes 4K")
    assert "--output-file out.json" in report["command"]


def test_a_report_says_how_it_was_made(cli, tmp_path):
    arguments = ["-b", "4K", "-e", "8K", "-f", "2", "--backend", "host", "--ranks", "2", "--codec", "raw", "--codec"]
    done = cli("bench", "all_reduce", *arguments, "window", "--in-place", "-J", "out.json", COMMIT="abc")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["commit"] == "abc"
    assert report["command"] == (
        "narrowcast bench all_reduce --minbytes 4K --maxbytes 8K --stepfactor 2 --in-place --ranks 2 --codec raw "
        "--codec window --backend host --output-file out.json"
    )
    assert report["versions"]["narrowcast"]
    assert report["machine"]
    assert report["contenders"] == ["raw", "window"]
    assert [row["size_bytes"] for row in report["rows"]] == [4096, 4096, 8192, 8192]
    assert "raw" in done.stdout.splitlines()[3]


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        (["all_reduce", "--backend", "host", "--cudagraph", "5"], 2, "--cudagraph"),
        (["all_reduce", "--backend", "host", "--against", "nccl"], 2, "--against"),
        (["all_reduce", "--backend", "host", "--ctas", "4"], 2, "--ctas"),
        (["all_reduce", "--backend", "cuda", "--against", "nccl,rccl"], 2, "rccl"),
        (["all_reduce", "--codec", "raw,zip"], 2, "zip"),
        (["all_to_all", "--in-place"], 2, "in place"),
        (["sendrecv", "--pattern", "star"], 2, "star"),
        (["all_reduce", "--pattern", "one-way"], 2, "sendrecv"),
        (["sendrecv", "--pattern", "one-way", "--ranks", "1", "--backend", "host"], 2, "2 ranks"),
        (["all_reduce", "--plot", "out.txt"], 2, ".png"),
        (["all_reduce", "--backend", "cuda", "--ranks", "64"], 1, "GPU"),
        (["all_reduce", "-g", "8"], 2, "--ranks 8 in place of -g 8"),
        (["all_reduce", "-t", "2", "-g", "4"], 2, "--ranks 8 in place of -t 2 -g 4"),
        (["all_reduce", "-p", "0"], 2, "-p 0"),
        (["all_reduce", "-i", "1M", "-f", "2"], 2, "-i"),
        (["all_reduce", "-i", "0"], 2, "-i"),
        (["all_reduce", "-a", "4"], 2, "--average"),
        (["all_reduce", "--backend", "host", "-R", "2"], 2, "-R"),
        (["all_reduce", "-d", "all", "--data", "weights"], 2, "weights"),
        (["all_reduce", "-o", "all", "--plot", "out.png"], 2, "--plot"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(cli_here, tmp_path, arguments, status, word):
    done = cli_here("bench", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert word in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_wrong_values_end_with_status_1(cli_here, monkeypatch):
    def one_wrong(function, arguments, on_results, **_):
        on_results([{"versions": {"narrowcast": "0"}, "contenders": ["raw"], "notes": []}] * 2)
        result = {"seconds": [1e-3], "wrong": 1, "raw_bytes": 8, "wire_bytes": 8}
        on_results([{"count": 64, "contenders": {"raw": result}}] * 2)

    monkeypatch.setattr(bench_collectives, "run_ranks", one_wrong)
    done = cli_here("bench", "all_reduce", "--backend", "host", "--ranks", "2", "--codec", "raw", *ONE_SIZE[:4])
    assert done.returncode == 1
    assert "2 values of all_reduce are wrong" in done.stderr


def test_the_slowest_rank_counts_in_every_batch():
    settings = {"operation": "all_reduce", "op": "sum", "root": 0}

    def ranks(*seconds):
        return [
            {
                "count": 500,
                "contenders": {"nccl": {"seconds": list(own), "wrong": None, "raw_bytes": 0, "wire_bytes": 0}},
            }
            for own in seconds
        ]

    (row,) = bench_report.rows_of(settings, BF16, 2, ranks((1e-6, 5e-6, 2e-6), (4e-6, 1e-6, 3e-6)))
    assert row["time_us"] == pytest.approx(4)
    assert row["busbw_gb_per_s"] == row["algbw_gb_per_s"] == pytest.approx(1000 / 4e-6 / 1e9)
    assert (row["wrong"], row["ratio"], row["speedup"]) == (None, None, None)
    # nccl-tests' -a: rank 0, the average, the fastest, the slowest.
    for average, microseconds in enumerate((2, 2.5, 1, 4)):
        both = ranks((1e-6, 5e-6, 2e-6), (4e-6, 1e-6, 3e-6))
        (row,) = bench_report.rows_of({**settings, "average": average}, BF16, 2, both)
        assert row["time_us"] == pytest.approx(microseconds), average


@pytest.mark.parametrize(
    ("changes", "is_taken"),
    [({}, True), ({"group_calls": 2}, False), ({"blocking": True}, False), ({"average": 1}, False)],
)
def test_the_cost_model_takes_times_of_calls_alone_on_the_slowest_rank(changes, is_taken):
    row = {"contender": "nccl", "codec": None, "count": 512, "type": "bfloat16", "time_us": 3.0, "ratio": None}
    report = _report() | {"backend": "cuda", "ctas": 0, "in_place": False, "pattern": "ring", "rows": [row]}
    times = Times()
    times.add_report(report | {"group_calls": 1, "blocking": False, "average": bench_report.SLOWEST} | changes)
    assert bool(times.curves()) == is_taken


def _report():
    rows = [
        {
            "size_bytes": 1024 << i,
            "contender": name if codec is None else "narrowcast",
            "codec": codec,
            "busbw_gb_per_s": 1.0 + i,
            "speedup": None if codec is None else 0.5 + i,
        }
        for i in range(3)
        for name, codec in (("raw", "raw"), ("window", "window"), ("nccl", None), ("nccl-ce", None))
    ]
    return {
        "operation": "all_gather",
        "ranks": 2,
        "device": "GPU",
        "dtype": "bfloat16",
        "data": "kv",
        "graph_calls": 5,
        "rows": rows,
    }


@pytest.mark.parametrize("alone", [False, True])
def test_a_report_is_drawn(tmp_path, alone):
    pytest.importorskip("matplotlib")
    report = _report()
    if alone:
        report["rows"] = [row | {"speedup": None} for row in report["rows"] if row["codec"]]
    plots.plot_bench([report], tmp_path / "out.svg")
    text = (tmp_path / "out.svg").read_text()
    assert text.startswith("<?xml")
    assert [path.name for path in tmp_path.iterdir()] == ["out.svg"]


def test_reports_are_drawn_side_by_side(tmp_path):
    pytest.importorskip("matplotlib")
    reports = [_report(), _report() | {"operation": "all_reduce"}]
    reports[1]["rows"] = [row for row in reports[1]["rows"] if row["contender"] != "nccl-ce"]
    for report in reports:
        report["rows"] = [row | {"ctas": row["size_bytes"] >> 10} for row in report["rows"]]
    plots.plot_bench(reports, tmp_path / "out.svg", "ctas")
    text = (tmp_path / "out.svg").read_text()
    # Text is drawn as shapes, which a comment names.
    for words in ("all_gather", "all_reduce", "narrowcast, window", "nccl-ce", "ctas"):
        assert f"<!-- {words} -->" in text


def test_bench_draws(cli, tmp_path):
    pytest.importorskip("matplotlib")
    assert cli("bench", "all_reduce", *ONE_SIZE, "--ranks", "2", "--plot", "out.png").returncode == 0
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


# The parts.


def test_parts_are_as_nccl_tests_has_them():
    assert _operations.count_of("all_gather", 1000, BF16, 3) == 160
    assert _operations.count_of("gather", 20, BF16, 3) == 3
    assert _operations.count_of("all_reduce", 1001, BF16, 3) == 500
    assert _operations.count_of("scatter", 1, BF16, 3) == 1
    assert _operations.size_of("scatter", 160, BF16, 3) == 960
    assert [_operations.bus_factor(name, 4) for name in ("all_reduce", "gather", "reduce", "sendrecv")] == [
        1.5,
        0.75,
        1,
        1,
    ]


def test_moved_data_is_compared_to_the_bit():
    sample = _samples.sample("random", "float32")
    call = _operations.Call("all_gather", value_type("float32"), 3000, 1, 2)
    whole = np.concatenate([call.sent(sample, rank, 7) for rank in range(2)])
    assert call.count_wrong(whole, sample, 7) == 0
    assert call.count_wrong(whole, sample, 8) > 5900
    nan = np.full(6000, np.nan, np.float32)
    other = nan.copy()
    other.view(np.uint32)[5] ^= 1
    assert call.count_wrong(other, nan) == 1


def test_repetitions_of_the_sample_are_expected_too():
    kind = value_type("float32")
    sample = _samples.sample("normal", "float32")[:1000]
    call = _operations.Call("reduce_scatter", kind, 3500, 1, 2)
    parts = [call.sent(sample, rank, 3)[3500:] for rank in range(2)]
    assert call.count_wrong(_oracle.reduce(parts, "sum", kind), sample, 3) == 0


def _rounded_backwards(inputs, kind):
    total = inputs[-1]
    for bits in inputs[-2::-1]:
        total = _oracle.reduce([total, bits], "sum", kind)
    return total


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64", "float8_e4m3"])
def test_any_order_of_a_sum_is_near_and_another_number_is_not(dtype):
    kind = value_type(dtype)
    inputs = [_samples.of_rank(_samples.sample("normal", dtype), rank, 5000) for rank in range(8)]
    found = _rounded_backwards(inputs, kind)
    twice = np.concatenate([found, found[:100]])
    assert _near.count_far(twice, inputs, "sum", kind) == 0
    sign = 1 << (8 * kind.bytes - 1)
    unsigned = f"uint{8 * kind.bytes}"
    exact = _oracle.widen(found, kind)
    large = np.flatnonzero(np.abs(exact) > 6)
    broken = found.copy()
    broken.view(unsigned)[large] ^= np.array(sign, unsigned)
    assert large.size > 5
    assert _near.count_far(broken, inputs, "sum", kind) > 0.5 * large.size
    if kind.name != "float8_e4m3":
        assert _near.count_far(broken, inputs, "sum", kind) == large.size


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max", "avg"])
def test_exact_results_are_near(kind, op):
    for data in ("normal", "random"):
        inputs = [_samples.of_rank(_samples.sample(data, kind.name), rank, 3000) for rank in range(3)]
        assert _near.count_far(_oracle.reduce(inputs, op, kind), inputs, op, kind) == 0


def test_a_launch_that_waits_for_the_gpu_is_found(on_fakes, monkeypatch):
    monkeypatch.setenv("FAKE_LAUNCHES_WAIT", "1")
    with pytest.raises(errors.RemoteError, match="auto waits for the GPU while it is launched"):
        on_fakes("all_reduce", against=[])
