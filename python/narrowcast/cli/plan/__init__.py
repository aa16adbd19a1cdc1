"""`plan`: what can be done with plans in files."""

from __future__ import annotations

import importlib
from typing import Any

from .._commands import CommandGroup, new_group, print_help_without_command, single_command

#: Command -> module and function.
COMMANDS = {
    "import": ("convert", "convert"),
    "verify": ("verify", "verify"),
    "simulate": ("simulate", "simulate"),
    "schedule": ("schedule", "schedule"),
    "show": ("show", "show"),
    "run": ("run", "run"),
    "bench": ("bench", "bench"),
    "compile": ("compile", "compile_plan"),
}


class _Plans(CommandGroup):
    def command_names(self) -> list[str]:
        return list(COMMANDS)

    def load(self, name: str) -> Any:
        module, function = COMMANDS[name]
        return single_command(name, getattr(importlib.import_module(f"{__package__}.{module}"), function))


plan = new_group(
    None, _Plans, "Plans, collectives of your own: documents (JSON, MSCCL XML, MSCCL++ JSON) or Python programs."
)
plan.callback()(print_help_without_command)
