"""`narrowcast try` with programs on the drop-in, on the fakes of the driver and NCCL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

JOBS = Path(__file__).parents[1] / "nccl" / "try_jobs.py"


@pytest.fixture
def trying(cli, with_host_drop_in, rank_jobs):
    """`narrowcast try` with a program of try_jobs.py, which is `factor` times as slow with Narrowcast."""

    def start(name, *options, count=1000, factor=1.0, **environment):
        given = {**with_host_drop_in, "NCCL_NVLS_ENABLE": "0", "TRY_FACTOR": str(factor), **environment}
        return cli("try", *options, "--", sys.executable, JOBS, name, count, **given)

    return start


def test_a_faster_program_is_found_and_its_settings_written(trying, tmp_path, cli, with_host_drop_in):
    options = ["--steps", "15", "--rounds", "5", "--profile", "always", "--json", "-o", "best.toml"]
    done = trying("train", *options, factor=0.2)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["verdict"]["answer"], report["verdict"]["best"]) == ("faster", "always")
    assert "3 calls of more than 4 KiB on a communicator of 2 ranks" in report["step"]
    nccl, best = report["profiles"]
    assert (nccl["name"], best["settings"]) == ("nccl", {"take": "always"})
    assert best["difference"]["ratio"] < 0.9
    # A rank computes for 15 to 21 ms in a step, and waits for the other one.
    assert 0.015 < nccl["step_seconds"] < 1.5
    for run in nccl["runs"]:
        assert run["stopped"]
        assert 15 <= run["steps"] < 500
        assert run["executed"] == 0
        assert run["calls"] == pytest.approx(4.1, abs=0.2)
        assert run["waiting_seconds"] <= run["gpu_seconds"]
    lines = done.stderr.splitlines()
    assert lines[0].startswith("narrowcast: run 1, nccl: ")
    assert lines[0].endswith("steps, then stopped")
    assert lines[1].startswith("narrowcast: run 2, always: ")
    assert lines[2].startswith("narrowcast: run 3, always: ")
    assert (tmp_path / "best.toml").read_text().splitlines()[1] == 'take = "always"'
    assert "use the profile always" in (tmp_path / "best.toml").read_text()
    started = cli("run", "-q", "--config", "best.toml", "--", "echo", "started", **with_host_drop_in)
    assert (started.returncode, started.stdout) == (0, "started\n"), started.stderr


def test_a_program_that_nccl_runs_faster_is_left_to_it(trying, tmp_path):
    options = ["--steps", "8", "--rounds", "5", "--profile", "always", "-q", "-o", "best.toml"]
    done = trying("train", *options, factor=3)
    assert (done.returncode, done.stderr) == (0, "")
    assert "NCCL alone is faster: leave it. With the profile always a step takes " in done.stdout
    assert "more time" in done.stdout
    assert "stopped after enough steps" in done.stdout
    assert (tmp_path / "best.toml").read_text().splitlines()[1] == "off = 1"


def test_the_step_of_a_program_that_changes_and_skips_calls_is_found(trying):
    done = trying("changing", "--steps", "0", "--profile", "default", "--json", "-q", count=120)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["step"] == "2 calls of more than 4 KiB on a communicator of 2 ranks"
    for profile in report["profiles"]:
        (run,) = profile["runs"]
        # 90 steps have the pattern of the end; a fifth of them is irregular.
        assert 50 <= run["steps"] <= 80
        assert 0.004 < run["host_seconds"] < 0.4


def test_programs_may_mark_their_steps_and_end_by_themselves(trying):
    options = ["--steps", "0", "--rounds", "2", "--profile", "always", "-q"]
    done = trying("marked", *options, count=30)
    assert done.returncode == 0, done.stderr
    assert "A step: between two calls of mark_step(). Times by the clock of the host" in done.stdout
    assert "stopped" not in done.stdout


def test_profiles_with_which_narrowcast_executes_no_calls_run_once(trying):
    # The cost model predicts no gain on the fakes.
    done = trying("train", "--steps", "10", "--profile", "default", "--profile", "ctas-16", factor=0.2)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 3
    assert "leave it. Narrowcast executes no calls" in " ".join(done.stdout.split())


def test_a_settings_file_is_a_profile(trying, tmp_path):
    (tmp_path / "own.toml").write_text("take = 'always'\ncodec = 'raw'\n")
    options = ["--steps", "0", "--rounds", "2", "--profile", "own.toml", "--json", "-q"]
    done = trying("train", *options, count=25)
    assert done.returncode == 0, done.stderr
    nccl, own = json.loads(done.stdout)["profiles"]
    assert {run["executed"] for run in nccl["runs"]} == {0}
    assert all(run["executed"] == run["calls"] for run in own["runs"])
    assert Path(own["file"]) == tmp_path / "own.toml"


def test_a_program_without_a_period_is_told_what_to_do(trying):
    done = trying("irregular", "--steps", "0", count=60)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "no period was found in the 60 calls of a rank with NCCL alone: call narrowcast.mark_step()" in line
    assert "--whole" in line


def test_whole_runs_can_be_compared(trying):
    options = ["--whole", "--rounds", "2", "--profile", "always", "--json", "-q"]
    done = trying("irregular", *options, count=50, factor=4)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["verdict"]["answer"] in ("slower", "unknown")
    assert report["step"] == "the whole command, from its first call to the last one"
    assert report["profiles"][1]["difference"]["ratio"] > 1.5


def test_a_run_that_hangs_is_ended(trying):
    done = trying("hanging", "--timeout", "4")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the command did not end within 4 seconds with NCCL alone" in done.stderr


def test_the_end_of_the_output_of_a_failing_command_is_shown(trying):
    done = trying("failing", "--steps", "10", "--rounds", "2", "--profile", "default", "-q", factor=2)
    assert (done.returncode, done.stdout) == (1, "")
    assert "out of luck" in done.stderr
    assert done.stderr.splitlines()[-1].startswith(
        "narrowcast: the command ended with status 1 with the profile default"
    )


def test_programs_without_nccl_are_told_to_use_the_doctor(trying, cli, with_host_drop_in):
    done = cli("try", "--", "sh", "-c", "echo nothing", **with_host_drop_in)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "nothing"
    assert "made no calls of NCCL that could be recorded with NCCL alone: narrowcast doctor -- COMMAND" in done.stderr


@pytest.mark.parametrize(
    ("options", "environment", "words"),
    [
        (["--profile", "fast"], {}, "--profile fast: unknown profile (known: default, ctas-64"),
        (["--profile", "bad.toml"], {}, "--profile bad.toml: bad.toml:1: takes is not a setting"),
        ([], {"NARROWCAST_MAX_CTAS": "4"}, "NARROWCAST_MAX_CTAS is set, which overrides profiles"),
        (["--rounds", "1"], {}, "--rounds"),
        (["--steps", "-1"], {}, "--steps"),
    ],
)
def test_bad_arguments_are_reported_before_anything_runs(
    cli_here, with_host_drop_in, tmp_path, options, environment, words
):
    (tmp_path / "bad.toml").write_text("takes = 'always'\n")
    done = cli_here("try", *options, "--", "touch", "started", **with_host_drop_in, **environment)
    assert done.returncode == 2
    assert words in done.stderr
    assert not (tmp_path / "started").exists()


def test_a_signal_ends_the_command(with_host_drop_in, rank_jobs, tmp_path):
    program = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    command = [sys.executable, "-m", "narrowcast", "try", "--", sys.executable, "-c", program, "pid"]
    process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **with_host_drop_in})
    deadline = time.monotonic() + 30
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()
