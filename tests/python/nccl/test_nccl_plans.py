"""Plans of the user in the drop-in for NCCL. On fakes of the driver and NCCL; calls run on the host backend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from narrowcast.plan import Plan, Program, build
from nccl_ranks import OPERATIONS, Ranks

RANKS = 3


@pytest.fixture
def on_ranks(preloaded):
    return Ranks(preloaded)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    made = tmp_path / "plans"
    made.mkdir()
    monkeypatch.setenv("NARROWCAST_PLANS", str(made))
    return made


@pytest.fixture
def rules(tmp_path, monkeypatch) -> Any:
    """Writes the settings file."""

    def write(text: str) -> None:
        (tmp_path / "rules.toml").write_text(text)

    monkeypatch.setenv("NARROWCAST_CONFIG", str(tmp_path / "rules.toml"))
    write("")
    return write


def two_shot(ranks: int = RANKS, name: str = "my two shot") -> Plan:
    p = Program("all_reduce", ranks, chunks=ranks, name=name)
    for r in p.ranks:
        total = r.reduce(peer.input[r.index] for peer in p.ranks)
        for peer in p.ranks:
            peer.output[r.index] = total
    return p


def save_gather(folder: Path) -> None:
    document = json.loads(build("ring", "all_gather", RANKS).json())
    (folder / "gather.json").write_text(json.dumps({**document, "name": "my gather"}))


ALWAYS = "[[plan]]\nfile = '{}'\nuse = 'always'\ndtype = ['int32', 'bfloat16']\n"


# Loaded for these values, but not used without a reason.
LOADED = "[[plan]]\nfile = 'reduce.json'\ndtype = ['int32']\n"


def test_calls_run_plans_of_the_folder(on_ranks, folder, rules):
    two_shot().save(folder / "reduce.json")
    build("ring", "all_gather", RANKS).save(folder / "gather.json")
    build("tree", "broadcast", RANKS, root=1).save(folder / "broadcast.json")
    two_shot(4).save(folder / "four.json")  # for other communicators
    rules("".join(ALWAYS.format(path.name) for path in sorted(folder.iterdir())))
    for correct in on_ranks("every_operation", RANKS, count=5000):
        assert set(correct) == OPERATIONS
    assert on_ranks.plans() == {
        "all_reduce": {"my two shot": 1},
        "all_gather": {"all_gather ring": 1},
        "broadcast": {"broadcast tree": 1},  # the one with root 1 of two
    }


def test_a_plan_that_is_always_used_makes_calls_run_on_the_engine(on_ranks, folder, rules, monkeypatch):
    monkeypatch.delenv("NARROWCAST_TAKE")
    two_shot().save(folder / "reduce.json")
    rules(ALWAYS.format("reduce.json"))
    for correct in on_ranks("every_operation", RANKS, count=5000):
        assert set(correct) == OPERATIONS
    taken = on_ranks.taken()
    assert taken.pop("all_reduce") == (1, 0)
    assert {counts[0] for counts in taken.values()} == {0}
    assert on_ranks.plans() == {"all_reduce": {"my two shot": 1}}


def test_plans_are_used_only_for_the_calls_of_their_rules(on_ranks, folder, rules):
    conditions = (
        "dtype = 'float32'",
        "dtype = 'int32'\nop = ['max', 'min']",
        "dtype = 'int32'\nmin_bytes = 20001",
        "dtype = 'int32'\nmax_bytes = 19999",
        "dtype = 'int32'\nranks = 4",
        "dtype = 'int32'\ncommunicator = 'tensor'",
        "dtype = 'int32'\nmin_bytes = 20000\nmax_bytes = 20000\nranks = 3",
    )
    for number in range(len(conditions)):
        two_shot(name=f"plan {number}").save(folder / f"{number}.json")
    rules("".join(f"[[plan]]\nfile = '{i}.json'\nuse = 'always'\n{one}\n" for i, one in enumerate(conditions)))
    for correct in on_ranks("every_operation", RANKS, count=5000):
        assert set(correct) == OPERATIONS
    assert on_ranks.plans() == {"all_reduce": {"plan 6": 1}}


def test_a_plan_without_a_rule_is_not_used_if_it_was_not_measured(on_ranks, folder):
    two_shot().save(folder / "reduce.json")
    on_ranks("every_operation", RANKS, count=5000)
    assert on_ranks.plans() == {}


def test_a_plan_is_used_where_it_was_measured_to_be_faster(on_ranks, folder, rules, tmp_path, monkeypatch):
    two_shot().save(folder / "reduce.json")
    rules("[[plan]]\nfile = 'reduce.json'\ndtype = 'int32'\n")
    (tmp_path / "own.costs").write_text(
        "narrowcast-costs 2 a machine\nkernels unknown\nall_reduce 3 shm frames:raw 1:9\n"
        f"all_reduce 3 shm {two_shot().cost_name} 1:1\n"
    )
    monkeypatch.setenv("NARROWCAST_COST_MODEL", str(tmp_path / "own.costs"))
    on_ranks("every_operation", RANKS, count=5000)
    assert on_ranks.plans() == {"all_reduce": {"my two shot": 1}}


def test_a_function_of_the_program_chooses_plans(preloaded, folder, rules):
    rules(LOADED)
    on_ranks = Ranks(preloaded, "nccl_selector_jobs")
    two_shot().save(folder / "reduce.json")
    save_gather(folder)
    for asked, correct in on_ranks("chooses_in_python", RANKS, count=5000):
        assert set(correct) == OPERATIONS
        calls = {operation: (count, dtype, ranks) for operation, count, dtype, ranks, _ in asked}
        assert calls["all_reduce"] == (5000, "int32", RANKS)
        assert calls["all_gather"] == (5000, "bfloat16", RANKS)
        plans = {operation: set(names) for operation, *_, names in asked}
        # The host backend also has the plans of several builders.
        assert "my two shot" in plans["all_reduce"] - plans["all_gather"]
        assert "my gather" in plans["all_gather"] - plans["all_reduce"]
    assert on_ranks.plans() == {"all_reduce": {"my two shot": 1}, "all_gather": {"my gather": 1}}


def test_a_function_in_c_chooses_plans(preloaded, folder, rules, selector_in_c):
    rules(LOADED)
    two_shot().save(folder / "reduce.json")
    on_ranks = Ranks(preloaded, "nccl_selector_jobs")
    for correct in on_ranks("chooses_in_c", RANKS, count=5000, selector=str(selector_in_c)):
        assert set(correct) == OPERATIONS
    assert on_ranks.plans() == {"all_reduce": {"my two shot": 1}}


def test_a_chosen_plan_that_was_not_measured_leaves_its_calls_to_nccl(preloaded, folder, rules, monkeypatch):
    monkeypatch.delenv("NARROWCAST_TAKE")
    two_shot().save(folder / "reduce.json")
    save_gather(folder)
    rules(LOADED + ALWAYS.format("gather.json"))
    on_ranks = Ranks(preloaded, "nccl_selector_jobs")
    for _, correct in on_ranks("chooses_in_python", RANKS, count=5000):
        assert set(correct) == OPERATIONS
    assert on_ranks.plans() == {"all_gather": {"my gather": 1}}
    assert {name for name, counts in on_ranks.taken().items() if counts[0]} == {"all_gather"}


def test_unusable_files_are_reported_with_the_reason(on_ranks, folder, rules, tmp_path, monkeypatch):
    monkeypatch.setenv("NARROWCAST_DEBUG", "INFO")  # for files with plans of other numbers of ranks
    whole = build("all_pairs", "all_gather", RANKS).model.to_json()
    rooted = build("all_pairs", "broadcast", RANKS).model.to_json()
    wrong = json.loads(whole)
    wrong["ranks"][0]["groups"][0]["steps"].pop()
    documents = {
        "a_wrong.json": json.dumps(wrong),
        "b_foreign.json": '{"name": "x", "collective": "allgather", "gpus": []}',
        "c_plan.xml": "<algo/>",
        "d_in_place.json": json.dumps({**json.loads(rooted), "in_place": "yes"}),
    }
    for name, text in documents.items():
        (folder / name).write_text(text)
    two_shot(4).save(folder / "e_four.json")
    listed = [name for name in documents if name.endswith(".json")]
    rules("".join(ALWAYS.format(name) for name in [*listed, "none.json"]) + "[[plan]]\nuse = 'sometimes'\n")
    for correct in on_ranks("logging_operations", RANKS, count=500, folder=str(tmp_path)):
        assert set(correct) == OPERATIONS
    assert on_ranks.plans() == {}
    log = (tmp_path / "1.log").read_text()
    for part in (
        f"{folder}/a_wrong.json: the plan is not used: ",
        "the plan 'all_gather all_pairs' is wrong (",
        f"{folder}/b_foreign.json: the plan is not used: ",
        "`narrowcast plan import` converts other formats",
        f"{folder}/c_plan.xml is not used: plans are files .json",
        f"{folder}/d_in_place.json: the plan is not used: ",
        "works in place only",
        f"{folder}/e_four.json: the plan is not used: it is for 4 ranks, and a communicator has 3",
        f"{folder}/none.json: the plan is not used: the file cannot be read",
        "in a plan, use must be always or faster. The plan is ignored",
    ):
        assert part in log, (part, log)
    assert log.count("a_wrong.json: the plan is not used") == 1


def test_ranks_with_different_plans_forward_all_calls(on_ranks, tmp_path, monkeypatch):
    for number, plan in enumerate((two_shot(), build("ring", "all_gather", RANKS))):
        (tmp_path / f"folder{number}").mkdir()
        plan.save(tmp_path / f"folder{number}" / "plan.json")
    monkeypatch.setenv("NARROWCAST_PLANS", str(tmp_path / "folder0"))
    for correct in on_ranks(
        "differing_settings", differing=1, name="NARROWCAST_PLANS", value=str(tmp_path / "folder1")
    ):
        assert set(correct) == OPERATIONS
    assert on_ranks.reasons() == {"the ranks have different settings of Narrowcast: plans"}
