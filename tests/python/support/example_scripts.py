"""Runs the scripts in examples/integrations."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "examples" / "integrations"
SECONDS = 240


def run_script(folder: Path, *command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in a folder. command: a script and its arguments, or -c, a program and its arguments."""
    return subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
