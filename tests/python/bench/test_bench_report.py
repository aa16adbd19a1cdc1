"""The reports of `narrowcast bench`: content, files and plots."""

from __future__ import annotations

import json

import pytest
from bench_on_the_host import ONE_SIZE
from narrowcast import plots
from narrowcast._bench.cost_model import Times
from narrowcast.cli.bench import collectives as bench_collectives
from narrowcast.cli.bench import report as bench_report
from narrowcast.types import value_type

BF16 = value_type("bfloat16")


@pytest.mark.parametrize("given", [["-J", "out.json"], ["--json", "out.json"], ["--json=out.json"]])
def test_reports_are_written_to_files(cli_here, tmp_path, given):
    done = cli_here("bench", "all_reduce", *given, *ONE_SIZE, "--ranks", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("# all_reduce, 2 ranks")
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["command"].startswith("narrowcast bench all_reduce --minbytes 4K")
    assert "--output-file out.json" in report["command"]


def test_reports_state_command_commit_and_machine(cli_here, tmp_path):
    arguments = ["-b", "4K", "-e", "8K", "-f", "2", "--backend", "host", "--ranks", "2", "--codec", "raw", "--codec"]
    done = cli_here("bench", "all_reduce", *arguments, "window", "--in-place", "-J", "out.json", COMMIT="abc")
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


def test_wrong_values_give_exit_status_1(cli_here, monkeypatch):
    def one_wrong(function, arguments, on_results, **_):
        on_results([{"versions": {"narrowcast": "0"}, "contenders": ["raw"], "notes": []}] * 2)
        result = {"seconds": [1e-3], "wrong": 1, "raw_bytes": 8, "wire_bytes": 8}
        on_results([{"count": 64, "contenders": {"raw": result}}] * 2)

    monkeypatch.setattr(bench_collectives.launched, "run_ranks", one_wrong)
    done = cli_here("bench", "all_reduce", "--backend", "host", "--ranks", "2", "--codec", "raw", *ONE_SIZE[:4])
    assert done.returncode == 1
    assert "2 values of all_reduce are wrong" in done.stderr


@pytest.mark.parametrize(("contenders", "least"), [(["raw"], 60), (["raw", "window"], 90), (["auto", "nccl"], 90)])
def test_narrow_terminals_show_fewer_columns(cli_here, contenders, least):
    codec = ["--codec", "raw", "--codec", "window"] if contenders[-1] == "window" else ["--codec", contenders[0]]
    report = json.loads(cli_here("bench", "all_reduce", "--json", *codec, *ONE_SIZE, "--ranks", "2").stdout)
    if "nccl" in contenders:
        own = report["rows"][0]
        report["contenders"].append("nccl")
        report["rows"].append({**own, "codec": None, "contender": "nccl"})
    for width in range(least, 200, 7):
        shown = [*bench_report.preamble(report, width).splitlines(), bench_report.line(report["rows"], width=width)]
        assert max(map(len, shown)) <= width
        titles, line = shown[-3].lstrip("#").split(), shown[-1].split()
        assert len(titles) == len(line)
        assert titles.count("time") == titles.count("busbw") == len(contenders)
    assert bench_report.preamble(report, 500).splitlines()[-2:] == bench_report.preamble(report).splitlines()[-2:]


def test_times_of_ranks_are_combined_per_batch():
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
def test_the_cost_model_uses_times_of_single_calls_on_the_slowest_rank(changes, is_taken):
    row = {"contender": "nccl", "codec": None, "count": 512, "type": "bfloat16", "time_us": 3.0, "ratio": None}
    report = _report() | {"backend": "cuda", "ctas": 0, "in_place": False, "pattern": "ring", "rows": [row]}
    times = Times()
    report |= {"link": "nvlink", "register": False, "group_calls": 1, "blocking": False}
    times.add_report(report | {"average": bench_report.SLOWEST} | changes)
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
def test_reports_are_plotted(tmp_path, alone):
    pytest.importorskip("matplotlib")
    report = _report()
    if alone:
        report["rows"] = [row | {"speedup": None} for row in report["rows"] if row["codec"]]
    plots.plot_bench(report, tmp_path / "out.svg")
    text = (tmp_path / "out.svg").read_text()
    assert text.startswith("<?xml")
    # Text is drawn as shapes; a comment has the text.
    assert "<!-- narrowcast, window -->" in text
    assert ("<!-- nccl-ce -->" in text) is not alone
    assert [path.name for path in tmp_path.iterdir()] == ["out.svg"]


def test_bench_writes_a_plot(cli_here, tmp_path):
    pytest.importorskip("matplotlib")
    assert cli_here("bench", "all_reduce", *ONE_SIZE, "--ranks", "2", "--plot", "out.png").returncode == 0
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
