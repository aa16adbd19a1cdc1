"""The page of all commands is what tools/docs/commands.py writes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[3]
TOOL = ROOT / "tools" / "docs" / "commands.py"


def test_the_page_of_commands_describes_the_commands():
    spec = importlib.util.spec_from_file_location("commands", TOOL)
    commands = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(commands)
    assert commands.PAGE.read_text() == commands.page(), "run python tools/docs/commands.py"
