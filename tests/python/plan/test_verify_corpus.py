"""The tool that verifies all plans in folders."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from msccl_documents import algo, all_gather_ring, all_reduce_pairs, gpu, step, tb
from mscclpp_documents import all_reduce_get, document

TOOL = Path(__file__).parents[3] / "tools" / "verify_corpus.py"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, TOOL, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_every_plan_below_a_folder_has_a_row(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    files = {
        "good.xml": all_reduce_pairs(3),
        "deep/wrong.xml": all_gather_ring(3).replace('"s" srcbuf="o" srcoff="0"', '"s" srcbuf="o" srcoff="1"'),
        "deep/er/good.json": json.dumps(all_reduce_get()),
        "deep/er/other.json": json.dumps(document([[]], "custom")),
        "deep/er/broken.xml": "<algo>",
        "deep/settings.json": "{}",
        "deep/page.xml": "<html/>",
        "deep/notes.txt": "",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    result = run(tmp_path, "--jobs", 2)
    assert result.returncode == 0, result.stderr
    _, *rows, summary = result.stdout.splitlines()
    found = {row.split()[0]: row.split()[1:3] for row in rows}
    assert {name: row[0] for name, row in found.items()} == {
        "good.xml": "proved",
        "deep/wrong.xml": "refuted",
        "deep/er/good.json": "proved",
        "deep/er/other.json": "unsupported",
        "deep/er/broken.xml": "invalid",
    }
    assert found["deep/wrong.xml"][1] in ("undefined", "result")
    assert summary.startswith("5 plans, ")
    assert summary.endswith("1 invalid, 2 proved, 1 refuted, 1 unsupported")


def test_a_ring_depth_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "pairs.xml").write_text(all_reduce_pairs(2))
    assert " proved " in run(tmp_path, "--ring-depth", 1).stdout


def send_before_receiving() -> str:
    """An all-to-all of two ranks, each of which sends both messages before it receives any."""
    gpus = ""
    for rank in range(2):
        own, other = 2 * rank, 2 * (1 - rank)
        rows = [step(i, "s", "i", other + i, "o", own + i) for i in range(2)]
        rows += [step(2 + i, "r", "i", own + i, "o", other + i) for i in range(2)]
        kept = step(0, "cpy", "i", own, "o", own, cnt=2)
        gpus += gpu(rank, tb(0, "".join(rows), 1 - rank, 1 - rank) + tb(1, kept), 4, 4)
    return algo(2, gpus, 4, "alltoall", inplace=0)


def test_results_at_several_depths_can_be_written_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    early = send_before_receiving()
    files = {"early.xml": early, "same.xml": early, "get.json": json.dumps(all_reduce_get()), "broken.xml": "<algo>"}
    for name, text in files.items():
        (tmp_path / "plans" / name).write_text(text)
    result = run(tmp_path / "plans", "--ring-depth", 1, "--ring-depth", 2, "--jobs", 1, "-o", tmp_path / "out.json")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("4 plans, ") == 2
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["command"].startswith("tools/verify_corpus.py ")
    assert list(written["plans"]) == sorted(files)
    early_row, same = written["plans"]["early.xml"], written["plans"]["same.xml"]
    assert early_row["depth_1"]["verdict"] == "refuted"
    assert early_row["depth_1"]["property"] == "deadlock"
    assert early_row["depth_1"]["message"].startswith("deadlock: rank 0, group 0, step 1 (early.xml:")
    assert early_row["depth_2"]["verdict"] == early_row["depth_2"]["split"] == "proved"
    assert early_row["depth_1"]["least_depth"] == early_row["depth_2"]["least_depth"] == 2
    assert same["same_as"] == "early.xml"
    assert written["plans"]["broken.xml"]["depth_1"]["verdict"] == "invalid"
    summary = written["summary"][".xml"]
    of_plans = {name: summary["depth_2"][name] for name in ("files", "different_files", "proved", "invalid")}
    assert of_plans == {"files": 3, "different_files": 2, "proved": 2, "invalid": 1}
    assert (summary["depth_1"]["refuted"], summary["depth_2"]["proved_and_split"]) == (2, 2)


def test_folders_without_plans_are_an_error(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert (result.returncode, result.stderr) == (2, "there are no plans\n")
