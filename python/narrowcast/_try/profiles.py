"""Profiles: settings of the drop-in with which `narrowcast try` runs a command."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from .._native.settings import PREFIX

#: NCCL runs all calls. The drop-in only records them, so that this costs as much as in the other runs.
NCCL = "nccl"

Value = str | int


@dataclass(frozen=True)
class Profile:
    """Settings, by their key in a settings file, or a settings file."""

    name: str
    settings: dict[str, Value]
    file: Path | None = None

    def environment(self) -> dict[str, str]:
        """The environment variables of the settings."""
        variables = {f"{PREFIX}{key.upper()}": str(value) for key, value in self.settings.items()}
        return variables if self.file is None else {f"{PREFIX}CONFIG": str(self.file.absolute())}

    def toml(self, comment: str) -> str:
        """A file with the settings for `narrowcast run --config`. comment: its first line."""
        # Texts in JSON are also texts in TOML.
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in self.settings.items()]
        return f"# {comment}\n" + ("".join(lines) if self.file is None else self.file.read_text())


NCCL_ALONE = Profile(NCCL, {"take": "never"})
#: For programs that NCCL runs as fast: the drop-in then inspects no calls.
OFF = Profile(NCCL, {"off": 1})

_BUILT_IN = (
    Profile("default", {}),
    Profile("ctas-64", {"max_ctas": 64}),
    Profile("ctas-16", {"max_ctas": 16}),
    Profile("raw", {"codec": "raw"}),
    Profile("always", {"take": "always"}),
)
BUILT_IN = {one.name: one for one in _BUILT_IN}
#: Those that are tried unless the command line names others.
DEFAULT = ("default", "ctas-64", "ctas-16", "raw")
