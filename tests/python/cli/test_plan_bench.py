"""`narrowcast plan bench`: a plan against the built-in way."""

from __future__ import annotations

import json

import pytest
from narrowcast.plan import build
from plan.in_place_documents import exchange_in_place


def test_a_plan_is_measured_against_the_built_in_way(cli_here, tmp_path):
    build("ring", "all_gather", 3).save(tmp_path / "ring.json")
    arguments = ["--backend", "host", "--bytes", "3K,96K", "-n", 2, "--batches", 2]
    done = cli_here("plan", "bench", "ring.json", "--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)
    assert [row["bytes"] for row in rows] == [3 << 10, 96 << 10]
    for row in rows:
        assert (row["built_in"], row["wrong"]) == ("frames:raw", 0)
        assert row["speedup"] == pytest.approx(row["built_in_microseconds"] / row["plan_microseconds"])
    done = cli_here("plan", "bench", "ring.json", "--codec", "window", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert "all_gather ring" in done.stdout
    assert "frames:window" in done.stdout
    assert "96.00 KiB" in done.stdout


def test_results_of_reductions_in_any_order_are_accepted(cli_here, tmp_path):
    brief = ["--backend", "host", "--bytes", "2K", "-n", 1, "--batches", 1]
    build("ring", "all_reduce", 2).save(tmp_path / "ring.json")
    done = cli_here("plan", "bench", "ring.json", *brief, "--op", "max")
    assert (done.returncode, done.stderr) == (0, "")
    build("tree", "reduce", 2, root=1).save(tmp_path / "tree.json")
    done = cli_here("plan", "bench", "tree.json", *brief)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        (["--bytes", "some"], 2, "some"),
        (["--dtype", "float31"], 2, "float31"),
        (["--op", "median"], 2, "median"),
        (["--backend", "gpu"], 2, "'gpu'"),
        (["--backend", "cuda"], 1, "the plan has 2 ranks, each of which needs its own GPU; number of GPUs found: 0"),
    ],
)
def test_invalid_arguments_are_rejected(cli_here, tmp_path, monkeypatch, arguments, status, word):
    monkeypatch.setattr("narrowcast.cli.plan._calls.device_count", lambda: 0)
    build("ring", "all_reduce", 2).save(tmp_path / "ring.json")
    done = cli_here("plan", "bench", "ring.json", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    assert word in done.stderr


def test_a_plan_that_is_refuted_does_not_run(cli_here, tmp_path):
    document = json.loads(build("ring", "all_gather", 2).json())
    document["ranks"][0]["groups"][0]["steps"].pop()
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    done = cli_here("plan", "bench", "wrong.json", "--backend", "host")
    assert done.returncode == 1
    assert "wrong.json: refuted" in done.stderr


def test_a_plan_whose_calls_the_library_does_not_have_is_not_measured(cli_here, tmp_path):
    (tmp_path / "exchange.json").write_text(exchange_in_place(1))
    for command in (["plan", "bench"], ["tune", "--backend", "host", "--ranks", 2, "--plan"]):
        done = cli_here(*command, "exchange.json", *(["-o", "x.costs"] if command[0] == "tune" else []))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert "exchange.json: the plan works in place only, which the library's own all_to_all does not" in done.stderr
