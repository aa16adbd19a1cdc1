"""What a report of measurements says about itself: the command, the commit and the machine."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
from pathlib import Path

import typer


def command_line(context: typer.Context) -> str:
    """The command as given, without defaults."""
    words = context.command_path.split()
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[name]
        option = [parameter.opts[-1]] if parameter.param_type_name == "option" else []
        for one in value if isinstance(value, (list, tuple)) else [value]:
            words += option if one is True else [*option, f"{one:g}" if isinstance(one, float) else str(one)]
    return shlex.join(words)


def commit() -> str:
    """The commit of this source tree; "unknown" for an installed package."""
    # Copies without history set it in the environment.
    named = os.environ.get("COMMIT")
    if named:
        return named
    root = Path(__file__).resolve().parents[3]
    # An installed package may be inside another repository.
    if not (root / "CMakeLists.txt").is_file() or not (root / ".git").exists():
        return "unknown"
    return _first_line("git", "-C", str(root), "rev-parse", "HEAD")


def machine() -> str:
    """GPU, driver and memory, from nvidia-smi."""
    return _first_line("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")


def processor() -> str:
    """The name of the processor."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _first_line(*command: str) -> str:
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return (text.splitlines() or ["unknown"])[0]
