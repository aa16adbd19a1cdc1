"""What the results of measurements on GPUs say about themselves: machine, command and commit."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from narrowcast.cli._provenance import commit

ROOT = Path(__file__).resolve().parents[2]


def lines_of(*command: str) -> list[str]:
    """The lines that a command prints, or "unknown" if it cannot be run."""
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ["unknown"]
    return text.splitlines() or ["unknown"]


def machine() -> list[str]:
    """One line per GPU."""
    return lines_of("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")


def compiler() -> str:
    return lines_of("nvcc", "--version")[-1]


def provenance() -> dict[str, object]:
    """The members with which a result of the running script begins."""
    gpus = machine()
    script = os.path.relpath(sys.argv[0], ROOT)
    return {
        "machine": gpus[0] if len(gpus) == 1 else gpus,
        "command": shlex.join([script, *sys.argv[1:]]),
        "commit": commit(),
    }
