"""`narrowcast tune`: its measurements, on fakes of the driver and of NCCL, and the cost model that it writes."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from pathlib import Path

import narrowcast
import pytest
from cli_output import assert_one_line
from narrowcast import errors
from narrowcast._bench import cost_model
from narrowcast._bench.cost_model import Curve, Times
from narrowcast._bench.harness import Schedule, enter_host
from narrowcast._bench.operations import Call, bus_factor, call_of, names
from narrowcast._bench.tune_ranks import suited_schedule
from narrowcast._comm import explain
from narrowcast._native.library import library
from narrowcast.cli import _provenance
from narrowcast.cli import tune as command
from narrowcast.cli.bench import report as bench_report
from narrowcast.cli.bench.collectives import Block, measure
from narrowcast.cli.tune_plans import plans_of
from narrowcast.plan import build
from narrowcast.types import value_type

RESULTS = Path(__file__).parents[3] / "bench" / "results"
BRIEF = command.Schedule(size_factor=16, calls=2, batches=2, warmup=1)


@pytest.fixture
def on_fakes(fakes, rank_jobs, monkeypatch):
    """Measures on the fakes. Returns the times and the result of measure()."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fakes))
    monkeypatch.delenv("NCCL_NVLS_ENABLE", raising=False)

    def run(ranks=2, operations=("all_gather",), last_bytes=16 << 10, nccl="libnccl.so.2", schedule=BRIEF, **others):
        times = Times()
        result = command.measure(
            times,
            ranks,
            schedule,
            nccl=fakes / nccl,
            operations=operations,
            last_bytes=last_bytes,
            job="fake_gpu_jobs:tune",
            **others,
        )
        return times, result

    return run


def points_of(text):
    """The byte counts of every curve."""
    curves = {}
    for line in text.splitlines()[2:]:
        if not line.startswith("#"):
            operation, ranks, link, series, *points = line.split()
            curves[Curve(operation, int(ranks), link, series)] = [int(point.split(":")[0]) for point in points]
    return curves


def test_all_candidates_of_all_operations_are_measured(on_fakes, tmp_path, monkeypatch):
    times, (link, remark) = on_fakes(operations=names())
    assert link == "nvlink"
    assert remark.startswith("2 ranks: Narrowcast ")
    assert "NCCL 2.28.9" in remark
    text = times.text("a machine", remark)
    curves = points_of(text)
    lossy = [one.name for one in narrowcast.codecs() if not one.exact]
    for operation in names():
        name = call_of(operation)
        parts = 2 if bus_factor(operation, 2) == 0.5 else 1
        for series in cost_model.every_series():
            is_measured = series.removesuffix("/incompressible").removeprefix("blocks:") not in lossy
            is_measured = is_measured and (name, series) != ("send", "packets")
            expected = [1024 // parts, 16384 // parts] if is_measured else None
            assert curves.get(Curve(name, 2, "nvlink", series)) == expected, (name, series)
    # The library accepts the model.
    path = tmp_path / "own.costs"
    path.write_text(text)
    monkeypatch.setenv("NARROWCAST_COST_MODEL", str(path))
    for operation in narrowcast.operations():
        predicted = narrowcast.explain(operation, 100, dtype="bfloat16", ranks=2).predicted
        assert predicted.candidates["blocks:raw"].typical > 0
        assert predicted.candidates["blocks:window"].incompressible > 0


def test_lossy_codecs_are_measured_on_request_and_used_where_a_call_allows_them(on_fakes, tmp_path):
    times, _ = on_fakes(codecs=["int8", "int4"])
    series = {curve.series for curve in times.curves()}
    assert {"blocks:int8", "blocks:int4"} <= series
    assert not {"blocks:int8/incompressible", "blocks:int6"} & series  # payloads of a fixed length
    path = tmp_path / "own.costs"
    # The fakes copy as fast with any codec.
    text = times.text("a machine").splitlines()
    lines = [line for line in text if "blocks:int8 " not in line]
    path.write_text("\n".join([*lines, "all_gather 2 nvlink blocks:int8 1000:0.01 1000000:0.02"]))
    explain_one = functools.partial(narrowcast.explain, "all_gather", 100, dtype="float32", ranks=2, cost_model=path)
    within = explain_one(codec="within:relative=0.01")
    assert within.codec == "int8"
    assert within.codec_why == "it meets the error budget, and is predicted to be faster than the others that do"
    assert explain_one(codec="int8").predicted.chosen == within.predicted.chosen < 0.02
    assert explain_one().codec in ("raw", "window", "dense")


def test_only_lossy_codecs_without_parameters_can_be_tuned(cli_here, monkeypatch):
    monkeypatch.setattr(command, "device_count", lambda: 2)
    for codec in ("int8:group=128", "window", "nothing"):
        done = cli_here("tune", "--codec", codec)
        assert_one_line(done, 2, f"--codec {codec} is not a lossy codec of bfloat16 without parameters: int8,")


def test_long_calls_are_measured_in_shorter_batches():
    thorough = Schedule(False, 20, 3, 10, 20, check=False, l2_bytes=1)
    for size, calls in ((2, 20), (32 << 20, 20), (64 << 20, 16), (256 << 20, 4), (1 << 30, 4)):
        call = Call("all_gather", value_type("bfloat16"), size // 2 // 2, 0, 2)
        suited = suited_schedule(thorough, call)
        assert (suited.iterations, suited.graph_calls, suited.batches) == (calls, calls, 10)
    assert suited_schedule(dataclasses.replace(thorough, iterations=2, graph_calls=2), call).graph_calls == 2


def test_packets_are_measured_up_to_their_largest_size(on_fakes):
    # Between 4 ranks the packet buffers hold less than 5 MiB per rank.
    schedule = dataclasses.replace(BRIEF, size_factor=20)
    times, _ = on_fakes(ranks=4, operations=("broadcast",), last_bytes=8 << 20, schedule=schedule)
    curves = points_of(times.text("a machine"))
    sizes = [1 << 10, 20 << 10, 400 << 10, 8000 << 10]
    assert curves[Curve("broadcast", 4, "nvlink", "blocks:raw")] == sizes
    assert curves[Curve("broadcast", 4, "nvlink", "packets")] == sizes[:3]


def test_plans_of_the_user_are_measured_like_the_candidates(on_fakes, tmp_path):
    path = tmp_path / "ring.json"
    build("ring", "all_gather", 2).save(path)
    plans = plans_of([path], [2])[2]
    times, _ = on_fakes(operations=("all_gather", "broadcast"), plans=plans)
    curves = points_of(times.text("a machine"))
    raw = Curve("all_gather", 2, "nvlink", "blocks:raw")
    assert curves[raw._replace(series=plans[0].series)] == curves[raw]
    assert {curve.operation for curve in curves if curve.series == plans[0].series} == {"all_gather"}


def test_missing_variants_of_nccl_are_skipped_and_a_missing_nccl_is_an_error(on_fakes, monkeypatch):
    monkeypatch.setenv("FAKE_NCCL_NO_WINDOWS", "1")
    times, _ = on_fakes()
    assert Curve("all_gather", 2, "nvlink", "nccl") in times.curves()
    with pytest.raises(errors.RemoteError, match="NCCL cannot be loaded"):
        on_fakes(nccl="libcuda.so.1")


def test_missing_gpus_are_reported_in_one_line(cli_here, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "device_count", lambda: 0)
    done = cli_here("tune", "--quick")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "narrowcast: tune needs at least 2 CUDA GPUs, but none was found\n"
    monkeypatch.setattr(command, "device_count", lambda: 2)
    done = cli_here("tune", "--ranks", 4)
    assert (done.returncode, done.stdout) == (1, "")
    assert "4 ranks were requested, 2 GPUs were found" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--ranks", 1], "--ranks"),
        (["-o", "nowhere/a.costs"], "nowhere"),
        (["--from", "none.json", "--quick"], "--from"),
        (["--from", "none.json"], "none.json"),
        (["--from", "none.json", "--backend", "host"], "--from"),
        (["--backend", "gpu"], "'gpu'"),
        (["--backend", "host", "--nccl", "libnccl.so"], "--nccl"),
        (["--backend", "host", "--hosts", 2], "--hosts"),
        (["--from", "none.json", "--plan", "a.json"], "--plan"),
        (["--backend", "host", "--plan", "none.json"], "none.json"),
        (["--backend", "host", "--plan", "."], "has no plans"),
    ],
)
def test_invalid_arguments_are_rejected(cli_here, tmp_path, arguments, word):
    done = cli_here("tune", *arguments)
    assert done.returncode in (1, 2)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert word in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_measured_times_are_written_and_shown(cli_here, tmp_path, monkeypatch):
    def measured(times, ranks, schedule, *, hosts, nccl, codecs, plans):
        assert (schedule, hosts, codecs) == (command.QUICK, 1, ["int8", "int4"])
        for series, microseconds in (("packets", 2), ("blocks:raw", 9), ("blocks:window", 5), ("nccl", 8)):
            for count_bytes in (1 << 10, 1 << 20):
                slow = 1 if series in ("blocks:window", "nccl") else 50
                times.add(Curve("all_gather", ranks, "nvlink", series), count_bytes, microseconds)
                microseconds *= slow
        for plan in plans:
            for count_bytes, microseconds in ((1 << 10, 1), (1 << 18, 30), (1 << 20, 2)):
                times.add(Curve("all_gather", ranks, "nvlink", plan.series), count_bytes, microseconds)
        return "nvlink", f"{ranks} ranks"

    monkeypatch.setattr(command, "device_count", lambda: 4)
    monkeypatch.setattr(command, "measure", measured)
    monkeypatch.setattr(command.cuda_driver, "device_attribute", lambda _, gpu: 163 << 10 if gpu == 3 else 227 << 10)
    monkeypatch.setattr(_provenance, "machine", lambda: "Some GPU, 1, 2 MiB")
    (tmp_path / "plans").mkdir()
    build("ring", "all_gather", 2).save(tmp_path / "plans" / "ring.json")
    build("ring", "all_gather", 8).save(tmp_path / "plans" / "other.json")
    done = cli_here(
        "tune", "--quick", "--ranks", 2, "--ranks", 4, "--codec", "int8,int4", "--plan", "plans", "-o", "own.costs"
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = (tmp_path / "own.costs").read_text().splitlines()
    kernels = library().ncast_kernels_hash().decode()
    heading = ["narrowcast-costs 2 Some GPU, 1, 2 MiB", f"kernels {kernels}", "shared_kib 163"]
    assert lines[:5] == [*heading, "# 2 ranks", "# 4 ranks"]
    assert lines[5] == "all_gather 2 nvlink packets 1024:2.00 1048576:100.00"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.costs", "plans"]
    row = next(line for line in done.stdout.splitlines() if "ring@" in line)
    assert "all_gather" in row
    assert "1.00 KiB, 1.00 MiB" in row
    assert "2 ranks" in done.stdout
    assert "4 ranks" in done.stdout
    assert "packets, window from" in done.stdout
    assert f"NARROWCAST_COST_MODEL={tmp_path}/own.costs" in done.stdout


def report(tmp_path, **changes):
    """Writes a document of two reports, with weights and random bits. Returns its path."""

    def row(codec, count, time_us, ratio=None, contender="narrowcast"):
        return {
            "contender": contender,
            "codec": codec,
            "type": "bfloat16",
            "count": count,
            "time_us": time_us,
            "ratio": ratio,
        }

    run = {
        "operation": "sendrecv",
        "backend": "cuda",
        "ranks": 2,
        "graph_calls": 10,
        "ctas": 0,
        "in_place": False,
        "pattern": "ring",
        "link": "nvlink",
        "register": False,
        "group_calls": 1,
        "blocking": False,
        "average": bench_report.SLOWEST,
    }
    weights = [
        row("raw", 512, 2.0, 1.333),
        row("raw", 1024, 4.0, 1.0),
        row("window", 1024, 3.0, 0.7),
        row("auto", 1024, 3.5, 0.7),
        row(None, 1024, 7.0, contender="nccl"),
        row(None, 1024, 6.0, contender="nccl-symmetric"),
    ]
    runs = [
        {**run, "data": "weights", "rows": weights, **changes},
        {**run, "data": "random", "rows": [row("window", 1024, 4.5, 1.0)], **changes},
    ]
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"machine": "Some GPU", "commit": "abc", "runs": runs}))
    return path


@pytest.mark.parametrize("option", ["--from", "--plan"])
def test_an_input_is_not_overwritten(cli_here, tmp_path, option):
    path = report(tmp_path)
    content = path.read_bytes()
    assert_one_line(cli_here("tune", option, path, "-o", path), 2, f"{path} is the input")
    assert path.read_bytes() == content


def test_reports_are_converted_to_a_model(cli_here, tmp_path):
    done = cli_here("tune", "--from", report(tmp_path), "-o", "made.costs")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "made.costs").read_text().splitlines() == [
        "narrowcast-costs 2 Some GPU",
        "kernels unknown",
        "# report.json, commit abc",
        "send 2 nvlink packets 1024:2.00",
        "send 2 nvlink blocks:raw 2048:4.00",
        "send 2 nvlink blocks:window 2048:3.00",
        "send 2 nvlink blocks:window/incompressible 2048:4.50",
        "send 2 nvlink nccl 2048:6.00",
        "send 2 nvlink nccl:default 2048:7.00",
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"graph_calls": 0},
        {"backend": "host"},
        {"in_place": True},
        {"pattern": "one-way"},
        {"ctas": 4},
        {"register": True},
    ],
)
def test_reports_with_other_conditions_are_ignored(cli_here, tmp_path, changes):
    done = cli_here("tune", "--from", report(tmp_path, **changes), "-o", "made.costs")
    assert (done.returncode, done.stdout) == (2, "")
    assert "in graphs" in done.stderr
    assert not (tmp_path / "made.costs").exists()


def test_the_committed_measurements_give_a_model(cli_here, tmp_path):
    done = cli_here("tune", "--from", RESULTS / "4xh200" / "2026-11-27_collectives_weights.json", "-o", "made.costs")
    assert (done.returncode, done.stderr) == (0, "")
    # More than the heading and a remark. The table comes from the library, so the library has read the model.
    assert len((tmp_path / "made.costs").read_text().splitlines()) > 10
    assert "all_gather" in done.stdout


@pytest.mark.parametrize(("p2p", "link"), [("1", "nvlink"), ("0", "host")])
def test_bench_reports_the_link_of_its_calls(fakes, rank_jobs, monkeypatch, p2p, link):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fakes))
    monkeypatch.setenv("NARROWCAST_P2P", p2p)
    settings = {
        "operation": "all_gather",
        "data": "weights",
        "codecs": ["raw"],
        "op": "sum",
        "root": 0,
        "pattern": "ring",
        "in_place": False,
        "iterations": 2,
        "warmup": 1,
        "batches": 1,
        "graph_calls": 2,
        "group_calls": 1,
        "blocking": False,
        "average": bench_report.SLOWEST,
        "report_cputime": False,
        "against": [],
        "required": False,
        "nccl": None,
        "ctas": 0,
        "register": False,
        "hosts": 1,
    }
    blocks = [Block(value_type("bfloat16"), "sum", [1024])]
    options = {"check": False, "command": "", "quiet": True, "job": "fake_gpu_jobs:bench"}
    report = measure(settings, blocks, 2, **options)
    assert report["link"] == link
    times = Times()
    times.add_report(report)
    assert {curve.link for curve in times.curves()} == {link}


def test_both_links_are_shown(cli_here, tmp_path):
    peer = report(tmp_path).rename(tmp_path / "peer.json")
    done = cli_here("tune", "--from", peer, "--from", report(tmp_path, link="host"), "-o", "made.costs")
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 ranks, bfloat16" in done.stdout
    assert "2 ranks through host memory, bfloat16" in done.stdout


def test_times_between_hosts_are_shown_as_they_were_measured(cli_here, tmp_path, monkeypatch):
    def measured(times, ranks, schedule, *, hosts, nccl, codecs, plans):
        for series, microseconds in {
            "blocks:raw": (60, 500, 9000),
            "blocks:window": (61, 450, 7000),
            "blocks:dense": (62, 460, 6000),
            "nccl:default": (50, 480, 20000),
            **{plan.series: (70, 400, 9000) for plan in plans},
        }.items():
            for count_bytes, one in zip((1 << 10, 1 << 20, 1 << 26), microseconds, strict=True):
                times.add(Curve("all_gather", ranks, "gpu_network", series), count_bytes, one)
        return "gpu_network", f"{ranks} ranks on {hosts} hosts"

    monkeypatch.setattr(command, "device_count", lambda: 2)
    monkeypatch.setattr(command, "measure", measured)
    monkeypatch.setattr(command.cuda_driver, "device_attribute", lambda *_: 227 << 10)
    monkeypatch.setattr(_provenance, "machine", lambda: "Some GPU")
    build("ring", "all_gather", 2).save(tmp_path / "ring.json")
    done = cli_here("tune", "--hosts", 2, "--plan", "ring.json", "-o", "own.costs")
    assert (done.returncode, done.stderr) == (0, "")
    row = next(line for line in done.stdout.splitlines() if "raw" in line)
    assert "raw, window from 1.00 MiB, dense from 64.00 MiB" in row
    assert "1.00 MiB to 64.00 MiB" in row.split("dense", 1)[1]
    of_plan = next(line for line in done.stdout.splitlines() if "ring@" in line)
    assert of_plan.count("MiB") == 1
    assert "all_gather 2 gpu_network nccl:default 1024:50.00" in (tmp_path / "own.costs").read_text()


def test_ranks_take_themselves_to_be_on_several_hosts(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    hosts = []
    for rank in range(5):
        enter_host(rank, 5, 2)
        hosts.append(os.environ["NARROWCAST_HOSTID"])
        assert os.environ["NCCL_HOSTID"] == hosts[-1]
    assert hosts == ["host 0"] * 3 + ["host 1"] * 2
    os.environ.clear()
    enter_host(1, 2, 1)
    assert not os.environ


def test_a_report_with_another_link_is_rejected(cli_here, tmp_path):
    done = cli_here("tune", "--from", report(tmp_path, link="pigeon"), "-o", "made.costs")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "report.json is not a report of narrowcast bench between GPUs" in done.stderr
    assert not (tmp_path / "made.costs").exists()


def test_an_invalid_model_does_not_replace_the_file(cli_here, tmp_path):
    path = report(tmp_path)
    document = json.loads(path.read_text())
    # Without times of compressed calls the model is invalid.
    for run in document["runs"]:
        run["rows"] = [row for row in run["rows"] if row["codec"] == "raw"]
    path.write_text(json.dumps(document))
    (tmp_path / "keep.costs").write_text("old content")
    done = cli_here("tune", "--from", path, "-o", "keep.costs")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "keep.costs: there is no line 'send 2 nvlink blocks:window'" in done.stderr
    assert ".partial" not in done.stderr
    assert (tmp_path / "keep.costs").read_text() == "old content"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["keep.costs", "report.json"]


def test_calls_with_every_codec_are_measured(monkeypatch):
    window = next(one for one in narrowcast.codecs() if one.name == "window")
    other = dataclasses.replace(window, name="other")
    monkeypatch.setattr(cost_model, "codecs", lambda: (*narrowcast.codecs(), other))
    assert cost_model.coded("float64") == ["window", "dense", "abs", "rate", "other"]
    assert {"window", "dense", "int8", "nvfp4", "other"} <= set(cost_model.coded("bfloat16"))
    assert cost_model.coded("bfloat16", exact=True) == ["window", "dense", "other"]
    assert cost_model.coded("int32") == []
    times, rows = Times(), [{"codec": "other", "type": kind, "count": 8, "time_us": 2} for kind in ("float32", "int32")]
    conditions = {"graph_calls": 1, "ctas": 0, "in_place": False, "pattern": "ring", "ranks": 2, "link": "nvlink"}
    conditions |= {"register": False, "group_calls": 1, "blocking": False, "average": bench_report.SLOWEST}
    for data in ("weights", "random"):
        times.add_report({"backend": "cuda", "operation": "send", "data": data, "rows": rows, **conditions})
    series = ["blocks:other", "blocks:other/incompressible"]
    assert times.curves() == [Curve("send", 2, "nvlink", one) for one in series]


def test_nccl_has_its_fastest_time_and_other_series_their_median():
    times = Times()
    for series in ("blocks:raw", "nccl"):
        for microseconds in (5, 1, 3):
            times.add(Curve("send", 2, "nvlink", series), 64, microseconds)
    assert times.text("a machine", "a remark").splitlines() == [
        "narrowcast-costs 2 a machine",
        "kernels unknown",
        "# a remark",
        "send 2 nvlink blocks:raw 64:3.00",
        "send 2 nvlink nccl 64:1.00",
    ]


def test_changes_are_located_exactly():
    limits = (1, 37, 38, 1000)
    found = explain.changes(lambda number: sum(number >= limit for limit in limits[1:]), 1, 5000)
    assert found == [(1, 0), (37, 1), (38, 2), (1000, 3)]
    assert explain.changes(lambda number: number > 7, 5, 7) == [(5, False)]
