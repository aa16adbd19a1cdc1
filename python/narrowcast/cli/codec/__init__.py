"""`codec`: the codecs of the library and of users."""

from __future__ import annotations

import importlib
from typing import Any

from .._commands import CommandGroup, new_group, print_help_without_command, single_command

#: Command -> module and function.
COMMANDS = {"list": ("listing", "list_codecs"), "check": ("check", "check")}


class _Codecs(CommandGroup):
    def command_names(self) -> list[str]:
        return list(COMMANDS)

    def load(self, name: str) -> Any:
        module, function = COMMANDS[name]
        return single_command(name, getattr(importlib.import_module(f"{__package__}.{module}"), function))


codec = new_group(None, _Codecs, "Codecs of the library and of your own.")
codec.callback()(print_help_without_command)
