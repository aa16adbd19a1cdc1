"""The tables of docs/performance.md say what the library does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import narrowcast
import pytest

ROOT = Path(__file__).parents[2]


def test_the_tables_mark_what_auto_chooses() -> None:
    try:
        narrowcast.explain("send", 1, dtype="bfloat16", ranks=2)
    except narrowcast.UnsupportedError as error:
        pytest.skip(str(error))
    command = [sys.executable, ROOT / "tools" / "performance_tables.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
