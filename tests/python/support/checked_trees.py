"""Trees of sources for the tests of tools that check one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]  # of the repository


def check(tool: str, root: Path) -> subprocess.CompletedProcess[str]:
    """Runs a tool of tools/ on a tree."""
    command = [sys.executable, str(ROOT / "tools" / tool), str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
