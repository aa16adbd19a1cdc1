"""The host backend chooses between plans by their measured times."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import narrowcast
import numpy as np
import pytest
from narrowcast._bench.operations import Call, describe
from narrowcast.errors import InvalidArgumentError, MismatchError
from narrowcast.plan import BUILT_IN, BY_COST, builders, set_selector
from narrowcast.types import value_type
from thread_ranks import on_ranks, succeed

HEAD = "narrowcast-costs 2 a machine\nkernels unknown\n"
INT32 = value_type("int32")


def costs(path: Path, *lines: str) -> Path:
    path.write_text(HEAD + "".join(line + "\n" for line in lines))
    return path


def run(comm: Any, operation: str, count: int, root: int, codec: str) -> np.ndarray:
    """The result of a call of small integers, which differ between ranks."""
    call = Call(operation, INT32, count, comm.rank, comm.ranks, root=root)
    values = np.random.default_rng([count, comm.rank]).integers(-9, 9, call.send_elems).astype(np.int32)
    out = np.full(call.recv_elems, -77, np.int32)
    row = describe(operation)
    arguments: dict[str, Any] = {"op": "sum"} if row.reduces else {}
    if row.has_root:
        arguments["root"] = root
    arguments |= {"out": out if call.recv_elems else None, "codec": codec}
    getattr(comm, operation)(values if call.send_elems else None, **arguments)
    return out


CHOICES = [
    (name, operation, ranks)
    for name, suited in builders().items()
    if name not in ("all_pairs", "two_level")
    for operation in suited
    for ranks in (2, 3, 4)
    if name != "halving_doubling" or ranks != 3
]


@pytest.mark.parametrize(("name", "operation", "ranks"), CHOICES)
def test_every_plan_that_can_be_chosen_has_the_results_of_the_default(name, operation, ranks, tmp_path):
    forced = costs(
        tmp_path / "forced.costs",
        f"{operation} {ranks} shm frames:raw 1:1000",
        f"{operation} {ranks} shm plan:{name} 1:1",
        f"{operation} {ranks} shm frames:window 1:1000",
        f"{operation} {ranks} shm plan:{name}:window 1:1",
    )

    def body(comm: Any) -> tuple[list[str | None], list[np.ndarray]]:
        said = [comm.explain(operation, 100, dtype="int32", codec=codec).plan for codec in ("auto", "window")]
        calls = [
            run(comm, operation, count, root, codec)
            for codec in ("auto", "window")
            for root in ((0, ranks - 1) if describe(operation).has_root else (0,))
            for count in (1, 1000, 300_001)
        ]
        return said, calls

    chosen = succeed(on_ranks(ranks, body, cost_model=forced))
    default = succeed(on_ranks(ranks, body))
    for (plans, results), (defaults, expected) in zip(chosen, default, strict=True):
        assert plans == [name, name]
        assert defaults == ["all_pairs", "all_pairs"]
        for one, other in zip(results, expected, strict=True):
            assert np.array_equal(one, other)


def test_an_explanation_has_the_alternatives_and_their_times(tmp_path):
    model = costs(
        tmp_path / "own.costs",
        "all_reduce 2 shm frames:raw 1000:10 1000000:1000",
        "all_reduce 2 shm plan:two_shot 1000:20 1000000:500",
        "all_reduce 2 shm plan:ring 1000:1 1000000:400",
    )

    def body(comm: Any) -> Any:
        return comm.explain("all_reduce", 250_000, dtype="float32"), comm.explain("all_reduce", 250, dtype="float32")

    (large, small), other = succeed(on_ranks(2, body, cost_model=model))
    assert (large, small) == other
    assert (large.plan, large.candidate, large.path) == ("two_shot", "plan:two_shot", "plan")
    assert large.path_why == "it is predicted to be faster than the built-in way"
    assert large.predicted.chosen == pytest.approx(500)
    assert large.predicted.candidates["frames:raw"].typical == pytest.approx(1000)
    assert large.predicted.nccl is None
    assert set(large.plans) == {f"plan:{name}" for name in ("ring", "halving_doubling", "tree", "one_shot", "two_shot")}
    assert large.plans["plan:two_shot"].why_not is None
    assert large.plans["plan:ring"].microseconds == pytest.approx(400)
    assert large.plans["plan:ring"].why_not == "it rounds sums in another order or more often"
    assert large.plans["plan:tree"].why_not == "it rounds sums in another order or more often"
    assert large.plans["plan:one_shot"].why_not == "its time was not measured"
    assert "runs by a plan, two_shot: it is predicted to be faster than the built-in way" in large.sentence
    assert "500.0 us plan:two_shot" in large.sentence
    assert (small.plan, small.candidate) == ("all_pairs", "frames:raw")
    assert small.plans["plan:two_shot"].why_not == "it is not predicted to be faster"
    assert small.predicted.chosen == pytest.approx(10)


def test_ranks_with_different_scratch_bytes_cannot_join():
    # The sizes of slots are the same; the memory of a loaded plan would differ.
    for error in on_ranks(3, lambda comm: None, scratch_bytes=[4 << 20, 4 << 20, 3 << 20]):
        assert isinstance(error, MismatchError)
        assert "scratch_bytes is 3145728 on rank 2, but 4194304 on ranks 0, 1" in str(error)


def test_ranks_with_different_cost_models_cannot_join(tmp_path):
    one = costs(tmp_path / "one.costs", "all_gather 2 shm frames:raw 1:1", "all_gather 2 shm plan:ring 1:9")
    two = costs(tmp_path / "two.costs", "all_gather 2 shm frames:raw 1:9", "all_gather 2 shm plan:ring 1:1")
    for error in on_ranks(2, lambda comm: None, cost_model=[one, two]):
        assert isinstance(error, MismatchError)
        assert re.search("the hash of the cost model is [0-9a-f]{16} on rank 1, but [0-9a-f]{16} on rank 0", str(error))


def test_an_invalid_cost_model_is_an_error_of_the_creation(tmp_path):
    broken = costs(tmp_path / "broken.costs", "all_gather 2 shm plan:ring 1:1")
    with pytest.raises(InvalidArgumentError, match="there is no line 'all_gather 2 shm frames:raw'"):
        narrowcast.Communicator(narrowcast.unique_id(), 0, 1, cost_model=broken)


def test_a_selector_chooses_and_is_told_the_call(tmp_path):
    asked = []

    def selector(call: Any, plans: Any) -> str:
        asked.append((call, tuple(plans)))
        if call.nbytes <= 400:
            return BUILT_IN
        return "tree" if call.root == 2 else BY_COST

    def body(comm: Any) -> list[str | None]:
        comm.choose_plans(selector)
        for count, root in ((100, 0), (1000, 2), (1000, 1)):
            values = np.full(count, comm.rank + 1, np.int32)
            result = comm.reduce(values, op="max", root=root, codec="raw")
            assert comm.rank != root or np.all(result == comm.ranks)
        comm.choose_plans(lambda call, plans: "ring")
        said = comm.explain("reduce", 100, dtype="int32")
        assert said.path_why == "the selector of the communicator chose it"
        comm.choose_plans(None)
        return [said.plan, comm.explain("reduce", 100, dtype="int32").plan]

    assert succeed(on_ranks(3, body)) == [["ring", "all_pairs"]] * 3
    calls = {(call.operation, call.count, call.dtype, call.op, call.root, call.codec, call.ranks) for call, _ in asked}
    assert calls == {
        ("reduce", count, "int32", "max", root, "raw", 3) for count, root in ((100, 0), (1000, 2), (1000, 1))
    }
    assert {plans for _, plans in asked} == {("relay", "ring", "tree")}


def test_a_selector_that_fails_leaves_calls_as_they_are(capsys):
    def body(comm: Any) -> str | None:
        with pytest.raises(InvalidArgumentError, match=r"a selector is a function .*, not 'ring'"):
            comm.choose_plans("ring")
        comm.choose_plans(lambda call, plans: "no such plan")
        return comm.explain("all_gather", 100, dtype="int32").plan

    assert succeed(on_ranks(2, body)) == ["all_pairs"] * 2
    assert "the selector returned 'no such plan', not one of ['ring'," in capsys.readouterr().err


@pytest.mark.parametrize("plan", ["ring", "one_shot"])
def test_ranks_that_choose_different_plans_get_a_mismatch(plan):
    def body(comm: Any) -> Any:
        comm.choose_plans(lambda call, plans: plan if comm.rank == 1 else BUILT_IN)
        with pytest.raises(MismatchError, match="plan") as caught:
            comm.all_gather(np.zeros(100, np.int32), np.zeros(300, np.int32))
        return str(caught.value)

    assert any(f"plan {plan}, all_gather" in said for said in succeed(on_ranks(3, body)))


def test_a_selector_of_the_process_is_used_by_new_communicators():
    set_selector(lambda call, plans: plans[-1])
    try:
        assert succeed(on_ranks(2, lambda comm: comm.explain("all_gather", 9, dtype="int8").plan)) == ["one_shot"] * 2
    finally:
        set_selector(None)
    assert succeed(on_ranks(2, lambda comm: comm.explain("all_gather", 9, dtype="int8").plan)) == ["all_pairs"] * 2


def test_the_command_line_explains_the_choice(cli_here, tmp_path, monkeypatch):
    model = costs(
        tmp_path / "own.costs",
        "all_gather 3 shm frames:raw 1000:10",
        "all_gather 3 shm plan:one_shot 1000:20",
        "all_gather 3 shm plan:ring 1000:5",
    )
    monkeypatch.setenv("NARROWCAST_COST_MODEL", str(model))
    done = cli_here("explain", "all_gather", "--backend", "host", "--bytes", 3000, "--dtype", "int8", "--ranks", 3)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines()]
    assert ["plan", "ring", ""] in lines
    assert ["path", "plan", "it is predicted to be faster than the built-in way"] in lines
    assert ["", "not one_shot", "20.0 us: it is not predicted to be faster"] in lines
    assert ["", "not halving_doubling", "it does not work for this number of ranks"] in lines
    for arguments in (["--backend", "gpu"], ["--backend", "host", "--ctas", 3], ["--ranks", 9]):
        done = cli_here("explain", "all_gather", "--bytes", 100, *arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
