"""`narrowcast plan run`: plans run between threads, and their results are checked."""

from __future__ import annotations

import json
import signal
from functools import partial
from pathlib import Path

import pytest
from narrowcast._bench import plan_ranks
from narrowcast._bench.plan_gpu_ranks import run_plan_on_gpus
from narrowcast._bench.plan_ranks import run_plan
from narrowcast.errors import InternalError
from narrowcast.plan import build, load
from plan.in_place_documents import exchange_in_place

EXAMPLES = Path(__file__).parents[3] / "examples" / "plans"
# Of examples that need only messages: they run on every backend.
BY_MESSAGES = ("all_pairs", "all_to_all", "halving", "hierarchical", "ring", "tree", "two_shot")


@pytest.mark.parametrize("name", BY_MESSAGES)
def test_examples_have_right_results(cli_here, name):
    done = cli_here("plan", "run", EXAMPLES / f"{name}.py", "--ranks", 4, "--json", "-n", 1)
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)
    assert {row["wrong"] for row in rows} == {0}
    smallest = {8, 960} if name in ("all_to_all", "halving") else {2, 1000}  # of whole values, in equal pieces
    assert {row["nbytes"] for row in rows} == smallest | {65536, 1 << 20}
    assert {row["in_place"] for row in rows} == ({False} if name == "all_to_all" else {False, True})


@pytest.mark.parametrize(("dtype", "op"), [("float32", "avg"), ("int8", "max"), ("float64", "sum")])
def test_types_and_reductions_have_right_results(cli_here, dtype, op):
    options = ("--ranks", 3, "--dtype", dtype, "--op", op, "--bytes", "100,40K", "-n", 1)
    done = cli_here("plan", "run", EXAMPLES / "two_shot.py", *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(" no ") == done.stdout.count(" yes ") == 2


def test_a_signal_ends_the_calls():
    def stop(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(KeyboardInterrupt):
            run_plan(load(EXAMPLES / "ring.py", ranks=2), [1000], dtype="int8", op="sum", iterations=10**9, exact=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_the_check_can_fail():
    """A ring adds in another order than the library, so that some results are not the same."""
    ring = load(EXAMPLES / "ring.py", ranks=4)
    options = {"dtype": "bfloat16", "op": "sum", "iterations": 1}
    assert any(one.wrong for one in run_plan(ring, [1 << 20], exact=True, **options))
    assert not any(one.wrong for one in run_plan(ring, [1 << 20], exact=False, **options))


def test_all_to_alls_run_in_place_if_only_that_is_proved(cli_here, tmp_path):
    (tmp_path / "exchange.json").write_text(exchange_in_place(2))
    document = {**json.loads(build("all_pairs", "all_to_all", 2).json()), "in_place": "either"}
    (tmp_path / "either.json").write_text(json.dumps(document))
    for name, in_place in (("exchange.json", True), ("either.json", False)):
        done = cli_here("plan", "run", name, "--bytes", "2,1003", "--json", "-n", 1)
        assert (done.returncode, done.stderr) == (0, "")
        assert [(one["in_place"], one["wrong"]) for one in json.loads(done.stdout)] == [(in_place, 0)] * 2


def test_the_error_of_the_rank_that_failed_is_raised(monkeypatch):
    def prepare(_, comm, *given, **options):
        if comm.rank == 1:
            raise InternalError("rank 1 has failed")
        return real(_, comm, *given, **options)

    real = plan_ranks.operations.prepare
    monkeypatch.setattr(plan_ranks.operations, "prepare", prepare)
    with pytest.raises(InternalError, match="rank 1 has failed"):
        run_plan(load(EXAMPLES / "ring.py", ranks=2), [1000], exact=False, dtype="bfloat16", op="sum", iterations=1)


def test_refuted_plans_are_not_run(cli_here, tmp_path):
    lines = (EXAMPLES / "put.py").read_text().splitlines()
    (tmp_path / "put.py").write_text("\n".join(line for line in lines if "relaxed" not in line))
    done = cli_here("plan", "run", "put.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert "put.py: refuted: race: " in done.stderr
    assert cli_here("plan", "run", "put.py", "--op", "mean").returncode == 2
    assert cli_here("plan", "run", "put.py", "--dtype", "float7").returncode == 2


@pytest.fixture
def on_fakes(fakes, rank_jobs, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fakes))
    return {"dtype": "bfloat16", "op": "sum", "iterations": 2, "exact": True, "job": "fake_gpu_jobs:run_plan"}


def test_plans_run_on_a_gpu_for_each_rank(on_fakes):
    outcomes = run_plan_on_gpus(build("all_pairs", "all_reduce", 3), [1000, 64 << 10], **on_fakes)
    calls = [(one.nbytes, one.in_place, one.wrong) for one in outcomes]
    assert calls == [(1000, False, 0), (1000, True, 0), (64 << 10, False, 0), (64 << 10, True, 0)]
    assert all(one.microseconds > 0 for one in outcomes)
    (gathered,) = run_plan_on_gpus(build("all_pairs", "gather", 3, root=1), [3 << 10], **on_fakes)[:1]
    assert gathered.wrong == 0


def test_wrong_results_of_gpus_are_counted(on_fakes):
    given = {**on_fakes, "job": "fake_gpu_jobs:run_plan_wrongly"}
    for outcome in run_plan_on_gpus(build("all_pairs", "all_gather", 2), [1000], **given):
        assert outcome.wrong > 100


def test_the_command_runs_plans_on_gpus(cli_here, monkeypatch, on_fakes):
    monkeypatch.setattr("narrowcast.cli.plan._calls.device_count", lambda: 2)
    monkeypatch.setattr("narrowcast.cli.plan.run.run_plan_on_gpus", partial(run_plan_on_gpus, job=on_fakes["job"]))
    options = ("--ranks", 2, "--backend", "cuda", "--bytes", "1000", "-n", 1)
    done = cli_here("plan", "run", EXAMPLES / "two_shot.py", *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert "bfloat16 on GPUs" in done.stdout
    done = cli_here("plan", "run", EXAMPLES / "two_shot.py", "--ranks", 3, *options[2:])
    assert (done.returncode, done.stdout) == (1, "")
    assert "the plan has 3 ranks, each of which needs its own GPU; number of GPUs found: 2\n" in done.stderr
    assert cli_here("plan", "run", EXAMPLES / "two_shot.py", "--backend", "gpu").returncode == 2
