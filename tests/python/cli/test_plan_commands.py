"""`narrowcast plan`: files in, listings, images and other formats out."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_output import assert_one_line
from narrowcast._native.plan import NativePlan
from narrowcast.errors import InvalidArgumentError
from narrowcast.plan import Plan, build
from narrowcast.types import value_type

EXAMPLES = Path(__file__).parents[3] / "examples" / "plans"


@pytest.fixture
def ring(cli_here, tmp_path):
    """A plan of 3 ranks as JSON."""
    assert cli_here("plan", "import", EXAMPLES / "ring.py", "--ranks", 3, "-o", "ring.json").returncode == 0
    return tmp_path / "ring.json"


def test_a_program_becomes_json(ring):
    document = json.loads(ring.read_text())
    assert (document["narrowcast_plan"], document["operation"], len(document["ranks"])) == (1, "all_reduce", 3)


def test_signals_end_the_process_during_a_proof(cli_here, ring, monkeypatch):
    """Python's handlers would run after it."""
    during = []
    verify = Plan.verify

    def observed(*arguments, **options):
        during.append(signal.getsignal(signal.SIGINT))
        return verify(*arguments, **options)

    monkeypatch.setattr(Plan, "verify", observed)
    assert cli_here("plan", "verify", ring).returncode == 0
    assert during == [signal.SIG_DFL]
    assert callable(signal.getsignal(signal.SIGINT))


def test_json_is_written_to_standard_output(cli_here, ring):
    done = cli_here("plan", "import", ring)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == json.loads(ring.read_text())


def test_exports_that_are_too_large_are_warned_about(cli_here, tmp_path):
    build("ring", "all_reduce", 8).save(tmp_path / "ring.json")
    done = cli_here("plan", "import", "ring.json", "-f", "mscclpp_json")
    warning = "narrowcast: warning: rank 0 thread block 0 has 95 operations; there is room in MSCCL++ for 64\n"
    assert (done.returncode, done.stderr) == (0, warning)
    assert json.loads(done.stdout)["collective"] == "allreduce"
    done = cli_here("plan", "import", "ring.json", "-f", "msccl_xml", "-o", "ring.xml")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_plan_is_read_from_standard_input(ring):
    command = [sys.executable, "-m", "narrowcast", "plan", "show", "-", "--rank", "0"]
    done = subprocess.run(command, input=ring.read_bytes(), capture_output=True, timeout=60, check=True)
    assert done.stdout.decode().splitlines()[:3] == [
        'all_reduce "ring" of 3 ranks, 3 chunks in a piece: 15 steps',
        "rank 0",
        "     0  copy   input[0] -> to rank 1",
    ]


def test_the_listing_fits_the_terminal(cli_here, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    done = cli_here("plan", "show", EXAMPLES / "two_shot.py", "--ranks", 8)
    lines = done.stdout.splitlines()
    assert len(lines) > 100
    assert max(map(len, lines)) <= 80


def test_names_from_files_do_not_control_the_terminal(cli_here, ring):
    document = json.loads(ring.read_text())
    document["name"] = "\x1b[31mred\n"
    ring.write_text(json.dumps(document))
    done = cli_here("plan", "show", ring)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\\x1b[31mred\\n" in done.stdout.splitlines()[0]


def test_images_and_traces_are_written(cli_here, ring, tmp_path):
    pytest.importorskip("matplotlib")
    done = cli_here("plan", "show", ring, "-o", "ring.png", "-o", "ring.trace.json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "ring.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "ring.trace.json").read_text())["traceEvents"]


def test_wrong_use_has_status_2(cli_here, ring):
    assert_one_line(cli_here("plan", "show", ring, "-o", "ring.jpg"), 2, "ring.jpg must end in")
    assert_one_line(cli_here("plan", "show", ring, "-o", ring), 2, "is the input")
    assert_one_line(cli_here("plan", "show", ring, "--rank", 3), 2, "there is no rank 3")
    assert_one_line(cli_here("plan", "import", ring, "-f", "yaml"), 2, "'yaml' is not a format of plans")


def test_files_that_are_no_plans_are_an_error(cli_here, tmp_path):
    (tmp_path / "x").write_text("{}")
    assert_one_line(cli_here("plan", "show", "x"), 1, "x: ")
    assert_one_line(cli_here("plan", "show", "none"), 1, "none: No such file")
    (tmp_path / "p.py").write_text("plan = 1 / 0\n")
    assert_one_line(cli_here("plan", "import", "p.py"), 1, "p.py:1: ZeroDivisionError: division by zero")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.py", "x"]


RACE = """
from narrowcast.plan import Program

def plan(ranks=2):
    p = Program("all_gather", ranks)
    for r in p.ranks:
        r.output[r] = r.input[0]
        for peer in p.ranks:
            if peer is not r:
                r.put(r.input[0], peer.output[r])
    return p
"""


@pytest.fixture
def race(tmp_path):
    (tmp_path / "race.py").write_text(RACE)
    return "race.py"


def test_verify_has_status_0_if_all_are_proved(cli_here, ring):
    done = cli_here("plan", "verify", ring, EXAMPLES / "all_pairs.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(";")[0] for line in done.stdout.splitlines()] == [
        f"{ring}: proved",
        f"{EXAMPLES / 'all_pairs.py'}: proved",
    ]


def test_verify_has_status_1_if_one_is_refuted(cli_here, ring, race, tmp_path):
    (tmp_path / "none.xml").write_text("<algo")
    done = cli_here("plan", "verify", race, ring, "none.xml")
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("race.py: refuted: race: rank ")
    assert "(race.py:10): " in lines[0]
    assert lines[1].startswith("  ")
    assert lines[-2].startswith(f"{ring}: proved")
    assert lines[-1].startswith("none.xml: error: ")


def test_verify_has_status_2_if_one_cannot_be_read(cli_here, ring):
    done = cli_here("plan", "verify", ring, "none.json")
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.splitlines()[1] == "none.json: error: No such file or directory"


def test_only_features_that_are_missing_are_unsupported(cli_here, tmp_path):
    document = '<algo name="a" nchunksperloop="2" proto="Simple" ngpus="2" coll="custom" inplace="0"></algo>'
    (tmp_path / "custom.xml").write_text(document)
    (tmp_path / "wrong.json").write_text('{"narrowcast_plan": 1}')
    done = cli_here("plan", "verify", "--json", "custom.xml", "wrong.json", ".")
    assert done.returncode == 2
    rows = json.loads(done.stdout)
    assert [row["verdict"] for row in rows] == ["unsupported", "error", "error"]
    assert "has no defined result" in rows[0]["message"]
    assert "has no 'operation'" in rows[1]["message"]
    assert rows[2]["message"] == "Is a directory"


def test_verify_prints_an_object_for_each_file(cli_here, ring, race):
    done = cli_here("plan", "verify", "--json", ring, race, "none")
    assert done.returncode == 1
    proved, refuted, unread = json.loads(done.stdout)
    assert proved.keys() == refuted.keys() == unread.keys()
    named = ["file", "verdict", "property", "rank", "thread_block", "step", "message", "least_fifo_depth", "seconds"]
    assert set(named) <= proved.keys()
    assert [proved[key] for key in named[:7]] == [str(ring), "proved", *[None] * 5]
    assert proved["least_fifo_depth"] == 2
    assert proved["seconds"] > 0
    assert (refuted["verdict"], refuted["property"], refuted["line"]) == ("refuted", "race", "race.py:10")
    assert refuted["rank"] in (0, 1)
    assert (refuted["thread_block"], refuted["step"]) == (0, 0)
    assert refuted["trace"][0]["message"]
    assert (unread["verdict"], unread["message"]) == ("error", "No such file or directory")


def test_verify_prints_how_exact_results_are(cli_here, tmp_path):
    def facts(name: str, operation: str, codec: str) -> list[object]:
        text = build(name, operation, 3, codec="window").json()
        (tmp_path / "plan.json").write_text(text.replace('"window"', f'"{codec}"'))
        done = cli_here("plan", "verify", "--json", "plan.json")
        (found,) = json.loads(done.stdout)
        assert found["verdict"] == "proved"
        return [found[key] for key in ("roundings", "inexact_encodings", "rank_order", "same_everywhere")]

    assert facts("ring", "all_reduce", "window") == [2, 0, False, True]
    assert facts("all_pairs", "reduce", "int6") == [1, 1, True, True]
    # Contributions and sums are encoded, but the rank that has a sum keeps it as it is.
    assert facts("all_pairs", "all_reduce", "int6") == [1, 2, True, False]


def test_verify_takes_the_depth_of_all_rings(cli_here):
    halving = EXAMPLES / "halving.py"
    done = cli_here("plan", "verify", halving, "--ring-depth", 3)
    assert done.returncode == 1
    assert "refuted: deadlock: " in done.stdout
    assert cli_here("plan", "verify", halving, "--ring-depth", 4).returncode == 0


def test_errors_of_programs_do_not_stop_verification(cli_here, tmp_path, ring):
    (tmp_path / "p.py").write_text("\nplan = nothing\n")
    done = cli_here("plan", "verify", "p.py", ring)
    assert done.returncode == 2
    lines = done.stdout.splitlines()
    assert lines[0] == "p.py: error: p.py:2: NameError: name 'nothing' is not defined"
    assert lines[1].startswith(f"{ring}: proved")


def test_simulate_prints_a_row_for_each_size(cli_here, ring):
    done = cli_here("plan", "simulate", ring, "--bytes", "1K,1M", "--bytes", "64M")
    assert (done.returncode, done.stderr) == (0, "")
    assert "on 4 H200" in done.stdout
    assert "64.00 MiB" in done.stdout
    assert cli_here("plan", "simulate", ring).stdout.count("iB ") > 5


def test_simulate_prints_json(cli_here, ring):
    done = cli_here("plan", "simulate", ring, "--bytes", "1M", "--json", "--machine", "8xh200")
    (row,) = json.loads(done.stdout)
    assert (row["bytes"], row["machine"]) == (1 << 20, "8 H200")
    assert row["microseconds"] > 1
    assert len(row["sent_bytes"]) == len(row["busy"]) == 3


def test_simulate_draws_one_size(cli_here, ring, tmp_path):
    assert_one_line(cli_here("plan", "simulate", ring, "-o", "ring.json2"), 2, "-o needs one --bytes")
    assert_one_line(cli_here("plan", "simulate", ring, "--bytes", "1M", "-o", "ring.jpg"), 2, "must end in")
    done = cli_here("plan", "simulate", ring, "--bytes", "1M", "-o", "trace.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "trace.json").read_text())["otherData"]["plan"].endswith(" us")


def test_simulate_says_why_it_cannot(cli_here, ring, race):
    assert_one_line(cli_here("plan", "simulate", race), 1, "the plan is not proved")
    assert_one_line(
        cli_here("plan", "simulate", ring, "--machine", "none"), 1, "none is neither a file nor a known machine"
    )
    assert_one_line(cli_here("plan", "simulate", ring, "--bytes", "many"), 2, "many")


def test_schedule_merges_groups(cli_here, tmp_path):
    (tmp_path / "p.py").write_text(RACE.replace("r.put(r.input[0], peer.output[r])", "peer.output[r] = r.input[0]"))
    text = (tmp_path / "p.py").read_text().replace("for r in p.ranks:", "for r in p.ranks:\n      with group(r.index):")
    (tmp_path / "p.py").write_text(text.replace("import Program", "import Program, group"))
    done = cli_here("plan", "schedule", "p.py", "--ranks", 4, "--max-groups", 1, "-o", "merged.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[1:4:2] for line in done.stdout.splitlines()[3:5]] == [["before", "16"], ["after", "4"]]
    merged = json.loads((tmp_path / "merged.json").read_text())
    assert [len(rank["groups"]) for rank in merged["ranks"]] == [1] * 4
    assert cli_here("plan", "verify", "merged.json").returncode == 0
    assert json.loads(cli_here("plan", "schedule", "p.py", "-o", "-").stdout)["narrowcast_plan"] == 1


@pytest.mark.parametrize("change", [{"channel": 99}, {"buffer": "output", "chunk": 99}])
def test_a_plan_that_names_what_it_does_not_have_is_not_shown(cli_here, ring, change):
    document = json.loads(ring.read_text())
    document["ranks"][0]["groups"][0]["steps"][0]["to"] = [change]
    ring.write_text(json.dumps(document))
    for options in ([], ["--rank", 0], ["-o", "trace.json"]):
        assert_one_line(cli_here("plan", "show", ring, *options), 1, "the plan is invalid: ", "99")


@pytest.mark.parametrize("arguments", [[], ["--dtype", "float32", "--op", "max"]])
def test_kernels_are_compiled_into_a_folder(cli_here, ring, tmp_path, arguments):
    done = cli_here("plan", "compile", ring, "--json", "-o", "kernels", *arguments)
    if done.returncode and "NVRTC was not found" in done.stderr:
        pytest.skip("NVRTC is not installed")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    names = ["blocks", "packets", "lines", "packets in phases", "lines in phases"]
    assert [kernel["kernel"] for kernel in report["kernels"]] == names
    assert len(list((tmp_path / "kernels").glob("*.cubin"))) == 5
    again = json.loads(cli_here("plan", "compile", ring, "--json", "-o", "kernels", *arguments).stdout)
    assert again["seconds"] < report["seconds"]
    assert report["kept"]


def test_compile_says_if_the_kernels_are_not_kept(cli_here, tmp_path, monkeypatch):
    build("all_pairs", "all_gather", 2).save(tmp_path / "pairs.json")
    monkeypatch.setenv("NARROWCAST_PLAN_CACHE", "off")
    done = cli_here("plan", "compile", "pairs.json")
    if done.returncode and "NVRTC was not found" in done.stderr:
        pytest.skip("NVRTC is not installed")
    warning = "narrowcast: warning: NARROWCAST_PLAN_CACHE is off: the kernels are not kept\n"
    assert (done.returncode, done.stderr) == (0, warning)
    (tmp_path / "file").write_text("")
    done = cli_here("plan", "compile", "pairs.json", "-o", "file/kernels")
    assert_one_line(done, 1, "cannot write kernels to the folder file/kernels")


def test_plans_that_are_refuted_are_not_compiled(cli_here, ring):
    document = json.loads(ring.read_text())
    document["ranks"][0]["groups"][0]["steps"].pop()
    ring.write_text(json.dumps(document))
    done = cli_here("plan", "compile", ring, "-o", "kernels")
    assert done.returncode == 1
    assert "ring.json: refuted: structure: rank 2, group 0" in done.stderr
    with pytest.raises(InvalidArgumentError, match="ncast_plan_compile: the plan 'ring' is wrong"):
        NativePlan.read(ring.read_text()).compile(value_type("float32").number, 0, 90, str(ring.parent))


@pytest.mark.parametrize("arguments", [["--dtype", "complex"], ["--op", "median"], ["--arch", "10"]])
def test_compile_rejects_what_no_kernel_can_be(cli_here, ring, arguments):
    assert cli_here("plan", "compile", ring, *arguments).returncode == 2
