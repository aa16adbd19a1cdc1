"""`narrowcast tune --backend host`: its measurements and the model that it writes."""

from __future__ import annotations

import json

import narrowcast
import pytest
from narrowcast._bench.cost_model import Curve, Times
from narrowcast.cli import tune, tune_host
from narrowcast.cli.tune_plans import plans_of
from narrowcast.plan import Program, build, builders
from thread_ranks import on_ranks, succeed


@pytest.fixture(scope="module", autouse=True)
def one_batch():
    """Accurate times are not needed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tune_host, "_QUICK_BATCHES", 1)
        yield


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


@pytest.fixture
def saved(tmp_path):
    """Writes plans to files. Returns their paths."""

    def save(*plans):
        paths = [tmp_path / f"plan{number}.json" for number in range(len(plans))]
        for plan, path in zip(plans, paths, strict=True):
            plan.save(path)
        return paths

    return save


def gathered(**options):
    """A plan with a name of its own."""
    p = Program("all_gather", 3, name="own", **options)
    for r in p.ranks:
        for peer in p.ranks:
            peer.output[r.index] = r.input
    return p


def test_plans_of_the_user_are_measured_within_their_limits_and_then_chosen(saved, tmp_path):
    # The limits of a plan are those of the larger buffer: here three pieces.
    small, ring = gathered(max_bytes=12 << 10), build("ring", "all_gather", 3)
    plans = plans_of(saved(small, ring), [3])[3]
    measured = Times()
    sizes = {"operations": ("all_gather", "reduce"), "last_bytes": 1 << 16}
    tune_host.measure_host(measured, 3, quick=True, plans=plans, **sizes)
    curve = Curve("all_gather", 3, "shm", "frames:raw")
    counts = list(measured.typical(curve))
    assert list(measured.typical(curve._replace(series=ring.cost_name))) == counts
    assert list(measured.typical(curve._replace(series=small.cost_name))) == [one for one in counts if one <= 4 << 10]
    assert {one.operation for one in measured.curves() if "@" in one.series} == {"all_gather"}
    # The model that is written makes a communicator choose the plan, if it was faster.
    faster = Times()
    for count_bytes, microseconds in measured.typical(curve).items():
        faster.add(curve, count_bytes, microseconds)
        faster.add(curve._replace(series=ring.cost_name), count_bytes, microseconds / 2)
    path = tmp_path / "own.costs"
    path.write_text(faster.text("a machine"))

    def body(comm):
        comm.load_plan(ring, "bfloat16").use()
        return comm.explain("all_gather", 2048, dtype="bfloat16").candidate

    assert set(succeed(on_ranks(3, body, cost_model=path))) == {ring.cost_name}


def test_a_program_has_a_plan_for_each_number_of_ranks(tmp_path):
    program = tmp_path / "ring.py"
    program.write_text(
        "from narrowcast.plan import build\ndef plan(ranks): return build('ring', 'all_gather', ranks)\n"
    )
    found = plans_of([program, program], [2, 4])
    assert {number: [plan.ranks for plan in plans] for number, plans in found.items()} == {2: [2], 4: [4]}


def test_plans_that_cannot_be_measured_are_errors_before_the_work(cli_here, saved, tmp_path):
    (path,) = saved(build("ring", "all_gather", 2))
    done = cli_here("tune", "--backend", "host", "--ranks", 3, "--plan", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path} is for 2 ranks, not 3 (--ranks)" in done.stderr.replace("\n", " ")
    document = json.loads(path.read_text())
    document["ranks"][0]["groups"] = []
    path.write_text(json.dumps(document))
    done = cli_here("tune", "--backend", "host", "--ranks", 2, "--plan", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{path}: refuted" in done.stderr.replace("\n", " ")
    assert not (tmp_path / "narrowcast.costs").exists()


def test_the_command_writes_a_model_and_shows_where_plans_change(cli_here, tmp_path, monkeypatch):
    def measured(times, ranks, *, quick, plans):
        assert plans == []
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
