"""`narrowcast run`: what the command gets, how it ends, what is told of its traffic. The drop-in is a stand-in."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from narrowcast import _preload, _prometheus, _supervise, _traffic
from narrowcast.cli import run_report

HERE = Path(__file__).parent
REASON = 'count is below the "floor"'
COMMUNICATORS = [
    {
        "id": "c0ffee00c0ffee00",
        "rank": 1,
        "ranks": 2,
        "scratch_bytes": 1 << 20,
        "raw_bytes": 3000,
        "wire_bytes": 2100,
        "operations": [
            {
                "operation": "all_gather",
                "taken": 3,
                "captured": 0,
                "forwarded": 2,
                "reasons": {REASON: 2},
                "raw_bytes": 3000,
                "predicted": 0,
                "saved_seconds": 0,
            }
        ],
    }
]


@pytest.fixture
def nccl(tmp_path):
    path = tmp_path / "real" / "libnccl.so.2"
    path.parent.mkdir()
    path.write_bytes(b"no matter what")
    return path


@pytest.fixture
def run(cli, stand_in, nccl):
    """`narrowcast run` with the stand-in."""

    def start(*arguments, **environment):
        given = {
            "NARROWCAST_LIBRARY": str(stand_in / "libnarrowcast.so"),
            "NARROWCAST_NCCL_LIBRARY": str(nccl),
            "NARROWCAST_TEST_COMMUNICATORS": json.dumps(COMMUNICATORS),
        }
        return cli("run", *arguments, **{**given, **environment})

    return start


def shown_environment(done):
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def test_the_command_gets_the_drop_in_and_the_settings(run, stand_in, nccl, tmp_path):
    (tmp_path / "settings.toml").touch()
    options = ["--codec", "raw", "--codec", "all_reduce=window", "--off", "send", "--off", "recv", "--take", "always"]
    options += ["--config", "settings.toml", "--verify", "--debug", "info", "--attach", "init"]
    done = run("-q", *options, "--", "env", LD_PRELOAD="/lib/other.so", NARROWCAST_CODEC="auto", NARROWCAST_P2P="0")
    assert done.returncode == 0
    found = shown_environment(done)
    library = str(stand_in / _preload.NAME)
    stats = Path(found["NARROWCAST_STATS"])
    assert {name: value for name, value in found.items() if re.match("NARROWCAST_(?!TEST_)", name)} == {
        "NARROWCAST_LIBRARY": str(stand_in / "libnarrowcast.so"),
        "NARROWCAST_NCCL_LIBRARY": str(nccl),
        "NARROWCAST_CODEC": "raw,all_reduce=window",
        "NARROWCAST_OFF": "send,recv",
        "NARROWCAST_TAKE": "always",
        "NARROWCAST_ATTACH": "init",
        "NARROWCAST_CONFIG": str(tmp_path / "settings.toml"),
        "NARROWCAST_VERIFY": "1",
        "NARROWCAST_DEBUG": "info",
        "NARROWCAST_P2P": "0",
        "NARROWCAST_STATS": str(stats),
        "NARROWCAST_STATS_SECONDS": "2",
    }
    assert found["LD_PRELOAD"] == f"{library}:/lib/other.so"
    assert found["VLLM_NCCL_SO_PATH"] == found["SGLANG_NCCL_SO_PATH"] == library
    assert stats.name == "%p.json"
    assert not stats.parent.exists()


def test_everything_can_be_left_to_nccl(run):
    assert shown_environment(run("-q", "--off", "1", "--", "env"))["NARROWCAST_OFF"] == "1"


def test_a_report_that_cannot_be_written_costs_neither_the_table_nor_the_status(run, tmp_path):
    (tmp_path / "folder").mkdir()
    done = run("--stats", "folder/s.json", "--", "sh", "-c", "rmdir folder; exit 7")
    assert (done.returncode, done.stdout) == (7, "")
    assert "warning: --stats folder/s.json is not written: No such file or directory\n" in done.stderr
    assert "all_gather" in done.stderr


def test_options_after_the_command_are_its_own(run):
    done = run("-q", "echo", "--codec", "none", "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "--codec none -q\n", "")


def test_the_report_sums_the_ranks(run, tmp_path):
    done = run("--stats", "out.json", "--", "sh", "-c", "true; /bin/true; exit 0")
    assert (done.returncode, done.stdout) == (0, "")
    row = next(line for line in done.stderr.splitlines() if "all_gather" in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells[:6] == ["c0ffee00c0ff", "1 of 2", "5.86 KiB", "4.10 KiB", "0.700", "all_gather"]
    assert cells[6:] == ["6", "4", f"{REASON} (4)"]
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
            "raw_bytes": 6000,
            "predicted": 0,
            "saved_seconds": 0,
        }
    ]


def of_all_gather(**changes):
    """The one communicator, with changes to its operation."""
    return [{**COMMUNICATORS[0], "operations": [{**COMMUNICATORS[0]["operations"][0], **changes}]}]


@pytest.mark.parametrize(("predicted", "cell"), [(3, "1.250 s"), (2, "1.250 s of 2 calls")])
def test_time_saved_is_told_where_the_drop_in_gives_it(run, predicted, cell):
    given = json.dumps(of_all_gather(predicted=predicted, saved_seconds=1.25))
    table = run("--", "true", NARROWCAST_TEST_COMMUNICATORS=given).stderr
    row = next(line for line in table.splitlines() if "all_gather" in line)
    assert cell in [part.strip() for part in row.split("│")]
    assert "not measured" in table
    assert "saved" not in run("--", "true").stderr


def test_time_saved_is_that_of_a_rank(tmp_path):
    for rank in range(2):
        content = {"pid": rank, "communicators": of_all_gather(predicted=3, saved_seconds=1.5)}
        content["communicators"][0]["rank"] = rank
        (tmp_path / f"{rank}.json").write_text(json.dumps(content))
    report = _traffic.read_folder(tmp_path)
    (total,) = report.communicators()
    assert total.operations["all_gather"].saved_seconds == 3
    assert run_report._saved(total.operations["all_gather"], len(total.reported)) == "1.500 s"


def test_calls_in_graphs_are_marked(run):
    given = json.dumps(of_all_gather(captured=2))
    table = run("--", "true", NARROWCAST_TEST_COMMUNICATORS=given).stderr
    row = next(line for line in table.splitlines() if "all_gather" in line)
    cells = [part.strip() for part in row.split("│")]
    assert cells[3:9] == ["2.93 KiB*", "2.05 KiB*", "0.700*", "all_gather", "3", "2"]
    assert "replays are not seen" in table
    assert "graph" not in run("--", "true").stderr


def test_what_is_not_known_of_the_links_is_not_made_up(run, tmp_path):
    given = json.dumps([{**COMMUNICATORS[0], "raw_bytes": None, "wire_bytes": None}])
    table = run("--stats", "out.json", "--", "true", NARROWCAST_TEST_COMMUNICATORS=given).stderr
    row = next(line for line in table.splitlines() if "all_gather" in line)
    assert [part.strip() for part in row.split("│")][3:6] == ["-"] * 3
    (communicator,) = json.loads((tmp_path / "out.json").read_text())["communicators"]
    assert (communicator["raw_bytes"], communicator["wire_bytes"], communicator["ratio"]) == (None, None, None)
    (tmp_path / "7.json").write_text(json.dumps({"pid": 7, "communicators": json.loads(given)}))
    metrics = _prometheus.text(_traffic.read_folder(tmp_path))
    assert "narrowcast_calls_total{" in metrics
    assert "narrowcast_link_wire_bytes_total{" not in metrics


def test_a_process_that_is_killed_has_reported_before(run, tmp_path):
    done = run("-q", "--stats", "out.json", "--", "sh", "-c", "kill -KILL $$")
    assert done.returncode == 128 + signal.SIGKILL
    assert json.loads((tmp_path / "out.json").read_text())["communicators"][0]["operations"][0]["taken"] == 3


def test_no_traffic_and_broken_reports_are_told_of(run):
    assert "no call of NCCL" in run("--", "true", NARROWCAST_TEST_COMMUNICATORS="[]").stderr
    done = run("--", "true", NARROWCAST_TEST_COMMUNICATORS='[{"id": 1')
    assert done.returncode == 0
    assert re.search(r"warning: \d+\.json is no report of a process: JSONDecodeError", done.stderr)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--"], 2, ["COMMAND"]),
        (["--off", "all_reduc", "true"], 2, ["all_reduc", "all_reduce"]),
        (["--off", "1", "--off", "send", "true"], 2, ["--off 1", "alone"]),
        (["--stats", "nowhere/s.json", "echo", "started"], 1, ["nowhere/s.json: No such file or directory"]),
        (["--stats", "folder", "echo", "started"], 1, ["folder", "not a regular file"]),
        (["--codec", "zip", "true"], 2, ["zip", "auto, raw, window"]),
        (["--codec", "all_median=raw", "true"], 2, ["all_median"]),
        (["--take", "some", "true"], 2, ["some", "never"]),
        (["--attach", "soon", "true"], 2, ["soon", "init"]),
        (["--debug", "loud", "true"], 2, ["loud", "TRACE"]),
        (["--prometheus", "host:port", "true"], 2, ["'port'"]),
        (["--prometheus", "70000", "true"], 2, ["70000"]),
        (["--config", "nothing.toml", "true"], 1, ["nothing.toml", "No such file"]),
        (["--config", "folder", "true"], 1, ["folder", "Is a directory"]),
        (["--nccl", "nothing.so", "true"], 1, ["nothing.so", "it is not a file"]),
        (["nothing-of-that-name"], 127, ["nothing-of-that-name: No such file"]),
        (["./folder"], 126, ["./folder: Permission denied"]),
    ],
)
def test_what_cannot_be_run_is_one_sentence(run, tmp_path, arguments, status, words):
    (tmp_path / "folder").mkdir()
    done = run(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1), done
    for word in words:
        assert word in done.stderr


def test_a_child_that_ends_late_finds_a_handler(tmp_path):
    # Python writes of a signal that nobody handles any more to stderr.
    before = {one: signal.getsignal(one) for one in (signal.SIGCHLD, signal.SIGTERM)}
    try:
        with pytest.raises(PermissionError):
            _supervise.run([str(tmp_path)], os.environ)
        assert callable(signal.getsignal(signal.SIGCHLD))
        assert signal.getsignal(signal.SIGTERM) == before[signal.SIGTERM]
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def test_replaced_and_unknown_variables_are_told_of(run):
    done = run("-q", "true", VLLM_NCCL_SO_PATH="/opt/libnccl.so.2", NARROWCAST_STATS="x", NARROWCAST_CODEX="raw")
    assert "VLLM_NCCL_SO_PATH gives way to Narrowcast; --nccl /opt/libnccl.so.2 keeps" in done.stderr
    assert "NARROWCAST_STATS is not followed" in done.stderr
    assert "NARROWCAST_CODEX is not known to Narrowcast (did you mean NARROWCAST_CODEC?)" in done.stderr


def test_a_build_without_the_drop_in_is_told_of(run, tmp_path):
    (tmp_path / "libnarrowcast.so").touch()
    done = run("true", NARROWCAST_LIBRARY=str(tmp_path / "libnarrowcast.so"))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"{_preload.NAME} is missing" in done.stderr


@pytest.mark.parametrize("status", [0, 3, 255])
def test_the_exit_status_is_the_commands(run, status):
    assert run("-q", "sh", "-c", f"exit {status}").returncode == status


@pytest.fixture
def started(tmp_path, stand_in, nccl):
    """Starts `narrowcast run` and leaves it running; waits until the command says that it is ready."""
    processes = []

    def start(*arguments):
        given = {
            "NARROWCAST_LIBRARY": str(stand_in / "libnarrowcast.so"),
            "NARROWCAST_NCCL_LIBRARY": str(nccl),
            "NARROWCAST_TEST_COMMUNICATORS": json.dumps(COMMUNICATORS),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "narrowcast", "run", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **given},
            start_new_session=True,
        )
        processes.append(process)
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


COUNTS_SIGNALS = """
import signal, sys, time
got = []
for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(one, lambda number, _: got.append(number))
print("ready", flush=True)
while not got:
    time.sleep(0.01)
time.sleep(0.2)
print(*got)
sys.exit(40 + len(got))
"""


@pytest.fixture
def hangups_count():
    """Commands inherit what is ignored, as SIGHUP is under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangups_count")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_reaches_the_command_once(started, number):
    process = started("-q", sys.executable, "-c", COUNTS_SIGNALS)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (out.strip(), err, process.returncode) == (str(int(number)), "", 41)


def test_a_command_that_a_signal_ends_is_told_of_by_the_status(started):
    process = started("-q", "--", "sh", "-c", "echo ready; exec sleep 60")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM


def test_the_commands_signals_are_as_they_were(run):
    code = "import signal; print(signal.getsignal(signal.SIGTERM) == 0, signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    assert run("-q", sys.executable, "-c", code).stdout == "True set()\n"
    # Python ignores SIGPIPE itself, so ask something else.
    ignored = run("-q", "grep", "SigIgn", "/proc/self/status").stdout.split()[1]
    assert int(ignored, 16) & (1 << (signal.SIGPIPE - 1)) == 0


@pytest.mark.parametrize("repetition", range(5))
def test_a_command_that_ends_at_once_is_not_missed(run, repetition):
    assert run("-q", "true").returncode == 0


def test_ctrl_c_reaches_the_command_once(stand_in, nccl, tmp_path):
    given = {"NARROWCAST_LIBRARY": str(stand_in / "libnarrowcast.so"), "NARROWCAST_NCCL_LIBRARY": str(nccl)}
    child, terminal = pty.fork()
    if not child:
        os.chdir(tmp_path)
        command = [sys.executable, "-m", "narrowcast", "run", "-q", sys.executable, "-c", COUNTS_SIGNALS]
        os.execve(sys.executable, command, {**os.environ, **given})
    shown = b""
    while b"ready" not in shown:
        shown += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    # Linux ends a terminal that nobody holds any more with EIO.
    with contextlib.suppress(OSError):
        while more := os.read(terminal, 4096):
            shown += more
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 41, shown
    os.close(terminal)


def test_prometheus_reads_while_it_runs(started):
    process = started("--prometheus", "0", "--", "sh", "-c", "echo ready; read line")
    url = re.search(r"metrics at (http://127\.0\.0\.1:\d+/metrics)", process.stderr.readline())[1]
    deadline = time.monotonic() + 20
    while True:
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text = answer.read().decode()
        if "narrowcast_link_wire_bytes_total{" in text or time.monotonic() > deadline:
            break
    key = 'communicator="c0ffee00c0ffee00",rank="1",operation="all_gather"'
    assert f'narrowcast_calls_total{{{key},by="narrowcast"}} 3\n' in text
    assert f'narrowcast_calls_total{{{key},by="nccl"}} 2\n' in text
    assert f"narrowcast_raw_bytes_total{{{key}}} 3000\n" in text
    key = 'communicator="c0ffee00c0ffee00",rank="1"'
    assert f"narrowcast_link_raw_bytes_total{{{key}}} 3000\n" in text
    assert f"narrowcast_link_wire_bytes_total{{{key}}} 2100\n" in text
    assert f"narrowcast_scratch_bytes{{{key}}} {1 << 20}\n" in text
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url.replace("metrics", "other"), timeout=10)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)


def test_communicators_whose_ranks_did_not_agree_on_an_id_are_summed_by_their_place(tmp_path):
    for pid, rank in ((7, 0), (11, 1)):
        both = [{**COMMUNICATORS[0], "id": "", "rank": rank}, {**COMMUNICATORS[0], "id": "", "rank": 0, "ranks": 1}]
        (tmp_path / f"{pid}.json").write_text(json.dumps({"pid": pid, "communicators": both}))
    pair, alone = _traffic.read_folder(tmp_path).communicators()
    assert (pair.communicator, pair.ranks, pair.reported) == ("", 2, {0, 1})
    assert pair.operations["all_gather"].taken == 6
    assert (alone.ranks, alone.reported) == (1, {0})


def test_a_port_in_use_is_told_of_before_the_command_starts(run):
    server = _prometheus.MetricsServer("127.0.0.1", 0, str)
    try:
        port = server.url.rpartition(":")[2].partition("/")[0]
        done = run("--prometheus", port, "echo", "started")
    finally:
        server.close()
    assert (done.returncode, done.stdout) == (1, "")
    assert "nothing can listen at 127.0.0.1" in done.stderr


def test_metrics_follow_the_format(tmp_path):
    for pid, rank in ((7, 0), (11, 1)):
        content = {"pid": pid, "communicators": [{**COMMUNICATORS[0], "rank": rank}] * 2}
        (tmp_path / f"{pid}.json").write_text(json.dumps(content))
    text = _prometheus.text(_traffic.read_folder(tmp_path))
    assert text.endswith("\n")
    assert "narrowcast_processes 2\n" in text
    # A set of labels once only, and quotes in them escaped.
    keys = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(keys) == len(set(keys))
    assert 'reason="count is below the \\"floor\\""} 4\n' in text
    families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert families == sorted(set(families), key=families.index)
    assert {key.partition("{")[0] for key in keys} <= set(families)
