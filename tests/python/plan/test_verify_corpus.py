"""The tool that verifies all plans in folders."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from msccl_documents import all_gather_ring, all_reduce_pairs
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


def test_folders_without_plans_are_an_error(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert (result.returncode, result.stderr) == (2, "there are no plans\n")
