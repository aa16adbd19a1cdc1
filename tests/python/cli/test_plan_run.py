"""`narrowcast plan run`: plans run between threads, and their results are checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from narrowcast._bench import plan_ranks
from narrowcast._bench.plan_ranks import run_plan
from narrowcast.errors import InternalError
from narrowcast.plan import load

EXAMPLES = Path(__file__).parents[3] / "examples" / "plans"
# Of examples that need only messages: they run on every backend.
BY_MESSAGES = ("all_pairs", "all_to_all", "halving", "hierarchical", "ring", "tree", "two_shot")


@pytest.mark.parametrize("name", BY_MESSAGES)
def test_examples_have_right_results(cli_here, name):
    done = cli_here("plan", "run", EXAMPLES / f"{name}.py", "--ranks", 4, "--json", "-n", 1)
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)
    assert {row["wrong"] for row in rows} == {0}
    assert {row["nbytes"] for row in rows} == {1, 1000, 65536, 1 << 20}
    assert {row["in_place"] for row in rows} == ({False} if name == "all_to_all" else {False, True})


@pytest.mark.parametrize(("dtype", "op"), [("float32", "avg"), ("int8", "max"), ("float64", "sum")])
def test_types_and_reductions_have_right_results(cli_here, dtype, op):
    options = ("--ranks", 3, "--dtype", dtype, "--op", op, "--bytes", "100,40K", "-n", 1)
    done = cli_here("plan", "run", EXAMPLES / "two_shot.py", *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(" no ") == done.stdout.count(" yes ") == 2


def test_the_check_can_fail():
    """A ring adds in another order than the library, so that some results are not the same."""
    ring = load(EXAMPLES / "ring.py", ranks=4)
    options = {"dtype": "bfloat16", "op": "sum", "iterations": 1}
    assert any(one.wrong for one in run_plan(ring, [1 << 20], exact=True, **options))
    assert not any(one.wrong for one in run_plan(ring, [1 << 20], exact=False, **options))


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
