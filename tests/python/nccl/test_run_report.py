"""`narrowcast run`: its report of the traffic, and the metrics for Prometheus. The drop-in is a stand-in."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import struct
import threading
import time
import urllib.parse
import urllib.request

import pytest
from narrowcast._dropin import prometheus, traffic
from narrowcast.cli import run_report
from run_traffic import COMMUNICATORS, REASON


def test_an_unwritable_report_affects_neither_table_nor_status(run, tmp_path):
    (tmp_path / "folder").mkdir()
    done = run("--stats", "folder/s.json", "--", "sh", "-c", "rmdir folder; exit 7")
    assert (done.returncode, done.stdout) == (7, "")
    assert "warning: --stats folder/s.json could not be written: No such file or directory\n" in done.stderr
    assert "all_gather" in done.stderr


def test_the_report_sums_the_ranks(run, tmp_path):
    done = run("--stats", "out.json", "--", "sh", "-c", "true; /bin/true; exit 0")
    assert (done.returncode, done.stdout) == (0, "")
    row = next(line for line in done.stderr.splitlines() if "all_gather" in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells[:3] == ["c0ffee00c0ff", "1 of 2", "all_gather"]
    assert cells[3:] == ["6", "5.86 KiB", "4.10 KiB", "0.700", "4", f"{REASON} (4)"]
    words = 'not exact: 4 of 6 all_gather between 2 ranks used int8:group=32, which a "rule" allows.'
    assert words in " ".join(done.stderr.split())
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["status"] == 0
    assert written["faults"] == []
    assert len(written["processes"]) == 2
    (communicator,) = written["communicators"]
    assert communicator["reported_ranks"] == [1]
    assert communicator["scratch_bytes"] == 1 << 20
    assert (communicator["raw_bytes"], communicator["wire_bytes"], communicator["ratio"]) == (6000, 4200, 0.7)
    assert communicator["operations"] == [
        {
            "operation": "all_gather",
            "taken": 6,
            "captured": 0,
            "forwarded": 4,
            "reasons": {REASON: 4},
            "plans": {"a plan": 2},
            "lossy": [{"rule": 'a "rule"', "codec": "int8:group=32", "calls": 4}],
            "raw_bytes": 6000,
            "wire_bytes": 4200,
            "ratio": 0.7,
            "predicted": 0,
            "saved_seconds": 0,
            "time_ratio": None,
        }
    ]


def of_all_gather(**changes):
    """The one communicator, with changes to its operation."""
    return [{**COMMUNICATORS[0], "operations": [{**COMMUNICATORS[0]["operations"][0], **changes}]}]


@pytest.mark.parametrize(("predicted", "cell"), [(3, "1.250 s"), (2, "1.250 s of 2 calls")])
def test_saved_time_is_shown_if_the_drop_in_reports_it(run, predicted, cell):
    given = json.dumps(of_all_gather(predicted=predicted, saved_seconds=1.25))
    table = run("--", "true", NARROWCAST_TEST_COMMUNICATORS=given).stderr
    row = next(line for line in table.splitlines() if "all_gather" in line)
    assert cell in [part.strip() for part in row.split("│")]
    assert "not measured" in table
    assert "saved" not in run("--", "true").stderr


@pytest.mark.parametrize(("ratio", "is_reported"), [(1.5, True), (0.7, True), (1.2, False), (None, False)])
def test_predictions_that_miss_are_reported(run, ratio, is_reported):
    given = json.dumps(of_all_gather(time_ratio=ratio))
    said = " ".join(run("--", "true", NARROWCAST_TEST_COMMUNICATORS=given).stderr.split())
    words = f"all_gather between 2 ranks takes {ratio or 0:.2f} times the predicted time: narrowcast tune measures"
    assert (words in said) == is_reported


def test_saved_time_is_per_rank(tmp_path):
    for rank in range(2):
        content = {"pid": rank, "communicators": of_all_gather(predicted=3, saved_seconds=1.5)}
        content["communicators"][0]["rank"] = rank
        (tmp_path / f"{rank}.json").write_text(json.dumps(content))
    report = traffic.read_folder(tmp_path)
    (total,) = report.communicators()
    assert total.operations["all_gather"].saved_seconds == 3
    assert run_report._saved(total.operations["all_gather"], len(total.reported)) == "1.500 s"


def test_calls_in_graphs_are_counted_separately(run):
    given = json.dumps(of_all_gather(captured=2))
    table = run("--", "true", NARROWCAST_TEST_COMMUNICATORS=given).stderr
    row = next(line for line in table.splitlines() if "all_gather" in line)
    cells = [part.strip() for part in row.split("│")]
    assert cells[3:9] == ["all_gather", "3", "2", "2.93 KiB", "2.05 KiB", "0.700"]
    assert "counted once" in table
    assert "graph" not in run("--", "true").stderr


def test_unknown_traffic_is_shown_as_unknown(run, tmp_path):
    given = json.dumps(of_all_gather(raw_bytes=None, wire_bytes=None))
    table = run("--stats", "out.json", "--", "true", NARROWCAST_TEST_COMMUNICATORS=given).stderr
    row = next(line for line in table.splitlines() if "all_gather" in line)
    assert [part.strip() for part in row.split("│")][5:8] == ["-"] * 3
    (communicator,) = json.loads((tmp_path / "out.json").read_text())["communicators"]
    for one in (communicator, *communicator["operations"]):
        assert (one["raw_bytes"], one["wire_bytes"], one["ratio"]) == (None, None, None)
    (tmp_path / "7.json").write_text(json.dumps({"pid": 7, "communicators": json.loads(given)}))
    metrics = prometheus.text(traffic.read_folder(tmp_path))
    assert "narrowcast_calls_total{" in metrics
    assert "narrowcast_wire_bytes_total{" not in metrics


def test_killed_processes_have_reported_before(run, tmp_path):
    done = run("-q", "--stats", "out.json", "--", "sh", "-c", "kill -KILL $$")
    assert done.returncode == 128 + signal.SIGKILL
    assert json.loads((tmp_path / "out.json").read_text())["communicators"][0]["operations"][0]["taken"] == 3


def test_missing_traffic_and_broken_reports_are_reported(run):
    assert "no calls of NCCL" in run("--", "true", NARROWCAST_TEST_COMMUNICATORS="[]").stderr
    done = run("--", "true", NARROWCAST_TEST_COMMUNICATORS='[{"id": 1')
    assert done.returncode == 0
    assert re.search(r"warning: \d+\.json is not a valid report: JSONDecodeError", done.stderr)


def test_communicators_without_an_id_are_summed_by_their_position(tmp_path):
    for pid, rank in ((7, 0), (11, 1)):
        both = [{**COMMUNICATORS[0], "id": "", "rank": rank}, {**COMMUNICATORS[0], "id": "", "rank": 0, "ranks": 1}]
        (tmp_path / f"{pid}.json").write_text(json.dumps({"pid": pid, "communicators": both}))
    pair, alone = traffic.read_folder(tmp_path).communicators()
    assert (pair.communicator, pair.ranks, pair.reported) == ("", 2, {0, 1})
    assert pair.operations["all_gather"].taken == 6
    assert (alone.ranks, alone.reported) == (1, {0})


def test_prometheus_reads_while_it_runs(started_run):
    process = started_run("--prometheus", "0", "--", "sh", "-c", "echo ready; read line")
    url = re.search(r"metrics at (http://127\.0\.0\.1:\d+/metrics)", process.stderr.readline())[1]
    deadline = time.monotonic() + 20
    while True:
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text = answer.read().decode()
        if "narrowcast_wire_bytes_total{" in text or time.monotonic() > deadline:
            break
    key = 'communicator="c0ffee00c0ffee00",rank="1",operation="all_gather"'
    assert f'narrowcast_calls_total{{{key},by="narrowcast"}} 3\n' in text
    assert f'narrowcast_calls_total{{{key},by="nccl"}} 2\n' in text
    assert f'narrowcast_lossy_calls_total{{{key},rule="a \\"rule\\"",codec="int8:group=32"}} 2\n' in text
    assert f"narrowcast_raw_bytes_total{{{key}}} 3000\n" in text
    assert f"narrowcast_wire_bytes_total{{{key}}} 2100\n" in text
    key = 'communicator="c0ffee00c0ffee00",rank="1"'
    assert f"narrowcast_scratch_bytes{{{key}}} {1 << 20}\n" in text
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url.replace("metrics", "other"), timeout=10)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)


def test_a_port_in_use_is_reported_before_the_command_starts(run):
    server = prometheus.MetricsServer("127.0.0.1", 0, str)
    try:
        port = server.url.rpartition(":")[2].partition("/")[0]
        done = run("--prometheus", port, "echo", "started")
    finally:
        server.close()
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot listen at 127.0.0.1" in done.stderr


@pytest.fixture
def served():
    """The address of a server of metrics."""
    server = prometheus.MetricsServer("127.0.0.1", 0, lambda: "the metrics")
    server.start()
    address = urllib.parse.urlsplit(server.url)
    yield address.hostname, address.port
    server.close()


def answer_of(address):
    with urllib.request.urlopen(f"http://{address[0]}:{address[1]}/metrics", timeout=20) as answer:
        return answer.read()


@pytest.mark.parametrize("request_line", [b"", b"GET /metrics HTTP/1.1\r\nHost: x"], ids=["silent", "unfinished"])
def test_the_metrics_server_ends_connections_that_last_too_long(served, monkeypatch, request_line):
    monkeypatch.setattr(prometheus, "CONNECTION_SECONDS", 0.2)
    with socket.create_connection(served, timeout=20) as slow:
        slow.sendall(request_line)
        assert slow.recv(1) == b""
    assert answer_of(served) == b"the metrics"


def test_the_metrics_server_has_a_limited_number_of_connections(served):
    with contextlib.ExitStack() as opened:
        for _ in range(prometheus.MAX_CONNECTIONS):
            opened.enter_context(socket.create_connection(served, timeout=20))
        with socket.create_connection(served, timeout=20) as refused:
            assert refused.recv(1) == b""
    # The others have been closed, and the server finds out.
    for _ in range(200):
        with contextlib.suppress(OSError):
            assert answer_of(served) == b"the metrics"
            return
        time.sleep(0.1)
    raise AssertionError("the server does not answer any more")


def test_the_metrics_server_prints_nothing_about_broken_connections(served, capfd):
    with socket.create_connection(served, timeout=20) as broken:
        broken.sendall(b"GET /metrics HTTP/1.1\r\n")
        broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, not closed
    assert answer_of(served) == b"the metrics"
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join(20)
    assert capfd.readouterr().err == ""


def test_reports_that_are_not_regular_files_are_reported_and_do_not_block(tmp_path):
    os.mkfifo(tmp_path / "7.json")
    assert traffic.read_folder(tmp_path).faults == [
        f"7.json is not a valid report: OSError: [Errno 22] it is not a regular file: '{tmp_path}/7.json'"
    ]


def test_metrics_follow_the_format(tmp_path):
    for pid, rank in ((7, 0), (11, 1)):
        content = {"pid": pid, "communicators": [{**COMMUNICATORS[0], "rank": rank}] * 2}
        (tmp_path / f"{pid}.json").write_text(json.dumps(content))
    text = prometheus.text(traffic.read_folder(tmp_path))
    assert text.endswith("\n")
    assert "narrowcast_processes 2\n" in text
    # Every set of labels occurs once, and quotes in labels are escaped.
    keys = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(keys) == len(set(keys))
    assert 'reason="count is below the \\"floor\\""} 4\n' in text
    families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert families == sorted(set(families), key=families.index)
    assert {key.partition("{")[0] for key in keys} <= set(families)
