"""Calls of a communicator run plans that the user has loaded."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import narrowcast
import numpy as np
import pytest
from narrowcast.errors import InvalidArgumentError, MismatchError, UnsupportedError
from narrowcast.plan import BUILT_IN, Plan, Program, build
from thread_ranks import on_ranks, succeed

RANKS = 3


def two_shot(ranks: int = RANKS, name: str = "two shot", **options: Any) -> Plan:
    p = Program("all_reduce", ranks, chunks=ranks, name=name, **options)
    for r in p.ranks:
        total = r.reduce(peer.input[r.index] for peer in p.ranks)
        for peer in p.ranks:
            peer.output[r.index] = total
    return p


def ring(operation: str = "all_reduce", **options: Any) -> Plan:
    return build("ring", operation, RANKS, **options)


def reduced(comm: Any, count: int = 1000, dtype: type = np.float32, **options: Any) -> np.ndarray:
    values = np.random.default_rng([count, comm.rank]).standard_normal(count).astype(dtype)
    return comm.all_reduce(values, **options)


def costs(path: Path, *lines: str) -> Path:
    path.write_text("narrowcast-costs 2 a machine\nkernels unknown\n" + "".join(line + "\n" for line in lines))
    return path


def test_calls_that_a_plan_suits_run_it():
    def body(comm: Any) -> None:
        before = reduced(comm)
        with comm.load_plan(two_shot(), "float32") as loaded:
            assert comm.explain("all_reduce", 1000, dtype="float32").plan == "all_pairs"
            loaded.use(always=True, min_bytes=400, max_bytes=4000)
            said = comm.explain("all_reduce", 1000, dtype="float32")
            assert (said.plan, said.path, said.path_why) == ("two shot", "plan", "it was added for all such calls")
            assert said.candidate.startswith("plan:two-shot@")
            assert np.array_equal(reduced(comm), before)
            for count, dtype, op in (
                (99, "float32", "sum"),
                (1001, "float32", "sum"),
                (1000, "int32", "sum"),
                (1000, "float32", "max"),
            ):
                assert comm.explain("all_reduce", count, dtype=dtype, op=op).plan == "all_pairs"
            assert comm.explain("all_gather", 1000, dtype="float32").plan == "all_pairs"
            loaded.use(always=True)  # replaces the earlier use
            assert comm.explain("all_reduce", 1001, dtype="float32").plan == "two shot"
        assert comm.explain("all_reduce", 1000, dtype="float32").plan == "all_pairs"
        assert np.array_equal(reduced(comm), before)

    succeed(on_ranks(RANKS, body))


def test_calls_in_groups_and_on_streams_run_plans():
    def body(comm: Any) -> None:
        plain = [reduced(comm, 500), reduced(comm, 700)]
        comm.load_plan(two_shot(), "float32").use(always=True)
        rng = [
            np.random.default_rng([count, comm.rank]).standard_normal(count).astype(np.float32) for count in (500, 700)
        ]
        with narrowcast.Stream() as stream:
            with narrowcast.group():
                for values in rng:
                    comm.all_reduce(values, stream=stream)
            stream.synchronize()
        for found, expected in zip(rng, plain, strict=True):
            assert np.array_equal(found, expected)

    succeed(on_ranks(RANKS, body))


def test_a_plan_runs_only_where_it_was_measured_to_be_faster(tmp_path):
    plan = two_shot()
    name = plan.cost_name
    model = costs(
        tmp_path / "own.costs",
        f"all_reduce {RANKS} shm frames:raw 1000:10 10000:100",
        f"all_reduce {RANKS} shm {name} 1000:50 10000:50",
    )

    def body(comm: Any) -> None:
        comm.load_plan(plan, "float32").use()
        other = comm.load_plan(two_shot(name="other"), "float32").use()
        small, large = (comm.explain("all_reduce", count, dtype="float32") for count in (250, 2500))
        assert (small.plan, large.plan) == ("all_pairs", "two shot")
        assert small.plans[name].why_not == "it is not predicted to be faster"
        assert [one.why_not for one in large.plans.values() if one.plan == "other"] == ["its time was not measured"]
        other.close()

    succeed(on_ranks(RANKS, body, cost_model=model))


def test_a_plan_with_other_results_runs_only_if_it_must(tmp_path):
    plan = ring()
    model = costs(
        tmp_path / "own.costs",
        f"all_reduce {RANKS} shm frames:raw 1:1000",
        f"all_reduce {RANKS} shm {plan.cost_name} 1:1",
    )

    def body(comm: Any) -> None:
        floats, integers = comm.load_plan(plan, "float32").use(), comm.load_plan(plan, "int32").use()
        said = comm.explain("all_reduce", 100, dtype="float32")
        assert said.plan == "all_pairs"
        assert said.plans[plan.cost_name].why_not == "it rounds sums in another order or more often"
        assert comm.explain("all_reduce", 100, dtype="int32").plan == plan.name
        floats.use(always=True)
        assert comm.explain("all_reduce", 100, dtype="float32").plan == plan.name
        integers.close()

    succeed(on_ranks(RANKS, body, cost_model=model))


def test_plans_have_the_results_of_the_built_in_way_for_roots_and_operations():
    operations = {
        "broadcast": 1,
        "reduce": 2,
        "gather": 1,
        "scatter": 0,
        "all_gather": 0,
        "reduce_scatter": 0,
        "all_to_all": 0,
    }

    def body(comm: Any) -> None:
        def results() -> list[np.ndarray]:
            found = []
            for operation, root in operations.items():
                row = narrowcast.operations()[operation]
                values = np.arange(60 * RANKS, dtype=np.int32) * (comm.rank + 1)
                values = values if row.send.parted else values[:60]
                out = np.zeros(60 * RANKS if row.recv.parted else 60, np.int32)
                named = {"root": root} if row.has_root else {}
                getattr(comm, operation)(values, out, **named)
                found.append(out)
            return found

        before = results()
        for operation, root in operations.items():
            plan = build("all_pairs", operation, RANKS, root=root)
            comm.load_plan(plan, "int32").use(always=True)
            assert comm.explain(operation, 60, dtype="int32", root=root).candidate == plan.cost_name
            if narrowcast.operations()[operation].has_root:
                assert comm.explain(operation, 60, dtype="int32", root=(root + 1) % RANKS).candidate != plan.cost_name
        for found, expected in zip(results(), before, strict=True):
            assert np.array_equal(found, expected)

    succeed(on_ranks(RANKS, body))


def test_a_selector_chooses_between_added_plans():
    def body(comm: Any) -> None:
        for name in ("one", "two"):
            comm.load_plan(two_shot(name=name), "float32").use()
        comm.choose_plans(lambda call, plans: "two" if call.op == "sum" and call.nbytes > 100 else BUILT_IN)
        assert comm.explain("all_reduce", 100, dtype="float32").plan == "two"
        assert comm.explain("all_reduce", 10, dtype="float32").plan == "all_pairs"
        assert np.all(comm.all_reduce(np.ones(100, np.float32)) == RANKS)

    succeed(on_ranks(RANKS, body))


def placed(plan: Plan, in_place: str, name: str) -> str:
    """A plan that only works in place ("yes"), or only out of place ("no"), in JSON."""
    return json.dumps({**json.loads(plan.json()), "in_place": in_place, "name": name})


def test_plans_that_only_work_in_place_or_not_run_only_calls_that_are_so():
    def body(comm: Any) -> None:
        values = np.full(600, comm.rank + 1, np.float32)
        operations = {"all_reduce": two_shot(), "all_gather": ring("all_gather")}
        for operation, plan in operations.items():
            within, apart = (
                comm.load_plan(placed(plan, in_place, name), "float32").use(always=True)
                for in_place, name in (("yes", "within"), ("no", "apart"))
            )

            def plan_of(in_place: bool | None, operation: str = operation) -> str | None:
                return comm.explain(operation, 600, dtype="float32", in_place=in_place).plan

            assert (plan_of(True), plan_of(False), plan_of(None)) == ("within", "apart", "all_pairs")
            said = comm.explain(operation, 600, dtype="float32").plans
            whys = {one.plan: one.why_not for one in said.values()}
            assert (whys["within"], whys["apart"]) == ("it only works in place", "it does not work in place")
            out = np.empty(1800 if operation == "all_gather" else 600, np.float32)
            getattr(comm, operation)(values, out)
            expected = np.repeat([1, 2, 3], 600) if operation == "all_gather" else np.full(600, 6)
            assert np.array_equal(out, expected)
            own = out[600 * comm.rank :][:600] if operation == "all_gather" else out
            own[:] = values
            getattr(comm, operation)(own, out)
            assert np.array_equal(out, expected)
            # Without the plan for it, a call in place runs in the built-in way.
            within.close()
            assert plan_of(True) == "all_pairs"
            own[:] = values
            getattr(comm, operation)(own, out)
            assert np.array_equal(out, expected)
            apart.close()

    succeed(on_ranks(RANKS, body))


def test_selectors_know_whether_a_call_is_in_place():
    def body(comm: Any) -> list[bool | None]:
        asked = []

        def note(call: Any, plans: Any) -> str:
            asked.append(call.in_place)
            return BUILT_IN

        comm.choose_plans(note)
        values, out = np.ones(100, np.float32), np.empty(100, np.float32)
        comm.all_reduce(values, out)
        comm.all_reduce(values)
        comm.broadcast(values)  # only the root has both buffers
        comm.explain("all_reduce", 100, dtype="float32")
        return asked

    assert succeed(on_ranks(RANKS, body)) == [[False, True, None, None]] * RANKS


def test_ranks_of_which_only_some_work_in_place_get_a_mismatch():
    together = threading.Barrier(RANKS)

    def body(comm: Any) -> None:
        comm.load_plan(placed(two_shot(), "yes", "within"), "float32").use(always=True)
        together.wait(20)
        values = np.ones(1000, np.float32)
        with pytest.raises(MismatchError, match="plan"):
            comm.all_reduce(values, values if comm.rank == 1 else np.empty_like(values))

    succeed(on_ranks(RANKS, body))


def test_plans_for_which_only_some_ranks_know_whether_they_can_run_are_rejected():
    def body(comm: Any) -> None:
        rooted = build("all_pairs", "broadcast", RANKS)
        for place, why in (("yes", "works in place only"), ("no", "does not work in place")):
            text = placed(rooted, place, "rooted")
            with comm.load_plan(text, "float32") as loaded, pytest.raises(UnsupportedError, match=why):
                loaded.use()
        with comm.load_plan(two_shot(), "float32") as loaded:
            with pytest.raises(InvalidArgumentError, match="max_bytes is less than min_bytes"):
                loaded.use(min_bytes=10, max_bytes=9)
            with pytest.raises(ValueError, match="max_bytes is 0"):
                loaded.use(max_bytes=0)
        with pytest.raises(ValueError, match="the plan is closed"):
            loaded.use()

    succeed(on_ranks(RANKS, body))


def test_ranks_that_use_different_plans_get_a_mismatch():
    together = threading.Barrier(RANKS)

    def body(comm: Any) -> None:
        loaded = comm.load_plan(two_shot(), "float32")
        together.wait(20)
        if comm.rank != 1:
            loaded.use(always=True)
        with pytest.raises(MismatchError, match="plan"):
            reduced(comm)

    succeed(on_ranks(RANKS, body))


def test_the_cost_name_depends_on_name_and_content():
    assert two_shot().cost_name == two_shot().cost_name
    assert two_shot().cost_name.startswith("plan:two-shot@")
    assert two_shot(name="").cost_name.startswith("plan:unnamed@")
    assert two_shot(name="a/b: c!").cost_name.startswith("plan:a-b-c-@")
    names = {plan.cost_name for plan in (two_shot(), two_shot(name="two  shot"), two_shot(4), ring())}
    assert len(names) == 4
