"""The backend "narrowcast" of torch.distributed, between processes on CPUs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from narrowcast._bench.launch import run_ranks

pytest.importorskip("torch", reason="torch is not installed")

HERE = Path(__file__).parent
SECONDS = 120


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a function of torch_jobs.py, or of another module, on every rank. Returns the results of the ranks."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def run(job: str, ranks: int) -> list:
        arguments = [{"folder": str(tmp_path), "rank": rank, "ranks": ranks} for rank in range(ranks)]
        results: list[list] = []
        run_ranks(job if ":" in job else f"torch_jobs:{job}", arguments, results.append, timeout_seconds=SECONDS)
        return results[0]

    return run


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_collective_has_the_result_of_gloo(run, ranks):
    assert run("collectives", ranks) == [[]] * ranks


@pytest.mark.parametrize("ranks", [2, 3])
def test_collectives_and_types_that_gloo_lacks_are_right(run, ranks):
    assert run("beyond_gloo", ranks) == [[]] * ranks


@pytest.mark.parametrize("ranks", [2, 3])
def test_messages_in_both_directions_arrive(run, ranks):
    assert all(all(results) for results in run("messages", ranks))


def test_groups_of_some_ranks(run):
    first, second, third = run("groups", 3)
    assert first == [[4, "narrowcast", 0, 2], [6, "narrowcast", 0, 3]]
    assert second == [[2, "narrowcast", 0, 1], [6, "narrowcast", 1, 3]]
    assert third == [[4, "narrowcast", 1, 2], [6, "narrowcast", 2, 3]]


def test_distributed_data_parallel_has_the_gradients_of_one_process(run):
    assert all(all(near) for near in run("training", 2))


def test_what_the_backend_lacks_and_missing_ranks_are_errors(run):
    *waiting, last = run("failing", 3)
    lacks = ["TypeError", "NotImplementedError", "TypeError"]
    assert last == lacks
    assert waiting == [[*lacks, "PeerTimeoutError", True]] * 2


@pytest.mark.parametrize(
    ("job", "ranks"),
    [
        ("groups_as_libraries_use_them", 2),
        ("forms_of_calls", 2),
        ("reductions", 3),
        ("message_orders", 3),
        ("failures", 2),
        ("callbacks", 2),
        ("ending", 3),
    ],
)
def test_every_check_of_a_job_holds(run, job, ranks):
    assert run(f"group_jobs:{job}", ranks) == [[]] * ranks
