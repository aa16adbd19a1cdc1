"""`explain` shows the user's plans that a communicator with the same configuration would run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import narrowcast
import pytest
from narrowcast.plan import Plan, Program, build, load
from thread_ranks import on_ranks, succeed

RANKS = 3
CALL = ("explain", "all_gather", "--bytes", "12000", "--ranks", RANKS, "--dtype", "int32")
COUNT = 1000


@pytest.fixture
def ring() -> Plan:
    return build("ring", "all_gather", RANKS)


@pytest.fixture
def folder(tmp_path: Path, ring: Plan) -> Path:
    """With plans for other calls, too."""
    made = tmp_path / "plans"
    made.mkdir()
    ring.save(made / "ring.json")
    build("ring", "all_gather", 2).save(made / "two.json")
    build("tree", "broadcast", RANKS).save(made / "tree.json")
    return made


@pytest.fixture
def measured(tmp_path: Path, ring: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cost model in which the ring is faster, on GPUs and on the host."""
    lines = ["narrowcast-costs 2 a machine"]
    for link, path in (("nvlink", "blocks"), ("shm", "frames")):
        codecs = ("raw", "window")[: 1 if link == "shm" else 2]
        lines += [f"all_gather {RANKS} {link} {path}:{codec} 1:9 100000:9" for codec in codecs]
        lines.append(f"all_gather {RANKS} {link} {ring.cost_name} 1:2 100000:2")
    (tmp_path / "own.costs").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("NARROWCAST_COST_MODEL", str(tmp_path / "own.costs"))


def chosen(done: Any) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["chosen"]


@pytest.mark.parametrize("backend", ["cuda", "host"])
def test_a_plan_is_chosen_as_by_a_communicator_that_uses_it(cli_here, folder, ring, backend):
    command = (*CALL, "--backend", backend, "--json", "--plan", folder)
    unused = chosen(cli_here(*command))
    assert unused["plans"][ring.cost_name]["why_not"] == "its time was not measured"
    assert not unused["candidate"].startswith("plan:")
    used = chosen(cli_here(*command, "--use", "always"))
    assert (used["candidate"], used["plan"]) == (ring.cost_name, ring.name)
    assert used["path_why"] == "it was added for all such calls"


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("backend", ["cuda", "host"])
def test_a_plan_is_chosen_by_its_measured_time(cli_here, folder, ring, backend):
    found = chosen(cli_here(*CALL, "--backend", backend, "--json", "--plan", folder))
    assert (found["candidate"], found["predicted"]["chosen"]) == (ring.cost_name, 2)
    if backend == "host":

        def body(comm: Any) -> narrowcast.Explanation:
            comm.load_plan(ring, "int32").use()
            return comm.explain("all_gather", COUNT, dtype="int32")

        assert found["sentence"] == succeed(on_ranks(RANKS, body))[0].sentence
    table = cli_here(*CALL, "--backend", backend, "--plan", folder).stdout
    assert ring.name in table
    assert "2.0 us" in table


def test_plans_of_the_same_name_are_told_apart(cli_here, tmp_path, ring):
    (tmp_path / "own.json").write_text(json.dumps({**json.loads(ring.json()), "name": "ring"}))
    own = load(tmp_path / "own.json").cost_name.removeprefix("plan:")
    table = cli_here(*CALL, "--backend", "host", "--plan", "own.json").stdout
    assert f"not {own} " in table
    assert "not ring " in table
    table = cli_here(*CALL, "--backend", "host", "--plan", "own.json", "--use", "always").stdout
    assert own in table
    assert f"not {own}" not in table


def test_programs_and_the_python_function_have_the_same_choice(cli_here, tmp_path, ring):
    (tmp_path / "own.py").write_text(
        "from narrowcast.plan import build\ndef plan(ranks): return build('ring', 'all_gather', ranks)\n"
    )
    found = chosen(cli_here(*CALL, "--json", "--plan", "own.py", "--use", "always"))
    said = narrowcast.explain("all_gather", COUNT, dtype="int32", ranks=RANKS, plans=[ring], always=True)
    assert (found["candidate"], found["sentence"]) == (ring.cost_name, said.sentence)


def test_the_reduction_the_root_and_the_place_of_a_call_count(cli_here, tmp_path):
    build("ring", "reduce", RANKS, root=1).save(tmp_path / "reduce.json")
    command = ("explain", "reduce", "--bytes", "4K", "--ranks", RANKS, "--plan", "reduce.json", "--use", "always")
    assert chosen(cli_here(*command, "--root", 1, "--op", "max", "--json"))["path"] == "plan"
    other = chosen(cli_here(*command, "--json"))
    assert [one["why_not"] for one in other["plans"].values()] == ["it has another root"]
    in_place = json.loads(build("all_pairs", "all_gather", RANKS).json()) | {"in_place": "yes"}
    (tmp_path / "gather.json").write_text(json.dumps(in_place))
    command = (*CALL, "--json", "--plan", "gather.json", "--use", "always")
    assert chosen(cli_here(*command, "--in-place"))["path"] == "plan"
    assert chosen(cli_here(*command, "--out-of-place"))["path"] != "plan"


@pytest.mark.usefixtures("measured")
def test_a_folder_of_the_drop_in_is_explained(cli, drop_in, folder, ring):
    found = cli(*CALL, "--json", NARROWCAST_PLANS=str(folder))
    assert chosen(found)["plan"] != ring.name  # it is prepared for other types
    done = cli(*CALL[:-1], "float32", "--json", NARROWCAST_PLANS=str(folder))
    assert (chosen(done)["candidate"], done.stderr) == (ring.cost_name, "")


def test_the_settings_of_the_drop_in_are_explained(cli, drop_in, folder, tmp_path, ring):
    (tmp_path / "own.costs").write_text(
        f"narrowcast-costs 2 a machine\nall_gather {RANKS} nvlink blocks:raw 1:7 100000:7\n"
        f"all_gather {RANKS} nvlink blocks:window 1:8\n"
    )
    settings = tmp_path / "settings.toml"
    settings.write_text(
        f"plans = '{folder}'\ncost_model = '{tmp_path}/own.costs'\n"
        "[[plan]]\nfile = 'ring.json'\nuse = 'always'\ndtype = 'int32'\ncommunicator = 'tensor'\nmin_bytes = 4000\n"
        "[[plan]]\nfile = 'nowhere.json'\n"
    )
    done = cli(*CALL, "--config", settings, "--communicator", "tensor", "--json")
    assert chosen(done)["candidate"] == ring.cost_name
    assert f"{folder}/nowhere.json: the plan is not used: the file cannot be read" in done.stderr
    other = chosen(cli(*CALL, "--json", NARROWCAST_CONFIG=str(settings)))
    assert (other["predicted"]["chosen"], other["plans"]) == (7, {})


def test_the_codec_comes_from_the_rule_that_matches(cli, drop_in, tmp_path):
    (tmp_path / "rules.toml").write_text(
        "[[rule]]\nname = 'long'\nmin_bytes = 9000\ncommunicator = 'mesh_*'\ncodec = 'dense!'\ntake = 'always'\n"
        "[[rule]]\noperation = 'all_gather'\ncodec = 'raw'\ntake = 'never'\n"
    )
    command = ("explain", "all_gather", "--ranks", 2, "--config", "rules.toml", "--communicator", "mesh_dp:1")
    report = json.loads(cli(*command, "--bytes", "1M", "--json").stdout)
    settings = {"codec": "dense!", "result_codec": "dense!", "codec_from": "long", "why_forwarded": None}
    assert report["settings"] == settings
    assert (report["asked"]["codec"], report["chosen"]["codec"]) == ("dense!", "dense")
    table = " ".join(cli(*command, "--bytes", "8K").stdout.split())
    assert "raw, by rule 2 │ the drop-in runs the call in NCCL: a setting says never" in table
    assert "settings" not in json.loads(cli(*command, "--bytes", "8K", "--codec", "auto", "--json").stdout)


def test_a_rule_gives_the_codec_of_results(cli, drop_in, tmp_path):
    (tmp_path / "rules.toml").write_text("[[rule]]\ncodec = 'int8!'\nresult_codec = 'int4'\ntake = 'always'\n")
    command = ("explain", "all_reduce", "--bytes", "64M", "--ranks", 4, "--config", "rules.toml")
    table = " ".join(cli(*command).stdout.split())
    assert "int8!, results int4, by rule 1 │ the drop-in runs the call in Narrowcast" in table
    assert "│ results │ int4 │" in table
    assert json.loads(cli(*command, "--json").stdout)["chosen"]["result_codec"] == "int4"


@pytest.mark.parametrize(
    ("variable", "value", "codec", "shown"),
    [
        ("NARROWCAST_CODEC", "dense,all_gather=int8!", "int8", "int8!, by NARROWCAST_CODEC"),
        ("NARROWCAST_TAKE", "never", None, "NCCL: a setting says never"),
        ("NARROWCAST_OFF", "all_gather", None, "NCCL: the operation is switched off"),
    ],
)
def test_variables_of_the_drop_in_alone_are_explained(cli, drop_in, variable, value, codec, shown):
    command = ("explain", "all_gather", "--ranks", 2, "--bytes", "64M")
    done = cli(*command, **{variable: value})
    assert shown in " ".join(done.stdout.split())
    report = json.loads(cli(*command, "--json", **{variable: value}).stdout)
    assert report["chosen"]["codec"] == (codec or report["chosen"]["codec"])


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--plan", "nowhere.json"], 1, "nowhere.json: No such file or directory"),
        (["--plan", "empty"], 2, "the folder empty has no plans: files that end in .json"),
        (["--plan", "plans/two.json"], 2, "plans/two.json is for 2 ranks, not 3 (--ranks)"),
        (["--plan", "plans/tree.json"], 2, "plans/tree.json is a plan of broadcast, not of all_gather"),
        (["--plan", "put.json"], 1, "put.json: ncast_predictor_use_plan: the plan lets other ranks access"),
        (["--use", "sometimes"], 2, "--use sometimes is not faster or always"),
        (["--root", "3"], 2, "--root 3 is not one of 3 ranks"),
        (["--communicator", "tensor"], 2, "--communicator is for settings of the drop-in"),
        (["--backend", "host", "--config", "own.toml"], 2, "--config and --communicator are for --backend cuda"),
        (["--config", "nowhere.toml"], 1, "nowhere.toml: No such file or directory"),
    ],
)
def test_errors_name_what_is_wrong(cli_here, folder, tmp_path, arguments, status, message):
    (tmp_path / "empty").mkdir()
    if "put.json" in arguments:
        p = Program("all_gather", RANKS)
        for r in p.ranks:
            others = [peer for peer in p.ranks if peer is not r]
            r.signal(*others, relaxed=True)
            r.wait(*others, relaxed=True)
            for peer in others:
                r.put(r.input[0], peer.output[r])
            r.output[r] = r.input[0]
            r.signal(*others)
            r.wait(*others)
        p.save(tmp_path / "put.json")
    done = cli_here(*CALL, *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr.replace("\n", " ")
