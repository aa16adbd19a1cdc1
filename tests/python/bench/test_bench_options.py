"""The options of `narrowcast bench`: their effects, and invalid combinations."""

from __future__ import annotations

import time

import pytest
from bench_on_the_host import ONE_SIZE, report_on_the_host
from narrowcast import errors
from narrowcast._bench import launch
from narrowcast.cli.bench import checks
from narrowcast.cli.bench import collectives as bench_collectives
from narrowcast.cli.bench import report as bench_report
from narrowcast.cli.bench.collectives import Block
from narrowcast.types import REDUCTIONS, VALUE_TYPES, value_type


@pytest.mark.parametrize("operation", ["all_reduce", "sendrecv", "all_to_all"])
def test_groups_and_streams_on_the_host(cli_here, operation):
    (row,) = report_on_the_host(cli_here, operation, "-m", "3", "-z", "0")["rows"]
    (alone,) = report_on_the_host(cli_here, operation)["rows"]
    assert (row["raw_bytes"], row["wire_bytes"]) == (alone["raw_bytes"], alone["wire_bytes"])


def test_every_reduction_of_every_type_on_the_host(cli_here):
    report = report_on_the_host(cli_here, "all_reduce", "-d", "all", "-o", "all")
    assert (report["dtype"], report["op"], report["data"]) == ("all", "all", "normal")
    assert [(row["type"], row["redop"]) for row in report["rows"]] == [
        (kind.name, op) for kind in VALUE_TYPES for op in REDUCTIONS
    ]
    assert {row["size_bytes"] for row in report["rows"]} == {4096}
    (row,) = report_on_the_host(cli_here, "all_gather", "-o", "all")["rows"]
    assert row["redop"] == "none"


def test_sizes_can_grow_by_a_step(cli_here):
    rows = report_on_the_host(cli_here, "broadcast", "-b", "1K", "-e", "4K", "-i", "1K")["rows"]
    assert [row["size_bytes"] for row in rows] == [1024, 2048, 3072, 4096]


def test_cpu_times_on_a_stream_are_shorter_than_call_times(cli_here):
    arguments = ("-b", "2M", "-e", "2M", "-C", "1")
    ((waited,), (made,)) = (report_on_the_host(cli_here, "all_reduce", *arguments, "-z", z)["rows"] for z in (1, 0))
    assert made["cpu_us"] / made["time_us"] < waited["cpu_us"] / waited["time_us"]
    text = cli_here("bench", "all_reduce", *ONE_SIZE, "--ranks", "2", "-C", "1").stdout
    assert "time: until the host has made a call" in text


def test_ranks_wait_for_a_missing_rank_until_the_timeout(rank_jobs, monkeypatch):
    def run(function, arguments, on_results, **limits):
        real("rank_jobs:benches_late", arguments, on_results, **limits)

    real = bench_collectives.launched.run_ranks
    monkeypatch.setattr(bench_collectives.launched, "run_ranks", run)
    monkeypatch.setattr(launch, "GRACE_SECONDS", 1)
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
    block = Block(value_type("bfloat16"), "sum", [64])
    return bench_collectives.measure(settings, [block], 2, check=False, command="", quiet=True, **options)


@pytest.mark.parametrize(("given", "limit"), [([], 60), (["-T", "7"], 7), (["-T", "0"], 0)])
def test_the_timeout_reaches_the_ranks(cli_here, monkeypatch, given, limit):
    seen = {}

    def run(function, arguments, on_results, *, timeout_seconds):
        seen.update(arguments[1], together=timeout_seconds)
        raise errors.RemoteError("enough")

    monkeypatch.setattr(bench_collectives.launched, "run_ranks", run)
    assert cli_here("bench", "all_reduce", *ONE_SIZE, *given).returncode == 1
    assert seen["timeout_seconds"] == limit
    # One size, a warm-up, two calls, and two more.
    assert seen["together"] == (300 + 5 * limit if limit else 1e7)


@pytest.fixture
def seen(monkeypatch):
    """What the first of two ranks of GPUs would be called with. No rank runs."""
    found = {}

    def run(function, arguments, on_results, **_):
        found.update(arguments[0])
        raise errors.RemoteError("enough")

    monkeypatch.setattr(bench_collectives.launched, "run_ranks", run)
    monkeypatch.setattr(checks, "device_count", lambda: 2)
    return found


def test_the_number_of_hosts_reaches_the_ranks(cli_here, seen):
    assert cli_here("bench", "all_gather", "-b", "4K", "-e", "4K", "--hosts", 2).returncode == 1
    assert seen["hosts"] == 2
    refused = cli_here("bench", "all_gather", "--backend", "host", "--hosts", 2)
    assert "--hosts is for --backend cuda" in refused.stderr


def test_windows_exclude_the_default_of_nccl(cli_here, seen):
    for register, against in ((0, ["nccl", "nccl-symmetric"]), (2, ["nccl-symmetric"])):
        assert cli_here("bench", "all_reduce", "-b", "4K", "-e", "4K", "-R", register).returncode == 1
        assert (seen["register"], seen["against"]) == (register > 0, against)
    assert cli_here("bench", "all_reduce", "-b", "4K", "-e", "4K", "-R", 2, "--against", "nccl").returncode == 1
    assert (seen["register"], seen["against"]) == (True, ["nccl"])


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
        (["all_reduce", "-g", "8"], 2, "--ranks 8 instead of -g 8"),
        (["all_reduce", "-t", "2", "-g", "4"], 2, "--ranks 8 instead of -t 2 -g 4"),
        (["all_reduce", "-p", "0"], 2, "-p 0"),
        (["all_reduce", "-i", "1M", "-f", "2"], 2, "-i"),
        (["all_reduce", "-i", "0"], 2, "-i"),
        (["all_reduce", "-a", "4"], 2, "--average"),
        (["all_reduce", "--backend", "host", "-R", "2"], 2, "-R"),
        (["all_reduce", "-d", "all", "--data", "weights"], 2, "weights"),
        (["all_reduce", "-o", "all", "--plot", "out.png"], 2, "--plot"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line(cli_here, tmp_path, arguments, status, word):
    done = cli_here("bench", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert word in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
