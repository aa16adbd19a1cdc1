"""`store`: tables of encoded rows."""

from __future__ import annotations

import importlib
from typing import Any

from .._commands import CommandGroup, new_group, print_help_without_command, single_command

#: Command -> module.
COMMANDS = {"build": "build", "inspect": "inspect", "verify": "verify", "bench": "bench"}


class _StoreCommands(CommandGroup):
    def command_names(self) -> list[str]:
        return list(COMMANDS)

    def load(self, name: str) -> Any:
        return single_command(name, getattr(importlib.import_module(f"{__package__}.{COMMANDS[name]}"), name))


store = new_group(None, _StoreCommands, "Table files: tensors whose rows are encoded one by one.")
store.callback()(print_help_without_command)
