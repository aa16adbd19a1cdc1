"""The tool that schedules all plans in folders, and its bound of how idle their groups must be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msccl_documents import all_gather_ring, all_reduce_pairs
from narrowcast import plan
from narrowcast._native.plan import NativePlan
from narrowcast._plan import simulation

TOOLS = Path(__file__).parents[3] / "tools"
sys.path.append(str(TOOLS))
from idle_bound import idle_bound  # noqa: E402
from schedule_corpus import BOUNDS, bounds_of  # noqa: E402

PIECE_BYTES = 64 << 20


def chain(ranks: int) -> dict[str, Any]:
    """A broadcast that passes through all ranks, with a group for receiving and one for sending."""
    output = {"buffer": "output", "chunk": 0}
    rows: list[dict[str, Any]] = []
    for rank in range(ranks):
        source: dict[str, Any] = {"buffer": "input", "chunk": 0} if rank == 0 else {"channel": rank - 1}
        groups = [{"steps": [{"step": "copy", "from": [source], "to": [output]}]}]
        if rank + 1 < ranks:
            send = {"step": "copy", "after": [[0, 0]], "from": [output], "to": [{"channel": rank}]}
            groups.append({"steps": [send]})
        rows.append({"groups": groups})
    channels = [{"kind": "ring", "from": rank, "to": rank + 1, "depth": 2} for rank in range(ranks - 1)]
    return {"narrowcast_plan": 1, "operation": "broadcast", "channels": channels, "ranks": rows}


def uneven_exchange() -> str:
    """An all-gather whose first rank also fills its scratch. All its steps can begin early, and all take time."""
    ranks: list[dict[str, Any]] = []
    for rank in range(2):
        own, other = ({"buffer": "output", "chunk": chunk} for chunk in (rank, 1 - rank))
        steps = [{"step": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [own, {"channel": rank}]},
                 {"step": "copy", "from": [{"channel": 1 - rank}], "to": [other]}]  # fmt: skip
        if rank == 0:
            steps += [{"step": "copy", "from": [own], "to": [{"buffer": "scratch", "chunk": i}]} for i in range(6)]
        ranks.append({"scratch_chunks": 6 * (1 - rank), "groups": [{"steps": steps}]})
    channels = [{"kind": "ring", "from": rank, "to": 1 - rank, "depth": 2} for rank in range(2)]
    plan = {"narrowcast_plan": 1, "operation": "all_gather", "in_place": "no", "channels": channels, "ranks": ranks}
    return json.dumps(plan)


def costs(document: str, ranks: int) -> tuple[dict[str, dict[str, float]], float]:
    """The report of the scheduler, which may not replicate the plan, and the bound."""
    lowered = NativePlan.read(document).lower()
    machine = simulation.machine_text(None, ranks)
    _, report = lowered.schedule(machine, piece_bytes=PIECE_BYTES, batches=1, max_instances=1)
    bound = idle_bound(json.loads(lowered.write()), machine, PIECE_BYTES, report["before"]["microseconds"])
    assert bound is not None
    return report, bound


@pytest.mark.parametrize("ranks", [3, 4, 8])
@pytest.mark.parametrize("name", plan.builders())
def test_no_schedule_is_less_idle_than_the_bound(name: str, ranks: int) -> None:
    for operation in plan.builders()[name]:
        if name in ("one_shot", "two_shot", "two_level") or (name == "halving_doubling" and ranks == 3):
            continue
        report, bound = costs(plan.build(name, operation, ranks).json(), ranks)
        for side in report.values():
            assert side["most_idle"] >= bound - 1e-4, operation


@pytest.mark.parametrize("name", ["ring", "tree"])
def test_no_replica_is_less_idle_than_the_bound_of_instances(name: str) -> None:
    lowered = NativePlan.read(plan.build(name, "all_reduce", 4).json()).lower()
    machine = simulation.machine_text(None, 4)
    _, report = lowered.schedule(machine, piece_bytes=PIECE_BYTES, batches=1)
    bounds = bounds_of(lowered.write(), machine, PIECE_BYTES, report["before"]["microseconds"])
    for name in BOUNDS[1:]:
        bound = bounds[name]
        assert bound is not None
        assert bound <= report["after"]["most_idle"] + 1e-4, name


def test_a_rank_with_less_work_is_idle_in_any_number_of_instances() -> None:
    """An exchange in one group for each rank, of which one also fills its scratch."""
    document = uneven_exchange()
    lowered = NativePlan.read(document).lower()
    machine = simulation.machine_text(None, 2)
    _, report = lowered.schedule(machine, piece_bytes=PIECE_BYTES, batches=1)
    bounds = bounds_of(lowered.write(), machine, PIECE_BYTES, report["before"]["microseconds"])
    for name in BOUNDS:
        bound = bounds[name]
        assert bound is not None
        assert 0.5 < bound <= report["after"]["most_idle"] + 1e-4, name


def test_ranks_of_a_chain_must_wait_for_most_of_the_time() -> None:
    report, bound = costs(json.dumps(chain(4)), 4)
    # The last rank only receives, which it cannot do before three others have sent.
    assert 0.5 < bound <= report["after"]["most_idle"] + 1e-4


def test_a_rank_with_little_work_is_idle_even_in_one_group() -> None:
    report, bound = costs(uneven_exchange(), 2)
    assert 0.5 < bound <= report["after"]["most_idle"] + 1e-4


def test_steps_of_several_chunks_are_bounded_as_if_they_were_divided() -> None:
    """A chain passes 16 chunks on one by one, or in one step, after which a rank must wait longer."""
    bounds = []
    for count in (1, 16):
        plan = chain(4) | {"chunks": 16}
        for row in plan["ranks"]:
            for group in row["groups"]:
                steps: list[dict[str, Any]] = []
                for chunk in range(0, 16, count):
                    for step in json.loads(json.dumps(group["steps"])):
                        step["count"] = count
                        for operand in step["from"] + step["to"]:
                            if "buffer" in operand:
                                operand["chunk"] = chunk
                        if "after" in step:
                            step["after"] = [[0, len(steps)]]
                        steps.append(step)
                group["steps"] = steps
        lowered = NativePlan.read(json.dumps(plan)).lower()
        machine = simulation.machine_text(None, 4)
        bounds.append(idle_bound(json.loads(lowered.write()), machine, PIECE_BYTES, 3000.0))
    assert bounds[0] == pytest.approx(bounds[1], abs=1e-3)


def test_plans_with_other_channels_than_rings_have_no_bound() -> None:
    lowered = NativePlan.read(plan.build("one_shot", "all_gather", 2).json()).lower()
    assert idle_bound(json.loads(lowered.write()), simulation.machine_text(None, 2), PIECE_BYTES, 100.0) is None


def test_every_proved_plan_below_a_folder_has_a_line(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    wrong = all_gather_ring(3).replace('"s" srcbuf="o" srcoff="0"', '"s" srcbuf="o" srcoff="1"')
    for name, text in {
        "good.xml": all_reduce_pairs(3),
        "deep/ring.xml": all_gather_ring(3),
        "wrong.xml": wrong,
    }.items():
        (tmp_path / name).write_text(text)
    found = tmp_path / "found.json"
    command = [sys.executable, TOOLS / "schedule_corpus.py", tmp_path, "-o", found, "--bytes", "1M", "--jobs", "2"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(found.read_text())
    assert set(report["plans"]) == {"good.xml", "deep/ring.xml"}
    assert report["summary"]["plans"] == 2
    assert report["summary"]["longer"] == 0
    # Rows of the same commit are kept, others are not.
    for commit, is_kept in ((report["commit"], True), ("another", False)):
        report["commit"] = commit
        report["plans"]["good.xml"]["seconds"] = -1
        found.write_text(json.dumps(report))
        subprocess.run(list(map(str, command)), capture_output=True, check=True)
        assert (json.loads(found.read_text())["plans"]["good.xml"]["seconds"] == -1) == is_kept
