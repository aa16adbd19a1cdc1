"""`bench` and `tune` between ranks that a launcher has started: processes with the variables that torchrun sets."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
from narrowcast._bench import launched

RANKS = 3


def _start(arguments, tmp_path, folders=("",) * RANKS):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port - 1)}
    common |= {"NARROWCAST_SOCKET_IFNAME": "lo"}
    ranks = []
    for rank in range(RANKS):
        own = {"RANK": str(rank), "LOCAL_RANK": "0", "NARROWCAST_HOSTID": f"host {rank}"}
        ranks.append(
            subprocess.Popen(
                [sys.executable, "-m", "narrowcast", *arguments],
                env={**os.environ, **common, **own},
                cwd=tmp_path / folders[rank],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return ranks


def test_ranks_on_several_hosts_measure_together(tmp_path):
    options = ["--backend", "host", "-b", "4K", "-e", "16K", "-n", "2", "--codec", "raw,window", "-J", "report.json"]
    ranks = _start(["bench", "all_reduce", *options], tmp_path)
    outputs = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * RANKS, outputs
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["ranks"] == RANKS
    assert {row["wrong"] for row in report["rows"]} == {0}
    assert "all_reduce" in outputs[0][0]
    assert [out for out, _ in outputs[1:]] == [""] * (RANKS - 1)


@pytest.mark.parametrize("option", ["--ranks", "--hosts"])
def test_ranks_and_hosts_are_those_of_the_launcher(tmp_path, option):
    backend = ["--backend", "cuda"] if option == "--hosts" else ["--backend", "host"]
    first, *others = _start(["bench", "all_reduce", *backend, option, "2"], tmp_path)
    _, errors = first.communicate(timeout=60)
    for other in others:
        other.kill()
        other.communicate()
    assert first.returncode == 2
    assert f"{option} is given, but torchrun has started {RANKS} ranks" in errors


def test_the_failure_of_a_rank_is_reported(tmp_path):
    np.save(tmp_path / "values.npy", np.ones(1 << 12, np.float32))
    (tmp_path / "1").mkdir()  # where rank 1 does not find them
    options = ["--backend", "host", "--data", "values.npy", "-d", "float", "-b", "4K", "-e", "4K"]
    ranks = _start(["bench", "all_gather", *options], tmp_path, folders=["", "1", ""])
    outputs = [rank.communicate(timeout=60) for rank in ranks]
    assert ranks[0].returncode == ranks[1].returncode == 1, outputs
    assert "rank 1" in outputs[0][1]
    assert "values.npy" in outputs[1][1]


def test_others_that_connect_are_turned_away(monkeypatch, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for name, value in {"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "MASTER_PORT": port - 1}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    (tmp_path / "job_of_launched.py").write_text("def job(rank, emit):\n    emit(10 * rank)\n")
    monkeypatch.syspath_prepend(tmp_path)
    strangers = []

    def connect():
        with launched._connection() as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            strangers.append(stranger.recv(1))
        with launched._connection() as connection, connection.makefile("rw") as lines:
            launched._send(0, lines, 1)
            _, arguments = launched._receive(0, lines)
            launched._send(0, lines, 10 * arguments["rank"])

    other = threading.Thread(target=connect)
    other.start()
    results = []
    launched.run_ranks("job_of_launched:job", [{"rank": 0}, {"rank": 1}], results.append, timeout_seconds=30)
    other.join()
    assert strangers == [b""]
    assert results == [[0, 10]]
