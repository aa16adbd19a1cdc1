"""The tool that schedules all plans in folders."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from msccl_documents import all_gather_ring, all_reduce_pairs

TOOLS = Path(__file__).parents[3] / "tools"


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
