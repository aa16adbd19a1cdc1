"""`bench` and `tune` between ranks that a launcher has started: processes with the variables that torchrun sets."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

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
    assert f"{option} 2 is given, but torchrun has started {RANKS} ranks" in errors


def test_the_failure_of_a_rank_is_reported(tmp_path):
    np.save(tmp_path / "values.npy", np.ones(1 << 12, np.float32))
    (tmp_path / "1").mkdir()  # where rank 1 does not find them
    options = ["--backend", "host", "--data", "values.npy", "-d", "float", "-b", "4K", "-e", "4K"]
    ranks = _start(["bench", "all_gather", *options], tmp_path, folders=["", "1", ""])
    outputs = [rank.communicate(timeout=60) for rank in ranks]
    assert ranks[0].returncode == ranks[1].returncode == 1, outputs
    assert "rank 1" in outputs[0][1]
    assert "values.npy" in outputs[1][1]
