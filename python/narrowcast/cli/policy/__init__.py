"""`policy`: rules of the drop-in for NCCL."""

from __future__ import annotations

import importlib
from typing import Any

from .._commands import CommandGroup, new_group, print_help_without_command, single_command

#: Command -> module and function.
COMMANDS = {"check": ("check", "check")}


class _Policies(CommandGroup):
    def command_names(self) -> list[str]:
        return list(COMMANDS)

    def load(self, name: str) -> Any:
        module, function = COMMANDS[name]
        return single_command(name, getattr(importlib.import_module(f"{__package__}.{module}"), function))


policy = new_group(None, _Policies, "Settings files of the drop-in for NCCL, whose rules choose codecs for calls.")
policy.callback()(print_help_without_command)
