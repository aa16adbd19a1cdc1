"""`narrowcast tune --backend host`: its measurements and the model that it writes."""

from __future__ import annotations

import narrowcast
import pytest
from narrowcast._bench.cost_model import Curve, Times
from narrowcast.cli import tune, tune_host
from narrowcast.plan import builders


@pytest.fixture(scope="module")
def times():
    measured = Times()
    remark = tune_host.measure_host(measured, 3, quick=True, operations=("all_gather", "reduce"), last_bytes=1 << 12)
    assert remark.startswith("3 processes: Narrowcast ")
    return measured


def test_the_built_in_way_and_every_plan_are_measured(times):
    series = {operation: set() for operation in ("all_gather", "reduce")}
    for curve in times.curves():
        assert (curve.ranks, curve.link) == (3, "shm")
        series[curve.operation].add(curve.series)
    # halving_doubling needs a power of two, and two_level distinguishes nodes.
    for operation, found in series.items():
        plans = {name for name, suited in builders().items() if operation in suited}
        assert found == {"frames:raw"} | {
            f"plan:{name}" for name in plans - {"all_pairs", "two_level", "halving_doubling"}
        }


def test_the_library_accepts_the_model_and_predicts_what_was_measured(times, tmp_path):
    path = tmp_path / "own.costs"
    path.write_text(times.text("a machine", kernels="unknown"))
    with narrowcast.LocalRanks(3, cost_model=path) as comms:
        said = comms[0].explain("reduce", 2048, dtype="bfloat16")
        assert said.predicted.candidates["frames:raw"].typical > 0
        assert said.plans["plan:ring"].microseconds > 0
        assert said.plans["plan:tree"].microseconds > 0


def test_the_command_writes_a_model_and_shows_where_plans_change(cli_here, tmp_path, monkeypatch):
    def measured(times, ranks, *, quick):
        assert quick
        for series, small, large in (("frames:raw", 10, 5000), ("plan:ring", 20, 1000), ("plan:one_shot", 5, 9000)):
            for operation in ("all_gather", "all_reduce"):
                times.add(Curve(operation, ranks, "shm", series), 1 << 10, small)
                times.add(Curve(operation, ranks, "shm", series), 16 << 20, large)
        return f"{ranks} processes"

    monkeypatch.setattr(tune, "measure_host", measured)
    done = cli_here("tune", "--backend", "host", "--quick", "--ranks", 2, "-o", "own.costs")
    assert (done.returncode, done.stderr) == (0, "")
    lines = (tmp_path / "own.costs").read_text().splitlines()
    assert lines[2] == "# 2 processes"
    assert lines[3:6] == [
        "all_gather 2 shm frames:raw 1024:10.00 16777216:5000.00",
        "all_gather 2 shm plan:one_shot 1024:5.00 16777216:9000.00",
        "all_gather 2 shm plan:ring 1024:20.00 16777216:1000.00",
    ]
    assert "one_shot, all_pairs from " in done.stdout
    assert "ring from " in done.stdout
    row = next(line for line in done.stdout.splitlines() if "all_reduce" in line)
    assert row.count("ring") == 1  # for int32 only: ring rounds bfloat16 more often
