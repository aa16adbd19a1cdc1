"""The tables in the pages about the store are those of the measurements."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "store_figures.py"


def test_the_tables_have_the_figures_of_the_results() -> None:
    done = subprocess.run([sys.executable, TOOL, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_changed_figure_is_found() -> None:
    spec = importlib.util.spec_from_file_location("store_figures", TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    kinds = set()
    for page in tool.PAGES:
        text = page.read_text()
        for match in tool.TABLE.finditer(text):
            kinds.add(match["kind"])
            last = max(at for at, letter in enumerate(match["table"]) if letter.isdigit()) + match.start("table")
            other = "1" if text[last] == "0" else "0"
            assert tool.rewritten(text[:last] + other + text[last + 1 :]) == text
    assert kinds == tool.KINDS.keys()
